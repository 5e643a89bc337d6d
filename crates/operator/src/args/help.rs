//! The texts below the options in `--help`: examples, exit codes, environment.

macro_rules! exit_codes {
    () => {
        "\
Exit codes:
  0  done, or equal
  1  failure, or interrupted
  2  usage error or invalid manifest; nothing was changed
  3  drift: a deployment differs from the manifests (verify, plan --exit-code)
  4  refused: by adoptionPolicy, approval or allowDestructive, by your answer,
     or because the address came only from CODER_URL
  5  timed out waiting for a dependency
  Of several, the first of 2, 1, 4, 5, 3 is returned."
    };
}

macro_rules! environment {
    () => {
        "\
Environment:
  CODER_URL            deployment for manifests whose address is neither --url nor the
                       external.url of a CoderControlPlane in the files. `plan` and `verify`
                       announce it; `apply` asks for its host name
  CODER_SESSION_TOKEN  session token for --url or CODER_URL, unless --token-file is given
  KUBECONFIG           cluster to read CoderControlPlanes and Secrets from that are not in the
                       files; in a pod, the cluster of the pod
  CODER_AGENT_TOKEN, CODER_WORKSPACE_NAME
                       set inside a Coder workspace, where CODER_URL is the Coder that runs the
                       workspace: adds a warning
  HTTPS_PROXY, HTTP_PROXY, NO_PROXY
                       proxy for requests to Coder
  NO_COLOR, CLICOLOR_FORCE
                       never colour; colour without a terminal, too"
    };
}

macro_rules! scope {
    () => {
        "\
Manifests:
  What is in Coder is compared and applied: every kind but CoderControlPlane and
  CoderProvisioner. A CoderProvisionerKey needs a cluster for its Secret. A CoderControlPlane
  names the deployment of the manifests that refer to it, and its licences are applied.
  CoderProvisioner and the objects of a managed CoderControlPlane are compared in a cluster;
  `coder-operator run` applies them, and `apply` skips them with a note. An external CoderControlPlane without licences that no manifest
  refers to cannot be handled: exit code 2, or skipped with --skip-unsupported.
  Documents of other kinds and suspended manifests are skipped with a note."
    };
}

pub(super) const PROGRAM: &str = concat!(
    "\
Examples:
  coder-operator plan -f manifests/ --url https://coder.example.com
  coder-operator apply -f manifests/ --url https://coder.example.com
  coder-operator verify -f manifests/ --secret coder-automation/token=env:CODER_TOKEN
  coder-operator validate -f manifests/
  coder-operator export --url https://coder.example.com --output-dir manifests/
  coder-operator sandbox
  coder-operator crds | kubectl apply --server-side -f -
  coder-operator run --leader-elect --namespace coder

",
    exit_codes!(),
    "\n\n",
    environment!(),
    "\n\n`coder-operator VERB --help` has the examples and options of one verb."
);

pub(super) const PLAN: &str = concat!(
    "\
Examples:
  coder-operator plan -f manifests/ --url https://coder.example.com
  coder-operator plan -f manifests/ --exit-code -o json | jq '.objects[] | select(.state != \"Equal\")'
  kustomize build overlays/prod | coder-operator plan -f - --url https://coder.example.com

",
    scope!(),
    "\n\n",
    exit_codes!(),
    "\n\n",
    environment!()
);

pub(super) const APPLY: &str = concat!(
    "\
Examples:
  coder-operator apply -f manifests/ --url https://coder.example.com
  coder-operator apply -f manifests/ --yes --wait --timeout 10m     # in a Job: no questions
  coder-operator apply -f manifests/ --secret coder-automation/token=file:/run/secrets/token
  coder-operator apply -f manifests/ --url https://coder.example.com --approve HASH

`apply` shows the plan and asks; it never deletes objects that are missing from the files. An
address that came only from CODER_URL is confirmed by typing its host name; with --yes or without
a terminal it is refused (exit code 4): give --url.

",
    scope!(),
    "\n\n",
    exit_codes!(),
    "\n\n",
    environment!()
);

