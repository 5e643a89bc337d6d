//! The operator's own token for a managed control plane, before anything is asked of coderd, and the token of a supplied account.

use std::sync::Arc;

use api::{CoderControlPlane, Reason, annotation};
use client::users::CreateFirstUser;
use engine::{
    Blocked, Coder, Door, Impact, Object,
    coder::{Beside, TokenMemory, endpoint::Credentials},
    kinds::control_plane::{
        access::{AccessContext, AccessRights, OperatorAccess, admin_job, own_token},
        facts::PlaneContext,
        identity::ReachedDeployment,
    },
    secrets::FingerprintKeys,
};
use kube::ResourceExt as _;
use serde_json::{Value, json};
use sim::MemoryCluster;
use uuid::Uuid;

use crate::{
    memory, support,
    wire::{Fault, Wire, answer},
};

const DEPLOYMENT: Uuid = Uuid::from_u128(1);
const EMAIL: &str = "owner@coder.test";
const PASSWORD: &str = "correct-horse-battery-staple-1";

fn plane(spec: &Value) -> CoderControlPlane {
    let plane = json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderControlPlane", "spec": spec,
        "metadata": {"name": "main", "namespace": "platform", "uid": "u"}});
    serde_json::from_value(plane).unwrap()
}

fn secret(name: &str, annotations: &Value, data: &Value) -> Value {
    let owner =
        json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderControlPlane", "name": "main", "uid": "u"});
    json!({"apiVersion": "v1", "kind": "Secret", "data": data, "metadata": {"name": name, "namespace": "platform",
        "annotations": annotations, "ownerReferences": [owner]}})
}

/// Why there is no token. Nothing was written, and nothing was asked of coderd.
async fn refused(spec: &Value, cluster: &MemoryCluster) -> Blocked {
    let wire = Wire::new(memory::licensed());
    let (tokens, fingerprints) = (TokenMemory::default(), FingerprintKeys::default());
    let objects = PlaneContext { cluster, allowed_rules: &[], fingerprints: Some(&fingerprints) };
    let (client, before) = (wire.client(), cluster.writes());
    let reached = ReachedDeployment { client: &client, deployment: DEPLOYMENT };
    let context = AccessContext { objects, tokens: &tokens };
    let plane = plane(spec);
    let refused = Box::pin(own_token(&plane, reached, AccessRights::of(&plane), &context)).await.unwrap_err();
    assert_eq!((cluster.writes(), wire.asked().len()), (before, 0));
    refused
}

#[tokio::test]
async fn observed_control_plane_gets_no_account() {
    let refused = refused(&json!({"mode": "Observe"}), &support::cluster()).await;
    assert_eq!(refused.reason, Reason::Observed);
}

#[tokio::test]
async fn token_of_another_deployment_is_not_used() {
    let cluster = support::cluster();
    let record = json!({"deploymentID": Uuid::from_u128(2)}).to_string();
    cluster.set(&secret(
        "main-operator-token",
        &json!({annotation::OPERATOR_ACCESS: record}),
        &json!({"token": "aWQtaHVudGVyMg=="}),
    ));
    let refused = refused(&json!({}), &cluster).await;
    assert_eq!(refused.reason, Reason::DeploymentChanged);
    assert!(refused.message.ends_with(&DEPLOYMENT.to_string()), "{refused:?}");
}

#[tokio::test]
async fn account_that_a_job_may_have_made_is_named_unless_it_is_used() {
    let cluster = support::cluster();
    let left = |account| {
        let cluster = &cluster;
        async move { admin_job::left(&plane(&json!({})), account, cluster).await.unwrap() }
    };
    assert_eq!(left(None).await, None);
    let account = json!({"username": "b3A=", "email": "YUBi", "password": "aHVudGVyMg=="});
    cluster.set(&secret("main-create-admin-user", &json!({}), &account));
    let note = left(None).await.unwrap();
    assert!(note.starts_with("the account op, if Job main-create-admin-user created it"), "{note}");
    assert_eq!(left(Some("op")).await, None);
}

/// A deployment whose owner signs in with e-mail and password.
async fn with_owner() -> sim::Coder {
    let coder = sim::Coder::new(sim::Options::new(Arc::new(memory::start)));
    let (email, username, password) = (EMAIL.to_owned(), "owner".to_owned(), PASSWORD.into());
    let first = CreateFirstUser { email, username, password };
    memory::owner(coder.transport()).anonymous().create_first_user(&first).await.unwrap();
    coder
}

/// What tokens are minted with, and where they are kept.
fn with_account(wire: &Arc<Wire>, cluster: &Arc<MemoryCluster>, tokens: &Arc<TokenMemory>) -> Coder {
    let beside = Beside {
        cluster: Arc::clone(cluster) as _,
        references: Arc::clone(cluster) as _,
        memory: Arc::default(),
        writes_status: true,
        fingerprints: None,
        allowed_rules: None,
        tokens: Arc::clone(tokens),
    };
    let (email, password) = (EMAIL.to_owned(), PASSWORD.into());
    wire.coder().beside(beside).with_credentials(Credentials::Account { email, password })
}

