//! Versions that are tested with real agents before they are promoted: the workspace comes up, or does not, and goes.

use api::CoderProvisioner;
use reqwest::Method;
use serde_json::{Value, json};
use testbed::Coderd;

use super::{
    get, licensed,
    provisioner::provisioner,
    secrecy,
    stage::{Stage, eventually, is_held_up, is_ready, words},
};

const OWNER: &str = "template-tests";
const EXAMPLE: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/whole/templates.yaml"));
/// The start build reports the token of the workspace's owner, and that of the agent.
const TELLS_TOKENS: &str = r#"
data "coder_workspace_owner" "me" {}
resource "terraform_data" "leak" {
  lifecycle {
    precondition {
      condition     = nonsensitive(data.coder_workspace_owner.me.session_token) == ""
      error_message = "Leaks ${nonsensitive(data.coder_workspace_owner.me.session_token)} by mistake."
    }
  }
}
"#;

/// The source of the template with an agent, as the example has it.
fn source() -> String {
    let documents: Vec<Value> = serde_saphyr::from_multiple(EXAMPLE).unwrap();
    let agents = documents.iter().find(|it| it["metadata"]["name"] == "agents").unwrap();
    agents["spec"]["source"]["files"]["main.tf"].as_str().unwrap().to_owned()
}

fn template(source: &str, timeout: &str) -> Value {
    json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderTemplate", "metadata": {"name": "agents"},
        "spec": {"controlPlaneRef": {"name": "main"}, "interval": "1h", "provisionerTags": {"site": "bed"},
            "source": {"files": {"main.tf": source}}, "version": {"test": {"owner": OWNER, "timeout": timeout}},
            "deletionPolicy": "Delete", "allowDestructive": true}})
}

fn owner(more: &Value) -> Value {
    let mut spec = json!({"controlPlaneRef": {"name": "main"}, "serviceAccount": true, "suspended": false,
        "organizations": ["default"]});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderUser", "metadata": {"name": OWNER}, "spec": spec})
}

