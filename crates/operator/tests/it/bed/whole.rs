//! A whole deployment from nothing: by one command, by the controllers, and from the export of another one, with the same end.

mod export;

use std::{collections::BTreeMap, io::Write as _, path::Path};

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, api::PostParams};
use reqwest::Method;
use serde_json::{Value, json};
use testbed::{Coderd, Flavour, Session, coderd::sign_license};
use tokio::time::Instant;

use super::{
    attribution::{alice, drift_notes},
    cluster_door::expect,
    get,
    job::Job,
    proxy::Proxy,
    stage::{Stage, eventually, image, is_ready},
    template_test::ask_database,
};
use crate::examples::request;

/// The Secret with the key of the daemons, as the example has it.
const KEY_SECRET: &str = "alpha-eks-provisioner-key";
const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/whole");

/// The manifests of the example, for the coderd at that address.
fn manifests(url: &str) -> Vec<Value> {
    let mut paths: Vec<_> = Path::new(EXAMPLE).read_dir().unwrap().map(|it| it.unwrap().path()).collect();
    paths.sort();
    let text = |path| std::fs::read_to_string(path).unwrap().replace("https://coder.example.com", url);
    let documents = |text: String| -> Vec<Value> { serde_saphyr::from_multiple(&text).unwrap() };
    paths.into_iter().map(text).flat_map(documents).collect()
}

/// The Secrets that the example names, by their names.
async fn secrets(coderd: &Coderd) -> [(&'static str, Value); 3] {
    let signer = coderd.licenses.as_ref().unwrap();
    let license = sign_license(signer, &json!({"feature_set": "premium"})).await.unwrap();
    [
        ("coder-automation", json!({"token": coderd.owner.token})),
        ("coder-license", json!({"license": license})),
        ("ai-keys", json!({"anthropic": "key-whole-0123456789-abcd", "openai": "key-whole-0123456789-wxyz"})),
    ]
}

/// A pod with the provisioner daemon that the example leaves to others. It starts once its key is in the Secret.
async fn daemon(client: &kube::Client, namespace: &str, secret: &str, url: &str) {
    let key = json!({"secretKeyRef": {"name": secret, "key": "key"}});
    let container = json!({"name": "daemon", "image": image("bed/coder"), "command": ["/opt/coder", "provisioner", "start"],
        "env": [{"name": "CODER_URL", "value": url}, {"name": "CODER_PROVISIONER_DAEMON_KEY", "valueFrom": key}]});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "daemon"},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [container]}});
    let pods = Api::<Pod>::namespaced(client.clone(), namespace);
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
}

/// The templates of an organization, each with the name of its active version, and nothing of the moment.
async fn templates(coderd: &Coderd) -> Value {
    let mut templates = get(coderd, "/api/v2/organizations/alpha/templates").await;
    for template in templates.as_array_mut().unwrap() {
        let path = format!("/api/v2/templateversions/{}", template["active_version_id"].as_str().unwrap());
        let version = get(coderd, &path).await;
        template["active_version_id"] = json!([version["name"], version["message"]]);
        for field in ["build_time_stats", "active_user_count"] {
            template[field].take();
        }
    }
    templates
}

/// The workspaces that are left, and the keys that the owner of test workspaces has.
async fn left_of_tests(coderd: &Coderd) -> (Value, String) {
    let workspaces = get(coderd, "/api/v2/workspaces").await["count"].take();
    let question =
        "SELECT count(*) FROM api_keys JOIN users ON users.id = user_id WHERE username = 'template-tests'";
    (workspaces, ask_database(&coderd.database, question).await)
}

fn nothing_left() -> (Value, String) {
    (json!(0), "0".to_owned())
}

