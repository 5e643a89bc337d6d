//! Everything that anybody can read of what the operator did, searched for what nobody may read.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use kube::{
    Api,
    api::{DynamicObject, ListParams},
    discovery::{ApiGroup, Discovery, Scope, verbs},
};
use tokio::time::timeout;

use super::stage::{LIMIT, Stage};

/// Every object of the namespace but the Secrets themselves, of whatever kind, every line, and every figure.
pub(super) async fn told(stage: &Stage) -> String {
    // A definition of another test may go at any moment, also between its group and what is in it.
    let discovery = async {
        loop {
            if let Ok(found) = Discovery::new(stage.client.clone()).run().await {
                return found;
            }
        }
    };
    let discovery = timeout(LIMIT, discovery).await.unwrap();
    let mut told = String::new();
    let mut kinds = Vec::new();
    for (resource, able) in discovery.groups().flat_map(ApiGroup::recommended_resources) {
        let is_secret = resource.group.is_empty() && resource.kind == "Secret";
        if able.scope != Scope::Namespaced || !able.supports_operation(verbs::LIST) || is_secret {
            continue;
        }
        let objects =
            Api::<DynamicObject>::namespaced_with(stage.client.clone(), &stage.namespace, &resource);
        let Ok(found) = objects.list(&ListParams::default()).await else { continue };
        if !found.items.is_empty() {
            kinds.push(resource.kind);
        }
        told += &serde_json::to_string(&found.items).unwrap();
    }
    for kind in ["CoderControlPlane", "Event"] {
        assert!(kinds.iter().any(|it| it == kind), "nothing was looked at but {kinds:?}");
    }
    let (_, metrics) = stage.operator.get("/metrics").await.unwrap();
    format!("{told}\n{metrics}\n{:?}", stage.operator.said())
}

/// None of these is in a text: not whole, not as a Secret would write it, and of a token not its secret half alone.
pub(super) fn hides(told: &str, what: &str, secret: &[u8]) {
    let mut spellings = vec![BASE64_STANDARD.encode(secret)];
    match std::str::from_utf8(secret) {
        Ok(text) => {
            spellings.push(text.to_owned());
            let half = text.split_once('-').map(|(_, half)| half.to_owned());
            spellings.extend(half.filter(|it| it.len() >= 12));
            // Claims alone say whose a licence is.
            spellings.extend(text.split('.').nth(1).filter(|it| it.len() > 20).map(str::to_owned));
        }
        Err(_) => spellings.push(base16ct::lower::encode_string(secret)),
    }
    for spelling in spellings {
        assert!(spelling.len() >= 8, "{what} is too short to be searched for");
        if let Some(at) = told.find(&spelling) {
            let around: String = told.get(..at).unwrap_or_default().chars().rev().take(200).collect();
            panic!("{what} was told after: {}", around.chars().rev().collect::<String>());
        }
    }
}
