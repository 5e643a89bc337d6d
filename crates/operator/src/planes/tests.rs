//! What becomes of a client when its origin changes.

use client::{ClientOptions, HttpOptions, HttpTransport};
use engine::coder::endpoint::declared;
use secrecy::SecretString;
use serde_json::json;

use super::*;
use crate::{cli::file_cluster::FileCluster, cluster::port::KubeCluster};

/// A cluster whose Secret `coder` has this token.
fn with_token(token: &str) -> FileCluster {
    let values = [("token".to_owned(), token.as_bytes().to_vec().into())];
    FileCluster { given: [("coder".to_owned(), values.into())].into(), ..FileCluster::default() }
}

async fn origin(token: &'static str) -> DeclaredOrigin {
    let external = json!({"url": "http://coder.test", "credentialsSecretRef": {"name": "coder"}});
    let plane = json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderControlPlane",
        "metadata": {"name": "main"}, "spec": {"external": external}});
    declared(&serde_json::from_value(plane).unwrap(), &with_token(token)).await.origin()
}

async fn plane(token: &'static str) -> Plane {
    let transport = Arc::new(HttpTransport::new(HttpOptions::default()).unwrap());
    // Nobody listens there.
    let url = "http://127.0.0.1:1".parse().unwrap();
    let client =
        Client::new(ClientOptions { url, token: Some(SecretString::from(token)), transport }).unwrap();
    let nobody = kube::Client::try_from(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
    let cluster = Arc::new(KubeCluster::for_command(nobody, |_| {}));
    let made_from = Sources {
        declared: origin(token).await,
        place: Origin::new(&[b"place"]),
        origin: Origin::new(&[b"place", token.as_bytes()]),
    };
    Plane::new(
        made_from,
        &client,
        Uuid::nil(),
        (
            Beside {
                cluster,
                references: Arc::new(with_token(token)),
                memory: Arc::default(),
                writes_status: true,
                fingerprints: None,
                allowed_rules: None,
                tokens: Arc::default(),
            },
            None,
        ),
    )
}

fn name() -> PlaneName {
    ("platform".to_owned(), "main".to_owned())
}

fn blocked(planes: &Planes) -> Option<Reason> {
    match planes.standing(&name())? {
        Standing::Blocked(reason) => Some(reason),
        Standing::Usable(_) => None,
    }
}

#[tokio::test]
async fn a_client_of_another_origin_is_revoked_in_every_hand_until_the_new_one_is_proved() {
    let planes = Planes::new(Arc::default());
    planes.admit(&name(), plane("one").await);
    let held = planes.last_known(&name()).unwrap();
    planes.declare(&name(), &origin("one").await);
    assert_eq!(blocked(&planes), None, "nothing has changed");
    planes.declare(&name(), &origin("two").await);
    assert_eq!(blocked(&planes), Some(Reason::OriginChanged));
    assert!(planes.last_known(&name()).is_none(), "not for deletions either");
    let refused = held.client().list_organizations().await.unwrap_err();
    assert!(refused.words().contains("not sent: "), "{refused}");
    planes.admit(&name(), plane("two").await);
    assert_eq!(blocked(&planes), None);
    let sent = planes.last_known(&name()).unwrap().client().list_organizations().await.unwrap_err();
    assert!(!sent.words().contains("not sent: "), "{sent}");
}

#[tokio::test]
async fn another_deployment_revokes_the_client_and_a_reason_is_restated_only_where_there_is_one() {
    let planes = Planes::new(Arc::default());
    planes.admit(&name(), plane("one").await);
    planes.restate(&name(), Reason::Unreachable);
    assert_eq!(blocked(&planes), None, "one that is merely silent stays usable");
    planes.block(&name(), Reason::SecretNotFound, true);
    planes.restate(&name(), Reason::Unreachable);
    assert_eq!(blocked(&planes), Some(Reason::Unreachable));
    planes.answers_as(&name(), Uuid::nil());
    assert!(planes.last_known(&name()).is_some());
    planes.answers_as(&name(), Uuid::max());
    assert!(planes.last_known(&name()).is_none());
}

#[tokio::test]
async fn a_deletion_does_not_put_an_older_client_in_the_place_of_a_newer_one() {
    let planes = Planes::new(Arc::default());
    planes.admit(&name(), plane("two").await);
    planes.remember(&name(), plane("one").await);
    assert!(planes.last_known(&name()).unwrap().is_declared_as(&origin("two").await));
    assert_eq!(blocked(&planes), None);
}

#[tokio::test]
async fn client_of_an_undecodable_control_plane_is_revoked_until_it_is_proved_again() {
    let planes = Planes::new(Arc::default());
    planes.admit(&name(), plane("one").await);
    let held = planes.last_known(&name()).unwrap();
    planes.set_undecodable(&name(), true);
    assert_eq!(blocked(&planes), Some(Reason::Undecodable));
    let refused = held.client().list_organizations().await.unwrap_err();
    assert!(refused.words().contains("not sent: "), "{refused}");
    // A reconcile of the version before ends.
    planes.admit(&name(), plane("one").await);
    assert!(planes.last_known(&name()).is_none());
    let remembered = planes.remember(&name(), plane("one").await);
    assert!(remembered.client().list_organizations().await.unwrap_err().words().contains("not sent: "));
    planes.set_undecodable(&name(), false);
    assert_eq!(blocked(&planes), Some(Reason::Undecodable), "it is not proved yet");
    planes.admit(&name(), plane("one").await);
    assert_eq!(blocked(&planes), None);
}

#[tokio::test]
async fn rate_limiter_of_an_account_outlives_its_clients() {
    let planes = Planes::new(Arc::default());
    let (deployment, account) = (Uuid::from_u128(1), Uuid::from_u128(2));
    let client = plane("one").await.client().with_rate_limiter(planes.rate_limiter(deployment, account));
    // Nobody listens there, and the attempt counts all the same.
    client.list_organizations().await.unwrap_err();
    drop(client);
    assert!(!planes.rate_limiter(deployment, account).is_as_new());
    assert!(planes.rate_limiter(Uuid::from_u128(3), account).is_as_new(), "another deployment");
    assert!(planes.rate_limiter(deployment, Uuid::from_u128(3)).is_as_new(), "another account");
    assert_eq!(planes.rate_limiters.lock().unwrap().len(), 2, "those that are as new are dropped");
}