/// The answer of a database to a question.
pub(super) async fn ask_database(database: &str, question: &str) -> String {
    let psql = testbed::shared::parts().unwrap().postgres.program("psql");
    let output =
        tokio::process::Command::new(psql).args(["-qAt", "-c", question, database]).output().await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// How many workspaces were ever made, how many are left, and how many keys their owner has.
async fn counts(coderd: &Coderd) -> (String, Value, String) {
    let made = ask_database(&coderd.database, "SELECT count(*) FROM workspaces").await;
    let left = get(coderd, "/api/v2/workspaces").await["count"].take();
    let keys =
        format!("SELECT count(*) FROM api_keys JOIN users ON users.id = user_id WHERE username = '{OWNER}'");
    (made, left, ask_database(&coderd.database, &keys).await)
}

fn counted(made: usize) -> (String, Value, String) {
    (made.to_string(), json!(0), "0".to_owned())
}

async fn active(stage: &Stage, object: &Value) -> Value {
    let path = format!("/api/v2/templates/{}", object["status"]["id"].as_str().unwrap());
    get(&stage.coderd, &path).await["active_version_id"].take()
}

async fn failed(stage: &Stage, source: &str, timeout: &str) -> Value {
    stage.apply(&template(source, timeout)).await;
    stage.wait_for("CoderTemplate", "agents", "failed", is_held_up("VersionFailed")).await
}

/// Whether a text has something in it that has the shape of a session of Coder.
fn has_token(text: &str) -> bool {
    let is_plain = |it: &str, length| it.len() == length && it.chars().all(|it| it.is_ascii_alphanumeric());
    let runs = text.split(|it: char| !it.is_ascii_alphanumeric() && it != '-');
    runs.filter_map(|it| it.split_once('-')).any(|(id, secret)| is_plain(id, 10) && is_plain(secret, 22))
}

#[tokio::test]
async fn version_is_promoted_only_after_a_workspace_with_a_real_agent_came_up() {
    let stage = Stage::new(licensed().await).await;
    stage.apply(&provisioner("alpha", &json!({"tags": {"site": "bed"}}))).await;
    stage.wait::<CoderProvisioner>("alpha", "ready", is_ready).await;
    // Nobody's account, that of an administrator, and at last one without rights.
    stage.apply(&template(&source(), "3m")).await;
    stage.wait_for("CoderTemplate", "agents", "without owner", is_held_up("ReferenceNotFound")).await;
    stage.apply(&owner(&json!({"roles": ["auditor"]}))).await;
    let refused =
        stage.is_noticed("CoderTemplate", "agents", "refused", is_held_up("TestOwnerRefused")).await;
    assert!(words(&refused).contains("spec.version.test.owner"), "{}", words(&refused));
    assert_eq!(counts(&stage.coderd).await, counted(0));
    stage.apply(&owner(&json!({"roles": []}))).await;
    let first = stage.wait_for("CoderTemplate", "agents", "ready", is_ready).await;
    assert_eq!(
        (&first["status"]["test"]["result"], &first["status"]["test"]["deleted"]),
        (&json!("passed"), &json!(true))
    );
    assert_eq!(counts(&stage.coderd).await, counted(1));
    let workspace =
        format!("/api/v2/workspaces/{}", first["status"]["test"]["workspaceID"].as_str().unwrap());
    let (status, _) = stage.coderd.owner.request(Method::GET, &workspace, None).await.unwrap();
    assert_eq!(status, 410, "Coder tells a deleted workspace from one that the account may not read");
    let connected =
        "SELECT count(*) FROM workspace_agents WHERE first_connected_at IS NOT NULL AND ready_at IS NOT NULL";
    assert_eq!(ask_database(&stage.coderd.database, connected).await, "1");

    // A startup script that fails, an agent that never starts, a start build that fails.
    let script = source().replace("arch = \"amd64\"", "arch = \"amd64\"\n  startup_script = \"exit 7\"");
    let one = failed(&stage, &script, "3m").await;
    assert!(words(&one).contains("agent main is start_error"), "{}", words(&one));
    let silent = source().replace("nohup coder agent", "true");
    let two = failed(&stage, &silent, "20s").await;
    assert!(words(&two).contains("did not come up within 20s: agent main is connecting"), "{}", words(&two));
    let three = failed(&stage, &format!("{}{TELLS_TOKENS}", source()), "3m").await;
    assert!(
        words(&three).contains("failed its test: Error: Resource precondition failed"),
        "{}",
        words(&three)
    );
    assert_eq!(counts(&stage.coderd).await, counted(4));
    assert_eq!(active(&stage, &first).await, first["status"]["version"]["id"]);
    let version = format!("/api/v2/templateversions/{}", three["status"]["version"]["id"].as_str().unwrap());
    eventually("archived", || get(&stage.coderd, &version), |it| it["archived"] == true).await;
    let again = stage.look_again("CoderTemplate", "agents").await;
    assert!(is_held_up("VersionFailed")(&again), "{again:#}");
    assert_eq!(counts(&stage.coderd).await, counted(4), "a version that failed is not tested again");

    // A manifest that goes in the middle of a test takes the workspace with it.
    stage.apply(&template(&format!("{silent}\nlocals {{}}\n"), "10m")).await;
    let has_workspace = |it: &Value| it["count"] == 1;
    eventually("a workspace", || get(&stage.coderd, "/api/v2/workspaces"), has_workspace).await;
    stage.delete("CoderTemplate", "agents").await;
    stage.gone(&first).await;
    assert_eq!(counts(&stage.coderd).await, counted(5));
    let path = format!("/api/v2/templates/{}", first["status"]["id"].as_str().unwrap());
    assert_eq!(stage.coderd.owner.request(Method::GET, &path, None).await.unwrap().0, 404);
    assert_eq!(stage.left_behind().await, Vec::<String>::new());
    let told = secrecy::told(&stage).await;
    assert!(!has_token(&told), "no session token of the owner is shown");
}
