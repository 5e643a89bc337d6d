//! A deployment in memory as manifests: their plans are empty, and what is not in them is named.

use std::sync::Arc;

use api::Reason;
use engine::{
    Coder, Decision, Door, Outcome, Verdict,
    coder::Promises,
    export::{Export, ExportScope},
    kinds,
    pipeline::export::LeftOut,
};
use serde_json::{Value, json};

use crate::{
    examples, memory,
    support::{self, secret, subject},
    wire::{Fault, Wire, answer},
};

const KEY: &str = "key-example-0123456789-abcdefghij";

fn scope() -> ExportScope {
    ExportScope {
        control_plane: "main".to_owned(),
        namespace: Some("platform".to_owned()),
        ..ExportScope::default()
    }
}

/// Kinds whose examples need nothing that a deployment in memory does not have.
const APPLIED: [&str; 10] = [
    "CoderOrganization",
    "CoderUser",
    "CoderGroup",
    "CoderRole",
    "CoderOrganizationSync",
    "CoderGroupSync",
    "CoderRoleSync",
    "CoderAppearance",
    "CoderAIProvider",
    "CoderAIModel",
];

/// The example of a kind, for a deployment where only the owner is.
fn example(kind: &str) -> Value {
    let mut manifest = examples::of(kind);
    if kind == "CoderGroup" {
        manifest["spec"].as_object_mut().unwrap().remove("members");
    }
    manifest
}

struct Scene {
    deployment: sim::Coder,
}

impl Scene {
    fn new() -> Self {
        Self { deployment: memory::coder(Arc::new(memory::start), memory::licensed()) }
    }

    /// The deployment as the command line has it: with a Secret that a person supplied.
    fn coder(&self, promises: Promises, secret_name: &str) -> Coder {
        let cluster = support::cluster();
        let values = json!({"anthropic": KEY, "key": KEY});
        cluster.set(&secret(secret_name, &values));
        Coder::new(memory::owner(self.deployment.transport()), promises).reading(Arc::new(cluster))
    }

    async fn apply(&self, manifests: &[Value], secret_name: &str) {
        let coder = self.coder(support::promises(manifests), secret_name);
        for manifest in manifests {
            let mut subject = subject(manifest);
            let assessment = subject.assess(&coder, Door::CommandLine).await;
            let report = subject.carry_out(&assessment, &coder).await;
            assert!(report.outcome.is_settled(), "{}: {:?}", subject.reference(), report.outcome);
        }
    }

    async fn filled() -> Self {
        let scene = Self::new();
        let manifests: Vec<Value> = APPLIED.iter().map(|it| example(it)).collect();
        let mut ordered = manifests.clone();
        ordered.sort_by_key(|it| subject(it).rank());
        scene.apply(&ordered, examples::AI_KEYS).await;
        scene
    }

    async fn export(&self, scope: &ExportScope) -> Export {
        let coder = self.coder(Promises::default(), "none");
        kinds::export(scope, &coder).await.unwrap()
    }

    /// Whether the plan of every manifest is empty.
    async fn assert_equal(&self, manifests: &[Value], secret_name: &str) {
        let coder = self.coder(support::promises(manifests), secret_name);
        for manifest in manifests {
            let assessment = subject(manifest).assess(&coder, Door::CommandLine).await;
            assert!(
                matches!(assessment.verdict, Verdict::Decided(Decision::Nothing)),
                "{manifest}: {:?} {:?}",
                assessment.verdict,
                assessment.plan
            );
        }
    }
}

/// The manifests of an export that are compared with a deployment.
fn compared(export: &Export) -> Vec<Value> {
    let manifests = export.manifests.iter().filter(|it| it.kind != "CoderControlPlane");
    manifests.map(|it| it.manifest.clone()).collect()
}

#[tokio::test]
async fn export_has_an_empty_plan_and_makes_an_equal_deployment() {
    let first = Scene::filled().await;
    let export = first.export(&scope()).await;
    assert_eq!(export.unread, []);
    let manifests = compared(&export);
    for kind in APPLIED {
        assert!(manifests.iter().any(|it| it["kind"] == kind), "{kind} is not in the export");
    }
    first.assert_equal(&manifests, "ai-provider-anthropic").await;
    let second = Scene::new();
    second.apply(&manifests, "ai-provider-anthropic").await;
    second.assert_equal(&manifests, "ai-provider-anthropic").await;
    let again = second.export(&scope()).await;
    let texts =
        |export: &Export| export.manifests.iter().map(|it| it.manifest.to_string()).collect::<Vec<_>>();
    assert_eq!(texts(&again), texts(&export), "both deployments are the same");
    let text = format!("{export:?}");
    assert!(!text.contains(KEY) && !text.contains("key-..."), "no key, and no mask of one: {text}");
    assert!(!text.contains(&memory::owner_token()));
}

