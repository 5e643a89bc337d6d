//! An object of ours that a policy of the cluster refuses.

use api::CoderProvisioner;
use k8s_openapi::api::{
    admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding},
    apps::v1::Deployment,
    core::v1::ServiceAccount,
    rbac::v1::{Role, RoleBinding},
};
use kube::{
    Api,
    api::{DeleteParams, ListParams, ObjectMeta, PostParams},
};
use serde_json::{Value, json};

use super::{
    super::{
        licensed,
        operator::writes,
        service_account::OTHERS,
        stage::{LIMIT, Stage, is_held_up, is_ready, says, words},
    },
    scene::idle,
};

const WORDS: &str = "this namespace has no Roles";

/// A policy for the namespace of the test and no other: the API server is everybody's.
struct Ban<'a>(&'a Stage);

impl Ban<'_> {
    fn policies(&self) -> (Api<ValidatingAdmissionPolicy>, Api<ValidatingAdmissionPolicyBinding>) {
        (Api::all(self.0.client.clone()), Api::all(self.0.client.clone()))
    }

    /// Forbids Roles, and waits until they are.
    async fn begin(&self) {
        let name = format!("no-roles-in-{}", self.0.namespace);
        let here = json!({"matchLabels": {"kubernetes.io/metadata.name": self.0.namespace}});
        let roles = json!({"namespaceSelector": here, "resourceRules": [{"apiGroups": ["rbac.authorization.k8s.io"],
            "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["roles"]}]});
        let policy = json!({"metadata": {"name": name}, "spec": {"failurePolicy": "Fail", "matchConstraints": roles,
            "validations": [{"expression": "false", "message": WORDS}]}});
        let binding = json!({"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"],
            "matchResources": {"namespaceSelector": here}}});
        let (policies, bindings) = self.policies();
        policies.create(&PostParams::default(), &serde_json::from_value(policy).unwrap()).await.unwrap();
        bindings.create(&PostParams::default(), &serde_json::from_value(binding).unwrap()).await.unwrap();
        self.until(false).await;
    }

    async fn end(&self) {
        let name = format!("no-roles-in-{}", self.0.namespace);
        let (policies, bindings) = self.policies();
        bindings.delete(&name, &DeleteParams::default()).await.unwrap();
        policies.delete(&name, &DeleteParams::default()).await.unwrap();
        self.until(true).await;
    }

    /// Asks the API server until it takes a Role here, or takes none.
    async fn until(&self, takes: bool) {
        let name = Some("asked".to_owned());
        let role = Role { metadata: ObjectMeta { name, ..ObjectMeta::default() }, ..Role::default() };
        let params = PostParams { dry_run: true, ..PostParams::default() };
        let since = std::time::Instant::now();
        while self.0.api::<Role>().create(&params, &role).await.is_ok() != takes {
            assert!(since.elapsed() < LIMIT, "the policy is not what it should be");
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
    }
}

#[tokio::test]
async fn what_a_policy_refuses_is_told_in_its_words_holds_up_nothing_else_and_comes_when_it_may() {
    let stage = Stage::new(licensed().await).await;
    let ban = Ban(&stage);
    ban.begin().await;
    stage.apply(&idle(&json!({}))).await;
    let told = stage.wait::<CoderProvisioner>("alpha", "refused", is_held_up("NotApplied")).await;
    assert!(says(&told, "DeploymentReady", "False", "NotApplied"), "{told:#}");
    assert!(words(&told).contains("Role") && words(&told).contains(WORDS), "{}", words(&told));
    assert!(says(&told, "ProvisionerKeyReady", "True", "ProvisionerKeyReady"), "{told:#}");
    let all = ListParams::default().labels(OTHERS);
    assert_eq!(stage.api::<Role>().list(&all).await.unwrap().items, []);
    let bindings = stage.api::<RoleBinding>().list(&all).await.unwrap().items;
    assert_eq!(bindings, [], "who may not bind everything binds only Roles that exist");
    assert_eq!(stage.api::<Deployment>().list(&all).await.unwrap().items.len(), 1);
    let accounts = stage.api::<ServiceAccount>().list(&all).await.unwrap().items;
    assert!(accounts.iter().any(|it| it.metadata.name.as_deref() != Some("default")), "{accounts:#?}");

    // One try a pass, and no pass but those that are asked for or due.
    let is_try = |it: &Value| it["objectRef"]["resource"] == "roles";
    let is_binding = |it: &Value| it["objectRef"]["resource"] == "rolebindings";
    stage.look_again("CoderProvisioner", "alpha").await;
    let before = writes(&stage.namespace).await.len();
    let since = std::time::Instant::now();
    for _ in 0..4 {
        let still = stage.look_again("CoderProvisioner", "alpha").await;
        assert!(is_held_up("NotApplied")(&still), "{still:#}");
    }
    let due = usize::try_from(since.elapsed().as_secs() / 10).unwrap() + 1;
    let written = writes(&stage.namespace).await.split_off(before);
    let (tries, others): (Vec<_>, Vec<_>) = written.into_iter().partition(is_try);
    let (bindings, others): (Vec<_>, Vec<_>) = others.into_iter().partition(is_binding);
    assert_eq!(bindings.len(), tries.len(), "the binding waits for the Role");
    assert!((4..=4 + due).contains(&tries.len()), "{} tries", tries.len());
    assert_eq!(others.len(), 4, "the echo of each annotation and nothing else: {others:#?}");

    ban.end().await;
    stage.wait::<CoderProvisioner>("alpha", "ready", is_ready).await;
    assert_eq!(stage.api::<Role>().list(&all).await.unwrap().items.len(), 1);
    assert_eq!(stage.api::<RoleBinding>().list(&all).await.unwrap().items.len(), 1);
}
