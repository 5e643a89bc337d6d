//! The demo's steps: what is told, what is typed, and what must be seen.

/// A step of the demo.
pub(super) struct Step {
    pub(super) title: &'static str,
    pub(super) story: &'static str,
    pub(super) commands: &'static [Command],
}

impl Step {
    /// What is told before the commands of the step.
    pub(super) fn heading(&self, number: usize) -> String {
        format!("\n{number}. {}\n{}", self.title, self.story)
    }
}

/// A command line, and what it must lead to.
pub(super) struct Command {
    pub(super) line: &'static str,
    pub(super) exit: i32,
    /// Whether the exit code is part of what the step shows.
    pub(super) shows_exit: bool,
    pub(super) checks: &'static [Check],
}

/// What an answer must show.
pub(super) enum Check {
    Has(&'static str),
    Lacks(&'static str),
}

use Check::{Has, Lacks};

pub(super) const fn command(line: &'static str, checks: &'static [Check]) -> Command {
    Command { line, exit: 0, shows_exit: false, checks }
}

/// A command that is to end with that exit code, which is shown.
pub(super) const fn exits(exit: i32, line: &'static str, checks: &'static [Check]) -> Command {
    Command { line, exit, shows_exit: true, checks }
}

/// Waits a minute for the old key to be revoked. A kubectl that fails ends the wait with its exit code.
pub(super) const UNTIL_REVOKED: &str = "for second in $(seq 60); do retiring=$(kubectl get coderprovisioner alpha --output jsonpath='{.status.retiringKeys[?(@.checksum)].name}'); test -n \"$retiring\" || break; sleep 1; done; test -z \"$retiring\"";

const INSTALL: Step = Step {
    title: "Install the operator with its chart",
    story: "Two replicas, one of them leads. The flag is only for this machine: its Coder listens on a loopback address, which the operator refuses to talk to otherwise.",
    commands: &[
        command(
            "helm install coder-operator deploy/chart --namespace coder-operator-system --create-namespace --wait --timeout=4m --set 'extraArgs={--allow-local-addresses}'",
            &[Has("STATUS: deployed")],
        ),
        command(
            "kubectl get deployments,leases --namespace coder-operator-system",
            &[Has("2/2"), Has("coder-operator-")],
        ),
    ],
};

const CONNECT: Step = Step {
    title: "Connect a Coder that runs elsewhere",
    story: "Its token and its licence are in Secrets, its address is in a manifest. The licence is installed, and what it covers is in the status.",
    commands: &[
        command("kubectl create namespace platform", &[]),
        command("kubectl config set-context --current --namespace platform", &[]),
        command(
            "kubectl create secret generic coder-automation --from-literal=token=\"$CODER_SESSION_TOKEN\"",
            &[],
        ),
        command("kubectl create secret generic coder-license --from-literal=license=\"$CODER_LICENSE\"", &[]),
        command(
            "sed \"s|https://coder.example.com|$CODER_URL|\" $DEMO/control-plane.yaml | kubectl apply -f -",
            &[Has("created")],
        ),
        command("kubectl wait --for=condition=Ready codercontrolplane/main --timeout=60s", &[]),
    ],
};

const DECLARE: Step = Step {
    title: "Declare its state",
    story: "An organization, groups, three documents of IdP sync, a banner, and provisioner daemons with a key of their own. The order of the files does not matter.",
    commands: &[
        command("kubectl apply -f $DEMO/state -f $DEMO/provisioner.yaml", &[Has("created")]),
        command("kubectl wait --for=condition=Ready coder --all --timeout=120s", &[Lacks("timed out")]),
        command(
            "kubectl get coder",
            &[Has("codergroup.coder.com/alpha-developers"), Has("coderprovisioner.coder.com/alpha")],
        ),
    ],
};

const DRIFT: Step = Step {
    title: "Somebody changes something by hand",
    story: "The quota of a group. `plan` and `verify` are what a CI pipeline runs: they change nothing, and exit with 3 where Coder differs from the files. The operator heals the drift at its next interval; here it is asked to look now. The Event says what was changed.",
    commands: &[
        command(
            "curl --silent --show-error --fail --request PATCH --header \"Coder-Session-Token: $CODER_SESSION_TOKEN\" --data '{\"name\":\"\",\"quota_allowance\":1}' --output /dev/null \"$CODER_URL/api/v2/groups/$(kubectl get codergroup alpha-developers --output jsonpath='{.status.id}')\"",
            &[],
        ),
        exits(
            3,
            "coder-operator plan --exit-code --url \"$CODER_URL\" -f $DEMO/state",
            &[Has("quotaAllowance: 1 -> 20")],
        ),
        exits(
            3,
            "coder-operator verify --url \"$CODER_URL\" -f $DEMO/state",
            &[Has("quotaAllowance: 1 -> 20")],
        ),
        command(
            "kubectl annotate codergroup alpha-developers coder.com/reconcile-requested-at=after-the-change",
            &[],
        ),
        command(
            "kubectl wait codergroup alpha-developers --for=jsonpath='{.status.lastHandledReconcileAt}'=after-the-change --timeout=60s",
            &[],
        ),
        command(
            "kubectl describe codergroup alpha-developers | sed -n '/^Events:/,$p'",
            &[Has("quotaAllowance: 1 -> 20")],
        ),
        exits(0, "coder-operator verify --url \"$CODER_URL\" -f $DEMO/state", &[Lacks("quotaAllowance")]),
    ],
};

const APPROVE: Step = Step {
    title: "A change that needs approval",
    story: "With `approval: Manual` the plan is published with its hash and nothing is changed until somebody approves exactly that plan.",
    commands: &[
        command(
            "kubectl patch coderorganization alpha --type merge --patch '{\"spec\":{\"approval\":\"Manual\",\"displayName\":\"Alpha and Partners\"}}'",
            &[],
        ),
        command(
            "kubectl wait coderorganization alpha --for=jsonpath='{.status.plan.hash}' --timeout=60s",
            &[],
        ),
        command(
            "kubectl get coderorganization alpha --output jsonpath='{.status.plan}{\"\\n\"}'",
            &[Has("displayName"), Has("Alpha and Partners")],
        ),
        command(
            "curl --silent --fail --header \"Coder-Session-Token: $CODER_SESSION_TOKEN\" \"$CODER_URL/api/v2/organizations/alpha\"",
            &[Has("Mission Partner Alpha")],
        ),
        command(
            "kubectl annotate coderorganization alpha coder.com/approved-plan=\"$(kubectl get coderorganization alpha --output jsonpath='{.status.plan.hash}')\"",
            &[],
        ),
        command("kubectl wait --for=condition=Ready coderorganization/alpha --timeout=60s", &[]),
        command(
            "curl --silent --fail --header \"Coder-Session-Token: $CODER_SESSION_TOKEN\" \"$CODER_URL/api/v2/organizations/alpha\"",
            &[Has("Alpha and Partners")],
        ),
    ],
};

const ROTATE: Step = Step {
    title: "Rotate a key under a running daemon",
    story: "A new key is minted and written to the Secret, the pods roll, and the old key is revoked once a daemon is seen on the new one.",
    commands: &[
        command(
            "kubectl get coderprovisioner alpha --output jsonpath='{.status.provisionerKeyName}{\"\\n\"}'",
            &[Has("alpha")],
        ),
        command("kubectl annotate coderprovisioner alpha coder.com/rotate-requested-at=now", &[]),
        command(
            "kubectl wait coderprovisioner alpha --for=jsonpath='{.status.lastHandledRotateAt}'=now --timeout=60s",
            &[],
        ),
        command(UNTIL_REVOKED, &[]),
        command("kubectl wait --for=condition=Ready coderprovisioner/alpha --timeout=60s", &[]),
        command(
            "kubectl get coderprovisioner alpha --output jsonpath='{.status.provisionerKeyName}{\"\\n\"}'",
            &[Has("alpha-")],
        ),
        command("kubectl describe coderprovisioner alpha | sed -n '/^Events:/,$p'", &[Has("KeyRevoked")]),
    ],
};

const DELETE: Step = Step {
    title: "Delete everything",
    story: "Remote objects go with their manifests where `deletionPolicy: Delete` says so, the control plane goes last with the licence that the operator installed. Secrets that you created stay.",
    commands: &[
        command("kubectl delete coder --all --timeout=120s", &[Has("deleted")]),
        command(
            "curl --silent --fail --header \"Coder-Session-Token: $CODER_SESSION_TOKEN\" \"$CODER_URL/api/v2/organizations\"",
            &[Lacks("\"alpha\"")],
        ),
        command(
            "curl --silent --fail --header \"Coder-Session-Token: $CODER_SESSION_TOKEN\" \"$CODER_URL/api/v2/licenses\"",
            &[Has("[]")],
        ),
        command(
            "kubectl get secrets,deployments,pods,serviceaccounts,roles,rolebindings",
            &[Has("coder-automation"), Lacks("provisioner")],
        ),
    ],
};

const UNINSTALL: Step = Step {
    title: "Uninstall",
    story: "The pods made the Lease, so Helm does not know it: it goes with the namespace. The definitions stay (`crds.keep`) until they are deleted by name, because every object of their kinds goes with them.",
    commands: &[
        command(
            "helm uninstall coder-operator --namespace coder-operator-system --wait --timeout=4m",
            &[Has("uninstalled")],
        ),
        // Helm does not wait for the pods of a Deployment.
        command("kubectl wait pods --all --for=delete --namespace coder-operator-system --timeout=60s", &[]),
        command("kubectl get all --namespace coder-operator-system", &[Has("No resources found")]),
        command("kubectl get leases --namespace coder-operator-system", &[Has("coder-operator")]),
        command("kubectl delete namespace coder-operator-system platform --timeout=120s", &[Has("deleted")]),
        command(
            "kubectl delete crds --selector app.kubernetes.io/name=coder-operator --timeout=120s",
            &[Has("codercontrolplanes.coder.com")],
        ),
        command(
            "kubectl get crds,clusterroles,clusterrolebindings,namespaces --output name",
            &[Lacks("coder"), Lacks("platform")],
        ),
    ],
};

/// The demo.
pub(super) const STEPS: [Step; 8] = [INSTALL, CONNECT, DECLARE, DRIFT, APPROVE, ROTATE, DELETE, UNINSTALL];