pub(super) const VERIFY: &str = concat!(
    "\
Examples:
  coder-operator verify -f manifests/ --url https://coder.example.com
  coder-operator verify -f manifests/ --quiet || echo \"drift or failure: $?\"

",
    scope!(),
    "\n\n",
    exit_codes!(),
    "\n\n",
    environment!()
);

pub(super) const EXPORT: &str = "\
Examples:
  coder-operator export --url https://coder.example.com --output-dir manifests/
  coder-operator export --url https://coder.example.com --kind CoderGroup --organization alpha
  coder-operator export --url https://coder.example.com --mode Observe --namespace coder > coder.yaml

`export` only reads. The plan of its manifests is empty, once the Secrets that it lists are supplied: no
manifest holds a secret value. The list is a comment at the top, or SECRETS.txt in the folder. Objects
that Coder makes by itself and that are unchanged are left out: the default organization, the group
Everyone, sync settings that were never written. Members of groups are left out where the identity
provider manages them. Everything else that is left out, and everything that the account may not read,
is named on standard error. Files of --output-dir whose object is gone are named and not deleted.

A template comes with the files of its active version: in a folder beside its manifest, which
`source.directory` names, or in the manifest itself, where there is one stream or with --inline-files.
The controllers cannot read a folder: give them the files inline, or as a ConfigMap. Values of sensitive
variables are references to Secrets. The active version is recognised by its content, so that no version
is published because of an export. Hidden files, Terraform's state and files with values of variables
are not exported, nor is a source with a secret value in it.

Provisioner keys and people of an identity provider are exported with --all, or where their kind is
named: the value of a key has to be supplied, and people come by themselves.

Exit codes:
  0  done
  1  failure, or something could not be read; the manifests of everything else are written
  2  usage error, such as an unknown kind or organization
  4  refused: a file of --output-dir differs, and --overwrite is not given, or a link is in the way;
     nothing was written

Environment:
  CODER_URL            deployment to export, unless --url is given
  CODER_SESSION_TOKEN  session token, unless --token-file is given; that of an owner sees everything
  HTTPS_PROXY, HTTP_PROXY, NO_PROXY
                       proxy for requests to Coder";

pub(super) const STATUS: &str = "\
Examples:
  coder-operator status
  coder-operator status --all-namespaces -o json | jq '.[] | select(.ready != \"True\")'

The table shows what the controllers have written into the status of each object: whether it is ready,
since when, which fields differ in Coder, and why.

Exit codes:
  0  done
  1  failure, such as a cluster without the CRDs
  2  usage error

Environment:
  KUBECONFIG  cluster to look at; in a pod, the cluster of the pod";

pub(super) const DIFF: &str = concat!(
    "\
Examples:
  coder-operator diff codergroup/developers
  coder-operator diff codertemplate/kubernetes --namespace coder --exit-code

`diff` compares one object of the cluster with Coder now, as `plan` does with a file. The plan in the
status of the object has at most 20 steps; `diff` shows all.

",
    exit_codes!(),
    "\n\n",
    environment!()
);

pub(super) const APPROVE: &str = "\
Examples:
  coder-operator approve codergroup/developers
  coder-operator approve codergroup/developers --namespace coder --hash 0a1b2c3d

`approve` shows the plan in the status of the object, asks, and sets the annotation
coder.com/approved-plan to the hash of that plan. The operator applies the plan; if the plan changes
before, it is not applied. The account needs the right to patch the object.

Exit codes:
  0  approved, now or before
  1  failure
  2  usage error, or no such object
  4  refused: no plan to approve, another plan than --hash, or your answer

Environment:
  KUBECONFIG  cluster of the object; in a pod, the cluster of the pod";

pub(super) const VALIDATE: &str = "\
Examples:
  coder-operator validate -f manifests/
  kustomize build overlays/prod | coder-operator validate -f - --strict
  coder-operator validate -f manifests/ -o markdown >> \"$GITHUB_STEP_SUMMARY\"