#[tokio::test]
async fn fresh_deployment_exports_only_its_control_plane() {
    let export = Scene::new().export(&scope()).await;
    let kinds: Vec<&str> = export.manifests.iter().map(|it| it.kind.as_str()).collect();
    assert_eq!(kinds, ["CoderControlPlane"]);
    let plane = &export.manifests[0].manifest;
    assert_eq!(plane["spec"]["external"]["url"], "https://coder.test");
    assert_eq!(export.manifests[0].secrets[0].name, "main-credentials");
}

#[tokio::test]
async fn every_kind_is_exported_or_named() {
    let scene = Scene::filled().await;
    let export = scene.export(&scope()).await;
    for kind in api::kinds::ALL {
        let is_exported = export.manifests.iter().any(|it| it.kind == *kind);
        let is_named = export.left_out.iter().any(|it| it.what == *kind);
        // Keys are named one by one, and there is none.
        assert!(is_exported || is_named || *kind == "CoderProvisionerKey" || has_hook(kind), "{kind}");
    }
}

/// Whether the kind can be exported, so that none of its objects exist where there are no manifests.
fn has_hook(wanted: &str) -> bool {
    struct Hooks(Vec<String>);
    impl kinds::Visitor for Hooks {
        fn visit<K: engine::Kind>(&mut self) {
            use kube::Resource as _;
            if !matches!(K::LISTED, engine::pipeline::export::Listed::Nowhere(_)) {
                self.0.push(K::Manifest::kind(&()).into_owned());
            }
        }
    }
    let mut hooks = Hooks(Vec::new());
    kinds::visit(&mut hooks);
    hooks.0.iter().any(|it| it == wanted)
}

#[tokio::test]
async fn list_that_the_account_may_not_read_is_named_and_the_rest_is_exported() {
    let scene = Scene::filled().await;
    // As to an account that may not read groups.
    let wire = Wire::failing(scene.deployment, |request| {
        let is_refused = request.uri().path().ends_with("/groups");
        is_refused.then(|| Fault::Instead(Ok(answer(403, &json!({"message": "Forbidden."})))))
    });
    let coder = wire.coder();
    let export = kinds::export(&scope(), &coder).await.unwrap();
    let unread: Vec<&str> = export.unread.iter().map(|it| it.what.as_str()).collect();
    for what in ["CoderGroup of organization alpha", "CoderGroupSync of organization alpha"] {
        assert!(unread.contains(&what), "{unread:?}");
    }
    assert!(export.unread[0].why.contains("403"), "{:?}", export.unread);
    assert!(export.manifests.iter().any(|it| it.kind == "CoderRole"));
    assert_eq!(wire.writes(), [], "export only reads");
}

#[tokio::test]
async fn field_that_an_older_coder_does_not_support_is_left_out() {
    let newer = Scene::filled().await;
    let icon = |export: &Export| {
        let provider = export.manifests.iter().find(|it| it.kind == "CoderAIProvider").unwrap();
        provider.manifest["spec"]["icon"].clone()
    };
    assert_eq!(icon(&newer.export(&scope()).await), "/icon/anthropic.svg");
    let older = Scene { deployment: memory::coder_of_version("v2.35.0", newer.deployment.state()) };
    let export = older.export(&scope()).await;
    assert_eq!(icon(&export), Value::Null);
    older.assert_equal(&compared(&export), "ai-provider-anthropic").await;
}

#[tokio::test]
async fn account_that_is_no_owner_is_warned_of() {
    let scene = Scene::new();
    let owner = scene.coder(Promises::default(), "none");
    let home = owner.organizations().await.unwrap()[0].id;
    let wanted = client::users::CreateUser {
        username: "reader".to_owned(),
        email: "reader@coder.test".to_owned(),
        password: Some("correct-horse-battery-staple-2".into()),
        login_type: Some("password".to_owned()),
        organization_ids: vec![home],
        ..client::users::CreateUser::default()
    };
    owner.client().create_user(&wanted).await.unwrap();
    let password = wanted.password.clone().unwrap();
    let token = owner.client().login(&wanted.email, &password).await.unwrap();
    let reader = memory::owner(scene.deployment.transport()).with_token(token).unwrap();
    let export = kinds::export(&scope(), &Coder::new(reader, Promises::default())).await.unwrap();
    assert!(export.notes[0].contains("the account reader is no owner"), "{:?}", export.notes);
    let notes = scene.export(&scope()).await.notes;
    assert!(notes.len() == 1 && notes[0].contains("there is no kind for them"), "{notes:?}");
}

