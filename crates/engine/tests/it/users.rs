//! Accounts at a deployment in memory: passwords from Secrets, what the identity provider manages, deletions, and what the list of
//! all accounts costs.

use std::sync::Arc;

use api::{CoderUser, Reason};
use engine::{
    Assessment, Blocked, Coder, Door, Kind as _, Outcome, Ref, Report, coder::Beside, kinds::user::User,
};
use serde_json::{Value, json};
use sim::{
    MemoryCluster,
    state::{State, User as Account, Workspace},
};
use uuid::Uuid;

use crate::{
    memory,
    support::{self, holding, secret, subject},
    wire::Wire,
};

const PASSWORD: &str = "Bed-person-31-cases!";
const OTHER_PASSWORD: &str = "Bed-person-47-cases!";

/// A deployment, and the Secrets beside it.
#[derive(Debug)]
struct Scene {
    wire: Arc<Wire>,
    cluster: Arc<MemoryCluster>,
}

impl Scene {
    fn with(state: State) -> Self {
        let cluster = Arc::new(support::cluster());
        cluster.set(&secret("people", &json!({"bob": PASSWORD})));
        Self { wire: Wire::new(state), cluster }
    }

    fn coder(&self) -> Coder {
        self.wire.coder().beside(Beside {
            cluster: Arc::clone(&self.cluster) as _,
            references: Arc::clone(&self.cluster) as _,
            memory: Arc::default(),
            writes_status: true,
            fingerprints: None,
            allowed_rules: None,
            tokens: Arc::default(),
        })
    }

    async fn reconcile(&self, manifest: &Value) -> (Assessment, Report) {
        let coder = self.coder();
        let mut subject = subject(manifest);
        let assessment = subject.assess(&coder, Door::Controller).await;
        let report = subject.carry_out(&assessment, &coder).await;
        (assessment, report)
    }

    async fn delete(&self, manifest: &Value) -> Outcome {
        let coder = self.coder();
        let mut subject = subject(manifest);
        let assessment = subject.assess_deletion(&coder).await;
        subject.carry_out(&assessment, &coder).await.outcome
    }

    /// What was written since the last time.
    fn writes(&self) -> Vec<String> {
        self.wire.asked().into_iter().filter(|it| !it.starts_with("GET ")).collect()
    }
}

/// A person of the deployment.
fn person(state: &State, number: u128, username: &str, login_type: &str) -> Account {
    let owner = state.users.values().next().unwrap().clone();
    Account {
        id: Uuid::from_u128(number),
        username: username.to_owned(),
        email: format!("{username}@coder.test"),
        login_type: login_type.to_owned(),
        roles: Vec::new(),
        password: None,
        ..owner
    }
}

/// A deployment with a person, and a manifest that holds that person.
fn one_person(login_type: &str, more: &Value) -> (State, Value) {
    let mut state = memory::licensed();
    let robin = person(&state, 7, "robin", login_type);
    let manifest = holding(&manifest("robin", more), robin.id);
    state.users.insert(robin.id, robin);
    (state, manifest)
}

fn manifest(name: &str, more: &Value) -> Value {
    let mut manifest = json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderUser",
        "metadata": {"name": name, "namespace": "platform"},
        "spec": {"controlPlaneRef": {"name": "main"}, "email": format!("{name}@coder.test")}});
    manifest["spec"].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    manifest
}