`validate` sends no request. Errors are: fields and values that the definition of the kind does not
allow, broken rules, two manifests for one object, placeholders (REPLACE_ME, changeme, <name>),
secret values in manifests, and Secrets that are not encrypted. Warnings are references to a control
plane, an organization or a group that the files do not declare: it may exist in the cluster or in
Coder. Rules about changes of a manifest (immutable fields) need the API server.

Exit codes:
  0  valid
  1  failure
  2  usage error, or errors in the manifests; with --strict, warnings, too";

pub(super) const SCHEMA: &str = "\
Examples:
  coder-operator schema > coder-operator.schema.json
  coder-operator schema CoderGroup
  coder-operator schema --folder schemas/

With `# yaml-language-server: $schema=coder-operator.schema.json` as the first line of a manifest,
editors complete and check its fields. The files of --folder have the names that kubeconform expects:
  kubeconform -schema-location 'schemas/{{.ResourceKind}}_{{.ResourceAPIVersion}}.json' manifests/

Exit codes:
  0  done
  1  failure
  2  usage error";

pub(super) const SANDBOX: &str = "\
Examples:
  coder-operator sandbox
  coder-operator sandbox --license none --port 7080
  coder-operator sandbox --state sandbox.json --save
  coder-operator sandbox -- sh -c 'coder-operator apply -f manifests/ --yes --url \"$CODER_URL\"'

`sandbox` prints the address and the token as two lines for a shell, on standard output; a COMMAND
finds them in its environment instead. It imitates Coder's API for the routes that this program uses,
and is for trials and tests only. It listens on loopback. A page at its address shows the state and
lets a person change it by hand; whoever can connect to the port can use that page. Signatures of
licences are not checked.

Exit codes:
  0  stopped by SIGTERM or SIGINT
  1  failure, such as a port that is in use
  2  usage error, or a file that holds no state
  With a COMMAND: its exit code; 128 and the number of the signal that ended it.";

pub(super) const RUN: &str = "\
Examples:
  coder-operator run --leader-elect --health-address 0.0.0.0:8081 --metrics-address 0.0.0.0:8080
  coder-operator run --namespace coder --log-format text

Exit codes:
  0  stopped by SIGTERM or SIGINT
  1  failure, or leadership lost
  2  usage error

Environment:
  KUBECONFIG                  cluster to run against; in a pod, the cluster of the pod
  CODER_OPERATOR_ALLOW_RULES  file for --allow-rules
  CODER_OPERATOR_ALLOW_LOCAL_ADDRESSES
                              `true` stands for --allow-local-addresses
  RUST_LOG                    log filter, as `debug` or `coder_operator=debug`
  POD_NAME, POD_NAMESPACE     the operator's own pod, for Events about it
  HTTPS_PROXY, HTTP_PROXY, NO_PROXY
                              proxy for requests to Coder";

pub(super) const CRDS: &str = "\
Examples:
  coder-operator crds | kubectl apply --server-side -f -
  coder-operator crds > crds.yaml

Exit codes:
  0  done
  1  failure";

pub(super) const COMPLETION: &str = "\
Examples:
  source <(coder-operator completion bash)
  coder-operator completion zsh > \"${fpath[1]}/_coder-operator\"
  coder-operator completion fish > ~/.config/fish/completions/coder-operator.fish

Exit codes:
  0  done
  1  failure
  2  usage error";

pub(super) const MAN: &str = "\
Examples:
  coder-operator man | man -l -
  coder-operator man apply > coder-operator-apply.1

Exit codes:
  0  done
  1  failure
  2  usage error";

pub(super) const UNINSTALL_CHECK: &str = "\
Examples:
  coder-operator uninstall-check
  coder-operator uninstall-check --namespace coder

Exit codes:
  0  no object needs the operator
  1  failure
  2  usage error
  4  refused: objects would never be deleted without the operator

Environment:
  KUBECONFIG  cluster to look at; in a pod, the cluster of the pod";