#[tokio::test]
async fn token_of_a_supplied_account_is_minted_by_a_step_of_upkeep() {
    for policy in [json!({}), json!({"approval": "Manual"}), json!({"mode": "Observe"})] {
        let (wire, cluster) = (Wire::to(with_owner().await), Arc::new(support::cluster()));
        let coder = with_account(&wire, &cluster, &Arc::default());
        let mut spec =
            json!({"external": {"url": "https://coder.test", "credentialsSecretRef": {"name": "account"}}});
        spec.as_object_mut().unwrap().extend(policy.as_object().unwrap().clone());
        let mut access = Object::<OperatorAccess>::new(plane(&spec));
        let assessment = Box::pin(access.assess(&coder, Door::Controller)).await;
        let impacts: Vec<Impact> = assessment.plan.steps.iter().map(|it| it.impact).collect();
        assert_eq!(impacts, [Impact::Upkeep], "{policy}");
        assert_eq!((cluster.writes(), wire.writes().len()), (0, 0), "planning writes nothing");
        assert!(access.observed().unwrap().token().is_none());
        let report = Box::pin(access.carry_out(&assessment, &coder)).await;
        assert!(report.outcome.is_ready(), "{policy}: {report:?}");
        // The token is checked once before it counts as good.
        let assessment = Box::pin(access.assess(&coder, Door::Controller)).await;
        assert!(access.observed().unwrap().token().is_some(), "{policy}");
        Box::pin(access.carry_out(&assessment, &coder)).await;
        let assessment = Box::pin(access.assess(&coder, Door::Controller)).await;
        assert!(assessment.plan.is_empty(), "{policy}");
        let minted = wire.deployment.read(|it| {
            it.api_keys.values().filter(|it| it.token_name.starts_with("coder-operator-")).count()
        });
        assert_eq!(minted, 1, "{policy}");
    }
}

#[tokio::test]
async fn token_of_a_supplied_account_is_used_at_its_deployment_only() {
    let (wire, cluster, tokens) =
        (Wire::to(with_owner().await), Arc::new(support::cluster()), Arc::<TokenMemory>::default());
    let external = json!({"url": "https://coder.test", "credentialsSecretRef": {"name": "account"}});
    let mut manifest = plane(&json!({"external": external}));
    let mut access = Object::<OperatorAccess>::new(manifest.clone());
    let coder = with_account(&wire, &cluster, &tokens);
    let assessment = Box::pin(access.assess(&coder, Door::Controller)).await;
    assert!(Box::pin(access.carry_out(&assessment, &coder)).await.outcome.is_ready());

    // Another deployment answers there, and a person accepts that.
    let other = with_owner().await;
    let id = Uuid::from_u128(7);
    other.edit(|it| it.deployment_id = id);
    manifest.annotations_mut().insert(annotation::ACCEPT_DEPLOYMENT.to_owned(), id.to_string());
    let wire = Wire::to(other);
    let coder = with_account(&wire, &cluster, &tokens);
    let mut access = Object::<OperatorAccess>::new(manifest);
    let assessment = Box::pin(access.assess(&coder, Door::Controller)).await;
    assert!(access.observed().unwrap().token().is_none(), "the token of the first one");
    assert_eq!(assessment.plan.steps.len(), 1, "{assessment:?}");
}

#[tokio::test]
async fn token_of_an_earlier_password_does_not_hide_a_failure() {
    let (deployment, cluster, tokens) =
        (with_owner().await, Arc::new(support::cluster()), Arc::<TokenMemory>::default());
    let external = json!({"url": "https://coder.test", "credentialsSecretRef": {"name": "account"}});
    let mut access = Object::<OperatorAccess>::new(plane(&json!({"external": external})));
    let coder = with_account(&Wire::to(deployment.clone()), &cluster, &tokens);
    let assessment = Box::pin(access.assess(&coder, Door::Controller)).await;
    assert!(Box::pin(access.carry_out(&assessment, &coder)).await.outcome.is_ready());

    let asks_whose_it_is = |it: &http::Request<_>| it.uri().path() == "/api/v2/users/me";
    let busy = Wire::failing(deployment, move |it| {
        asks_whose_it_is(it).then(|| Fault::Instead(Ok(answer(503, &json!({"message": "busy"})))))
    });
    let credentials = Credentials::Account { email: EMAIL.to_owned(), password: "another-one-1".into() };
    let coder = with_account(&busy, &cluster, &tokens).with_credentials(credentials);
    let assessment = Box::pin(access.assess(&coder, Door::Controller)).await;
    let report = Box::pin(access.carry_out(&assessment, &coder)).await;
    assert!(!report.outcome.is_ready() && report.done == 0, "{report:?}");
    assert_eq!(report.outcome.reason(), Reason::Unreachable, "{report:?}");
}
