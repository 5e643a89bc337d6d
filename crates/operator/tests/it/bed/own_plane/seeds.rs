//! AI providers that coderd makes from its environment: a manifest for one of them is refused.

use serde_json::json;

use super::ground;
use crate::bed::stage::{is_held_up, words};

#[tokio::test]
async fn provider_of_the_environment_is_refused_with_its_variable() {
    let stage = ground::stage().await;
    let mut plane = ground::shipped();
    ground::add_variable(&mut plane, "CODER_AI_GATEWAY_PROVIDER_0_TYPE", "openai");
    ground::add_variable(&mut plane, "CODER_AI_GATEWAY_PROVIDER_0_NAME", "numbered");
    ground::add_variable(&mut plane, "CODER_AI_GATEWAY_PROVIDER_0_KEY", "sk-numbered-0123456789");
    stage.write_secret("seeds", &json!({"CODER_AI_GATEWAY_ANTHROPIC_KEY": "sk-single-0123456789"})).await;
    // What comes from a Secret is not in the manifest: coderd itself tells of it.
    plane["spec"]["envFrom"] = json!([{"secretRef": {"name": "seeds"}}]);
    ground::ready(&stage, &plane).await;
    for (name, variable) in [
        ("numbered", "CODER_AI_GATEWAY_PROVIDER_0_* in spec.extraEnv of CoderControlPlane main"),
        ("anthropic", "CODER_AI_GATEWAY_ANTHROPIC_KEY"),
    ] {
        let spec = json!({"controlPlaneRef": {"name": "main"}, "type": "openai", "enabled": true,
            "baseURL": "https://ai.example.com", "adoptionPolicy": "Adopt"});
        stage
            .apply(&json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderAIProvider",
            "metadata": {"name": name}, "spec": spec}))
            .await;
        let refused =
            stage.wait_for("CoderAIProvider", name, "refused", is_held_up("SeededFromEnvironment")).await;
        assert!(words(&refused).contains(variable), "{}", words(&refused));
    }
}