/// What the deployment has, with names in the place of ids, and without times.
async fn state(coderd: &Coderd) -> Value {
    let mut paths: Vec<String> =
        ["organizations", "appearance", "settings/idpsync/organization", "ai/providers", "users"]
            .map(|it| format!("/api/v2/{it}"))
            .into();
    paths.push("/api/experimental/chats/model-configs".to_owned());
    for organization in ["alpha", "bravo", "charlie"] {
        let of = [
            "groups",
            "settings/idpsync/groups",
            "settings/idpsync/roles",
            "members/roles",
            "provisionerkeys",
        ];
        paths.extend(of.map(|it| format!("/api/v2/organizations/{organization}/{it}")));
    }
    let mut state = BTreeMap::new();
    for path in paths {
        let found = get(coderd, &path).await;
        state.insert(path, found);
    }
    state.insert("templates".to_owned(), templates(coderd).await);
    let mut state = serde_json::to_value(state).unwrap();
    let mut names = BTreeMap::new();
    name_ids(&state, &mut names);
    plain(&mut state, &names);
    state
}

/// Collects the names of everything that has an id.
fn name_ids(value: &Value, names: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(fields) => {
            let name = ["username", "name", "model"].iter().find_map(|it| fields.get(*it)?.as_str());
            if let (Some(Value::String(id)), Some(name)) = (fields.get("id"), name) {
                names.entry(id.clone()).or_insert_with(|| name.to_owned());
            }
            fields.values().for_each(|it| name_ids(it, names));
        }
        Value::Array(items) => items.iter().for_each(|it| name_ids(it, names)),
        _ => {}
    }
}

/// Puts names in the place of ids, takes away what is of the moment, and sorts lists.
fn plain(value: &mut Value, names: &BTreeMap<String, String>) {
    match value {
        Value::Object(fields) => {
            fields.retain(|key, _| key != "id" && !key.ends_with("_at") && key != "docs_url");
            fields.values_mut().for_each(|it| plain(it, names));
        }
        Value::Array(items) => {
            for item in items.iter_mut() {
                plain(item, names);
            }
            items.sort_by_key(Value::to_string);
        }
        Value::String(text) => {
            if let Some(name) = names.get(text) {
                text.clone_from(name);
            }
        }
        _ => {}
    }
}

#[tokio::test]
async fn whole_deployment_by_apply_controllers_or_export_is_equal() {
    let bed = testbed::shared().unwrap();
    let coderd = bed.coderd(Flavour::Licensed).await.unwrap();
    let proxy = Proxy::start(&coderd.owner.url).await;
    let job = Job::new("whole").await;
    for (name, values) in secrets(&coderd).await {
        job.write_secret(name, &values).await;
    }
    daemon(&job.client, &job.namespace, KEY_SECRET, &coderd.owner.url).await;
    let file = job.write(&manifests(&proxy.url));
    let apply = ["apply", "--wait", "--yes", "-f", file.as_str()];
    let began = Instant::now();
    expect(job.command(&apply), 0).await;
    let (seconds, requests) = (began.elapsed().as_secs_f64(), proxy.requests().len());
    writeln!(std::io::stderr(), "a whole deployment by one apply: {seconds:.1} s, {requests} requests")
        .unwrap();
    let writes = proxy.writes();
    let again = expect(job.command(&apply), 0).await;
    let count = manifests(&proxy.url).len();
    assert!(again.contains(&format!("{count} equal in ")), "{again}");
    assert_eq!(proxy.writes(), writes, "the second run writes nothing");
    expect(job.command(&["verify", "-f", &file]), 0).await;
    assert_eq!(left_of_tests(&coderd).await, nothing_left());

    let made = state(&coderd).await;
    tokio::join!(by_controllers(&made), export::second_is_equal(&coderd, &job));
    expect(job.command(&["verify", "-f", &file]), 0).await;
}

