//! Which Secrets pods must not be given: those that the operator keeps for itself or for another object.

use engine::own_secrets;
use kube::Client;

use super::{key_holders, secret_cache::SecretCache};

/// A reference to a Secret that pods must not be given.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) secret: String,
    pub(super) message: String,
}

/// Returns the first of these Secrets that pods of the object with that uid must not be given. A Secret that does not exist
/// is not refused.
pub(super) async fn refused(
    client: &Client,
    known: &SecretCache,
    namespace: &str,
    names: impl IntoIterator<Item = String>,
    uid: Option<&str>,
) -> Result<Option<Refused>, kube::Error> {
    for secret in names {
        let Some(found) = known.metadata(client, namespace, &secret).await? else { continue };
        let Some(message) = own_secrets::refusal(&found, uid) else { continue };
        // A key that its holder left behind is used as every other Secret.
        if uid.is_some()
            && let Some(holder) = own_secrets::recorded_holder(&found)
            && key_holders::find(client, namespace, &secret, &holder).await?.is_none()
        {
            continue;
        }
        return Ok(Some(Refused { secret, message }));
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use axum::{
        Router,
        http::{Uri, header::CONTENT_TYPE},
    };
    use serde_json::{Value, json};

    use super::*;

    /// A cluster with these provisioner keys.
    async fn cluster(keys: Value) -> Client {
        let answer = move |uri: Uri| {
            let body = match uri.path().rsplit('/').next() {
                Some("coderprovisionerkeys") => json!({"metadata": {}, "items": keys}),
                _ => json!({"metadata": {}, "items": []}),
            };
            async move { ([(CONTENT_TYPE, "application/json")], body.to_string()) }
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        tokio::spawn(axum::serve(listener, Router::new().fallback(answer)).into_future());
        Client::try_from(kube::Config::new(url)).unwrap()
    }

    #[tokio::test]
    async fn key_that_its_holder_left_behind_may_be_given_to_pods() {
        let annotations = json!({"coder.com/provisioner-key": r#"{"holder":"u"}"#});
        let metadata = json!({"name": "left", "namespace": "n", "annotations": annotations});
        let known = SecretCache::with(&serde_json::from_value(metadata).unwrap());
        let asked = async |client: &Client, uid| {
            let found = refused(client, &known, "n", ["left".to_owned()], uid).await.unwrap();
            found.map(|it| it.secret)
        };
        let holder = json!({"metadata": {"name": "alpha", "namespace": "n", "uid": "u"},
            "spec": {"controlPlaneRef": {"name": "main"}, "secretName": "left"}});
        let held = cluster(json!([holder])).await;
        assert_eq!(asked(&held, Some("v")).await.as_deref(), Some("left"));
        assert_eq!(asked(&held, Some("u")).await, None);
        let left = cluster(json!([])).await;
        assert_eq!(asked(&left, Some("v")).await, None);
        assert_eq!(asked(&left, None).await.as_deref(), Some("left"), "the pod of a Job owns no Secret");
    }
}