#[tokio::test]
async fn kinds_and_one_organization_can_be_chosen() {
    let scene = Scene::filled().await;
    let only = |kinds: &[&str], organization: Option<&str>| ExportScope {
        kinds: kinds.iter().map(|it| (*it).to_owned()).collect(),
        organization: organization.map(str::to_owned),
        ..scope()
    };
    let names = |export: &Export| {
        let mut kinds: Vec<String> = export.manifests.iter().map(|it| it.kind.clone()).collect();
        kinds.dedup();
        kinds
    };
    assert_eq!(names(&scene.export(&only(&["CoderGroup"], None)).await), ["CoderGroup"]);
    let alpha = scene.export(&only(&[], Some("alpha"))).await;
    assert_eq!(
        names(&alpha),
        ["CoderOrganization", "CoderRole", "CoderGroup", "CoderGroupSync", "CoderRoleSync"]
    );
    let both = scene.export(&only(&["CoderAppearance"], Some("alpha"))).await;
    assert!(both.manifests.is_empty() && both.left_out[0].why.contains("--organization"), "{both:?}");
    let coder = scene.coder(Promises::default(), "none");
    assert!(kinds::export(&only(&[], Some("nowhere")), &coder).await.is_err());
}

#[tokio::test]
async fn provisioner_keys_are_named_and_exported_on_request() {
    let scene = Scene::filled().await;
    let coder = scene.coder(Promises::default(), "none");
    let home = coder.organizations().await.unwrap().iter().find(|it| it.name == "alpha").unwrap().id;
    let tags = std::collections::BTreeMap::from([("cluster".to_owned(), "eks".to_owned())]);
    coder.client().create_provisioner_key(home, "eks", &tags).await.unwrap();
    let export = scene.export(&scope()).await;
    let is_key = |it: &&LeftOut| it.what == "provisioner key alpha/eks";
    assert!(export.left_out.iter().find(is_key).unwrap().why.contains("--kind CoderProvisionerKey"));
    let kinds = ["CoderProvisionerKey".to_owned()].into();
    let asked = scene.export(&ExportScope { kinds, ..scope() }).await;
    assert_eq!(asked.manifests[0].manifest["spec"]["tags"]["cluster"], "eks");
    assert_eq!(asked.manifests[0].secrets[0].name, "alpha-eks-provisioner-key");
    let all = scene.export(&ExportScope { has_requested: true, ..scope() }).await;
    let keys = all.manifests.iter().filter(|it| it.kind == "CoderProvisionerKey").count();
    assert!(keys == 1 && all.manifests.len() == export.manifests.len() + 1, "{all:?}");
}

#[tokio::test]
async fn missing_secret_leaves_other_fields_comparable_where_that_is_asked_for() {
    let scene = Scene::filled().await;
    let export = scene.export(&scope()).await;
    let provider = export.manifests.iter().find(|it| it.kind == "CoderAIProvider").unwrap().manifest.clone();
    let coder = scene.coder(Promises::default(), "another");
    let assess =
        async |manifest: &Value, coder: &Coder| subject(manifest).assess(coder, Door::CommandLine).await;
    let waits = assess(&provider, &coder).await;
    assert!(matches!(waits.verdict, Verdict::Stopped(_)), "{:?}", waits.verdict);
    let skipping = coder.skipping_missing_secrets();
    let equal = assess(&provider, &skipping).await;
    assert!(matches!(equal.verdict, Verdict::Decided(Decision::Nothing)), "{:?}", equal.verdict);
    assert!(equal.unknown.unwrap().message.contains("ai-provider-anthropic"));
    let mut other = provider;
    other["spec"]["enabled"] = json!(false);
    let differs = assess(&other, &skipping).await;
    assert!(matches!(differs.verdict, Verdict::Decided(Decision::Apply)) && differs.unknown.is_some());

    // A Secret that exists and may not be used is not missing.
    let cluster = support::cluster();
    let mut refused = secret("ai-provider-anthropic", &json!({"key": KEY}));
    refused["metadata"]["annotations"] = json!({api::annotation::PROVISIONER_KEY: "damaged"});
    cluster.set(&refused);
    let reading = Coder::new(memory::owner(scene.deployment.transport()), Promises::default());
    let reading = reading.reading(Arc::new(cluster)).skipping_missing_secrets();
    let waits = assess(&other, &reading).await;
    assert!(
        matches!(&waits.verdict, Verdict::Stopped(Outcome::Blocked(it)) if it.reason == Reason::SecretNotAllowed),
        "{:?}",
        waits.verdict
    );
}