/// The same by controllers, which then heal what people change.
async fn by_controllers(wanted: &Value) {
    let stage = Stage::bare(testbed::shared().unwrap().coderd(Flavour::Licensed).await.unwrap()).await;
    for (name, values) in secrets(&stage.coderd).await {
        stage.write_secret(name, &values).await;
    }
    daemon(&stage.client, &stage.namespace, KEY_SECRET, &stage.coderd.owner.url).await;
    let set = manifests(&stage.coderd.owner.url);
    for manifest in &set {
        stage.apply(manifest).await;
    }
    for manifest in &set {
        let (kind, name) =
            (manifest["kind"].as_str().unwrap(), manifest["metadata"]["name"].as_str().unwrap());
        stage.wait_for(kind, name, "ready", is_ready).await;
    }
    assert_eq!(state(&stage.coderd).await, *wanted);
    assert_eq!(left_of_tests(&stage.coderd).await, nothing_left());

    // The template is changed by another person than the owner of the control plane's token.
    let owner = &stage.coderd.owner;
    let alice = alice(owner).await;
    for (kind, name) in drift(&stage.coderd, &alice).await {
        let healed = stage.look_again(kind, name).await;
        assert!(is_ready(&healed), "{healed:#}");
    }
    let told = eventually("told", || drift_notes(&stage, "agents"), |it| !it.is_empty()).await;
    let declared = set.iter().find(|it| it["metadata"]["name"] == "agents").unwrap();
    let expected = format!("displayName {} -> \"Changed\" by alice at 20", declared["spec"]["displayName"]);
    assert!(told.len() == 1 && told[0].starts_with(&expected), "{told:?}");
    request(owner, Method::DELETE, "/api/v2/users/alice", None).await;
    assert_eq!(state(&stage.coderd).await, *wanted, "what people changed is healed");
}

/// Changes something of each kind by hand. Gives back the manifests that this concerns.
async fn drift(coderd: &Coderd, alice: &Session) -> Vec<(&'static str, &'static str)> {
    let owner = &coderd.owner;
    let models = get(coderd, "/api/experimental/chats/model-configs").await;
    let of = |list: &Value, field: &str, value: &str| {
        let found = list.as_array().unwrap().iter().find(|it| it[field] == value).unwrap();
        found["id"].as_str().unwrap().to_owned()
    };
    let groups = get(coderd, "/api/v2/organizations/alpha/groups").await;
    let group = format!("/api/v2/groups/{}", of(&groups, "name", "developers"));
    let model = format!("/api/experimental/chats/model-configs/{}", of(&models, "model", "gpt-5"));
    let templates = get(coderd, "/api/v2/organizations/alpha/templates").await;
    let template = format!("/api/v2/templates/{}", of(&templates, "name", "agents"));
    let sync = json!({"field": "other", "mapping": {}});
    let alpha = "/api/v2/organizations/alpha";
    for (method, path, body) in [
        (Method::PATCH, alpha.to_owned(), json!({"display_name": "Changed"})),
        (Method::PATCH, group, json!({"quota_allowance": 3})),
        (Method::PATCH, format!("{alpha}/settings/idpsync/groups"), sync.clone()),
        (Method::PATCH, format!("{alpha}/settings/idpsync/roles"), sync.clone()),
        (Method::PATCH, "/api/v2/settings/idpsync/organization".to_owned(), sync),
        (
            Method::PUT,
            format!("{alpha}/members/roles"),
            json!({"name": "template-auditor", "display_name": "Changed"}),
        ),
        (
            Method::PUT,
            "/api/v2/appearance".to_owned(),
            json!({"application_name": "Changed", "announcement_banners": []}),
        ),
        (
            Method::PATCH,
            "/api/v2/ai/providers/openai".to_owned(),
            json!({"base_url": "https://changed.example.com"}),
        ),
        (Method::PATCH, model, json!({"context_limit": 1})),
        (Method::PUT, "/api/v2/users/template-tests/status/suspend".to_owned(), json!(null)),
        (Method::PUT, "/api/v2/users/reports/roles".to_owned(), json!({"roles": []})),
    ] {
        request(owner, method, &path, Some(&body)).await;
    }
    request(alice, Method::PATCH, &template, Some(&json!({"display_name": "Changed"}))).await;
    vec![
        ("CoderOrganization", "alpha"),
        ("CoderGroup", "alpha-developers"),
        ("CoderGroupSync", "alpha"),
        ("CoderRoleSync", "alpha"),
        ("CoderOrganizationSync", "organization-sync"),
        ("CoderRole", "alpha-template-auditor"),
        ("CoderAppearance", "appearance"),
        ("CoderAIProvider", "openai"),
        ("CoderAIModel", "gpt"),
        ("CoderUser", "reports"),
        ("CoderUser", "template-tests"),
        ("CoderTemplate", "agents"),
    ]
}
