//! Edits: what may change and what may not.

use serde_json::{Value, json};

use super::cluster::{Cluster, refusal};

fn with(plane: &str, further: &Value) -> Value {
    let mut spec = further.clone();
    spec["controlPlaneRef"] = json!({"name": plane});
    spec
}

/// The fields that a kind needs beside its control plane.
fn required(kind: &str) -> Value {
    match kind {
        "CoderAIModel" => json!({"provider": "anthropic", "model": "claude"}),
        "CoderAIProvider" => json!({"type": "anthropic"}),
        "CoderUser" => json!({"email": "alice@example.com"}),
        _ => json!({}),
    }
}

#[tokio::test]
async fn ai_provider_keeps_its_name_and_its_type() {
    let cluster = Cluster::new("ai-providers").await;
    let spec = |more: Value| with("main", &more);
    cluster.apply_spec("CoderAIProvider", "one", &spec(json!({"type": "openai"}))).await.unwrap();
    // To say what was meant anyhow is no change.
    cluster
        .apply_spec("CoderAIProvider", "one", &spec(json!({"type": "openai", "name": "one"})))
        .await
        .unwrap();
    for (other, field, words) in [
        (json!({"type": "google", "name": "one"}), "spec.type: ", "cannot change the type"),
        (json!({"type": "openai", "name": "two"}), "spec.name: ", "cannot rename"),
    ] {
        let said = refusal(cluster.apply_spec("CoderAIProvider", "one", &spec(other)).await);
        assert!(said.contains(field) && said.contains(words), "{said}");
    }
}

#[tokio::test]
async fn user_keeps_address_login_type_and_nature() {
    let cluster = Cluster::new("users").await;
    let spec = |more: Value| with("main", &more);
    let alice = json!({"email": "alice@example.com", "loginType": "oidc"});
    cluster.apply_spec("CoderUser", "alice", &spec(alice)).await.unwrap();
    // A user can be renamed.
    let renamed = json!({"email": "alice@example.com", "loginType": "oidc", "username": "alicia"});
    cluster.apply_spec("CoderUser", "alice", &spec(renamed)).await.unwrap();
    for (other, field) in [
        (json!({"email": "other@example.com", "loginType": "oidc"}), "spec.email: "),
        (json!({"email": "alice@example.com", "loginType": "github"}), "spec.loginType: "),
        (json!({"email": "alice@example.com"}), "spec.loginType: "),
        (json!({"serviceAccount": true}), "spec.serviceAccount: "),
    ] {
        let said = refusal(cluster.apply_spec("CoderUser", "alice", &spec(other)).await);
        assert!(said.contains(field) && said.contains("cannot be changed"), "{said}");
    }
}

#[tokio::test]
async fn nothing_moves_to_another_control_plane() {
    let cluster = Cluster::new("planes").await;
    for kind in api::kinds::APP_STATE {
        let required = required(kind);
        cluster.apply_spec(kind, "object", &with("main", &required)).await.unwrap();
        let said = refusal(cluster.apply_spec(kind, "object", &with("other", &required)).await);
        assert!(said.contains("spec.controlPlaneRef: ") && said.contains("another control plane"), "{said}");
    }
}

#[tokio::test]
async fn nothing_moves_to_another_organization() {
    let cluster = Cluster::new("organizations").await;
    let of = |organization: &str| with("main", &json!({"organization": organization}));
    for kind in ["CoderGroup", "CoderGroupSync", "CoderRoleSync", "CoderTemplate"] {
        cluster.apply_spec(kind, "object", &of("alpha")).await.unwrap();
        for other in [of("bravo"), with("main", &json!({}))] {
            let said = refusal(cluster.apply_spec(kind, "object", &other).await);
            assert!(said.contains("spec.organization: ") && said.contains("another organization"), "{said}");
        }
        // To say what was meant anyhow is no change.
        cluster.apply_spec(kind, "plain", &with("main", &json!({}))).await.unwrap();
        cluster.apply_spec(kind, "plain", &of("default")).await.unwrap();
        cluster.apply_spec(kind, "plain", &with("main", &json!({}))).await.unwrap();
    }
}

#[tokio::test]
async fn names_change_but_not_those_of_everyone() {
    let cluster = Cluster::new("renames").await;
    let named = |name: &str| with("main", &json!({"name": name}));
    for kind in ["CoderGroup", "CoderOrganization"] {
        cluster.apply_spec(kind, "object", &named("one")).await.unwrap();
        cluster.apply_spec(kind, "object", &named("two")).await.unwrap();
        cluster.apply_spec(kind, "object", &with("main", &json!({}))).await.unwrap();
    }
    cluster.apply_spec("CoderGroup", "all", &named("Everyone")).await.unwrap();
    for (object, name) in
        [("all", named("one")), ("all", with("main", &json!({}))), ("object", named("Everyone"))]
    {
        let said = refusal(cluster.apply_spec("CoderGroup", object, &name).await);
        assert!(said.contains("spec.name: ") && said.contains("cannot be renamed"), "{said}");
    }
}