fn blocked(outcome: Outcome) -> Blocked {
    match outcome {
        Outcome::Blocked(blocked) | Outcome::Unsupported(blocked) => blocked,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn roles_that_the_identity_provider_manages_are_not_written() {
    let (mut state, manifest) = one_person("oidc", &json!({"roles": ["auditor"], "suspended": true}));
    state.server_config = Some(json!({"config": {}, "options":
        [{"env": "CODER_OIDC_USER_ROLE_FIELD", "value_source": "env"}]}));
    let scene = Scene::with(state);
    for attempt in ["first", "second"] {
        let waiting = blocked(scene.reconcile(&manifest).await.1.outcome);
        assert_eq!(waiting.reason, Reason::ManagedByProvider, "{attempt}");
        assert!(waiting.message.contains("remove spec.roles"), "{}", waiting.message);
    }
    // Everything else is applied, once.
    let path = format!("PUT /api/v2/users/{}/status/suspend", Uuid::from_u128(7));
    assert_eq!(scene.writes(), [path]);
    let roles = scene.wire.deployment.read(|it| it.users[&Uuid::from_u128(7)].roles.clone());
    assert_eq!(roles, Vec::<String>::new());
}

#[tokio::test]
async fn roles_of_other_people_are_written_beside_an_identity_provider() {
    let (mut state, manifest) = one_person("password", &json!({"roles": ["auditor"]}));
    state.server_config = Some(json!({"config": {}, "options":
        [{"env": "CODER_OIDC_USER_ROLE_FIELD", "value_source": "env"}]}));
    let scene = Scene::with(state);
    let (_, report) = scene.reconcile(&manifest).await;
    assert!(matches!(report.outcome, Outcome::Applied), "{:?}", report.outcome);
    assert!(!scene.wire.asked().iter().any(|it| it.contains("/deployment/config")));
}

#[tokio::test]
async fn membership_that_organization_sync_manages_is_reported() {
    let (mut state, manifest) = one_person("oidc", &json!({"organizations": ["default"]}));
    state.organization_sync =
        Some(json!({"field": "groups", "mapping": {}, "organization_assign_default": false}));
    let mut elsewhere = state.clone();
    let scene = Scene::with(state);
    let waiting = blocked(scene.reconcile(&manifest).await.1.outcome);
    assert_eq!(waiting.reason, Reason::ManagedByProvider);
    assert!(waiting.message.contains("remove spec.organizations"), "{}", waiting.message);
    assert_eq!(scene.writes(), [] as [&str; 0]);
    // Nor is anybody removed from an organization into which the provider has put them.
    let home = elsewhere.organizations.values_mut().find(|it| it.is_default).unwrap();
    let membership = home.members.values().next().unwrap().clone();
    home.members.insert(Uuid::from_u128(7), membership);
    let (id, name) = (Uuid::from_u128(8), "beta".to_owned());
    let other = sim::state::Organization { id, name, is_default: false, ..home.clone() };
    elsewhere.organizations.insert(id, other);
    let scene = Scene::with(elsewhere);
    let waiting = blocked(scene.reconcile(&manifest).await.1.outcome);
    assert_eq!(waiting.reason, Reason::ManagedByProvider);
    assert_eq!(scene.writes(), [] as [&str; 0]);
}

#[tokio::test]
async fn password_is_sent_once_and_shown_nowhere() {
    let scene = Scene::with(memory::licensed());
    let bob = manifest("bob", &json!({"passwordSecretRef": {"name": "people", "key": "bob"}}));
    let (assessment, report) = scene.reconcile(&bob).await;
    assert!(matches!(report.outcome, Outcome::Applied), "{:?}", report.outcome);
    let told = format!("{assessment:?} {report:?} {:?}", scene.cluster.all("CoderUser"));
    assert!(!told.contains(PASSWORD), "{told}");
    let signs_in = async |password: &str| {
        let client = memory::owner(scene.wire.deployment.transport());
        client.login("bob@coder.test", &password.into()).await.is_ok()
    };
    assert!(signs_in(PASSWORD).await);

    // A Secret with another password, or none, changes an account that is there in no way.
    let held = holding(&bob, report.id.unwrap());
    scene.wire.asked();
    scene.cluster.set(&secret("people", &json!({"bob": OTHER_PASSWORD})));
    for _ in 0..2 {
        let (_, report) = scene.reconcile(&held).await;
        assert!(matches!(report.outcome, Outcome::Equal), "{:?}", report.outcome);
        scene.cluster.remove("Secret", "people");
    }
    assert_eq!(scene.writes(), Vec::<String>::new());
    assert!(signs_in(PASSWORD).await && !signs_in(OTHER_PASSWORD).await);
}

#[tokio::test]
async fn deleted_person_is_created_again_with_the_password_of_the_secret() {
    let (mut state, manifest) =
        one_person("password", &json!({"passwordSecretRef": {"name": "people", "key": "bob"}}));
    state.users.retain(|_, it| it.username != "robin");
    let scene = Scene::with(state);
    scene.cluster.remove("Secret", "people");
    let (_, report) = scene.reconcile(&manifest).await;
    assert_eq!(blocked(report.outcome).reason, Reason::SecretNotFound);
    let declared: CoderUser = serde_json::from_value(manifest.clone()).unwrap();
    assert!(
        User::refs(&declared).contains(&Ref::Secret("people".to_owned())),
        "the Secret wakes the manifest"
    );
    scene.cluster.set(&secret("people", &json!({"bob": PASSWORD})));
    let (_, report) = scene.reconcile(&manifest).await;
    assert!(matches!(report.outcome, Outcome::Applied), "{:?}", report.outcome);
    let client = memory::owner(scene.wire.deployment.transport());
    client.login("robin@coder.test", &PASSWORD.into()).await.unwrap();
}

#[tokio::test]
async fn person_with_workspaces_is_not_deleted() {
    let (mut state, manifest) = one_person("password", &json!({"deletionPolicy": "Delete"}));
    let workspace = Workspace {
        name: "big-build".to_owned(),
        owner_id: Uuid::from_u128(7),
        template_id: Uuid::nil(),
        ..Workspace::default()
    };
    state.workspaces.insert(Uuid::from_u128(8), workspace);
    let scene = Scene::with(state.clone());
    let waiting = blocked(scene.delete(&manifest).await);
    assert_eq!(waiting.reason, Reason::InUse);
    assert!(waiting.message.contains("robin owns workspaces (big-build)"), "{}", waiting.message);
    assert_eq!(scene.writes(), Vec::<String>::new());
    // Without the workspaces the same manifest deletes the person, and without the policy none does.
    state.workspaces.clear();
    let scene = Scene::with(state);
    let mut retained = manifest.clone();
    retained["spec"].as_object_mut().unwrap().remove("deletionPolicy");
    scene.delete(&retained).await;
    assert_eq!(scene.writes(), Vec::<String>::new());
    let outcome = scene.delete(&manifest).await;
    assert!(matches!(outcome, Outcome::Applied), "{outcome:?}");
    assert!(scene.wire.deployment.read(|it| it.users[&Uuid::from_u128(7)].deleted));
}

/// The requests that a look at manifests costs that are equal to the deployment.
async fn requests_of(state: State, manifests: &[Value]) -> Vec<String> {
    let scene = Scene::with(state);
    let coder = scene.coder();
    for manifest in manifests {
        let assessment = subject(manifest).assess(&coder, Door::Controller).await;
        assert!(assessment.plan.steps.is_empty(), "{:?}", assessment.plan);
    }
    scene.wire.asked()
}

#[tokio::test]
async fn twice_as_many_users_need_the_same_requests() {
    let mut costs = Vec::new();
    for count in [40_u128, 80] {
        let mut state = memory::licensed();
        let mut manifests = Vec::new();
        for number in 1..=count {
            let name = format!("user-{number}");
            let user = person(&state, number, &name, "password");
            manifests.push(holding(&manifest(&name, &json!({"roles": [], "suspended": false})), user.id));
            state.users.insert(user.id, user);
        }
        costs.push(requests_of(state, &manifests).await);
    }
    assert_eq!(costs[0], costs[1]);
    assert!(costs[0].len() <= 5, "{:?}", costs[0]);
}

#[tokio::test]
async fn twice_as_many_roles_need_the_same_requests() {
    let mut costs = Vec::new();
    for count in [20_u128, 40] {
        let mut state = memory::licensed();
        let organization_id = state.default_organization;
        let mut manifests = Vec::new();
        for number in 1..=count {
            let name = format!("role-{number}");
            let permission = sim::state::Permission {
                negate: false,
                resource_type: "template".to_owned(),
                action: "read".to_owned(),
            };
            state.custom_roles.push(sim::state::CustomRole {
                id: Uuid::from_u128(number),
                organization_id,
                name: name.clone(),
                display_name: String::new(),
                permissions: vec![permission],
            });
            let manifest = json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderRole",
                "metadata": {"name": name, "namespace": "platform"},
                "spec": {"controlPlaneRef": {"name": "main"}, "adoptionPolicy": "Adopt",
                    "permissions": [{"resource": "template", "actions": ["read"]}]}});
            manifests.push(manifest);
        }
        costs.push(requests_of(state, &manifests).await);
    }
    assert_eq!(costs[0], costs[1]);
    assert!(costs[0].len() <= 5, "{:?}", costs[0]);
}
