use serde_json::json;

use super::*;

fn objects() -> Objects {
    let mut objects = Objects::default();
    objects.insert_secret("keys", BTreeMap::from([("token".to_owned(), ByteString(b"s3".to_vec()))]));
    objects
        .insert_config_map("settings", BTreeMap::from([("colour".to_owned(), ByteString(b"blue".to_vec()))]));
    objects
}

fn resolve(container: serde_json::Value) -> Result<BTreeMap<String, String>, String> {
    let container: Container = serde_json::from_value(container).map_err(|error| error.to_string())?;
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "p", "namespace": "n", "labels": {"app": "a"}},
        "spec": {"containers": [], "serviceAccountName": "sa"},
    }))
    .map_err(|error| error.to_string())?;
    let address = Ipv4Addr::new(127, 9, 0, 4);
    let facts = Facts { pod: &pod, address, node: "node", node_address: "127.9.0.1".to_owned() };
    variables(&container, &objects(), &facts, &BTreeMap::new())
}

fn env(entries: &serde_json::Value) -> Result<BTreeMap<String, String>, String> {
    resolve(json!({"name": "c", "env": entries}))
}

#[test]
fn values_come_from_secrets_config_maps_and_the_pod_itself() {
    let variables = env(&json!([
        {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "token"}}},
        {"name": "COLOUR", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "colour"}}},
        {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "APP", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['app']"}}},
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
    ]))
    .unwrap();
    let values: Vec<&str> = variables.values().map(String::as_str).collect();
    assert_eq!(values, ["a", "blue", "127.9.0.4", "p", "s3"]);
}

#[test]
fn a_variable_may_refer_to_those_before_it() {
    let variables = env(&json!([
        {"name": "HOST", "value": "h"},
        {"name": "URL", "value": "http://$(HOST)/$(LATER)/$$(HOST)"},
        {"name": "LATER", "value": "x"},
    ]))
    .unwrap();
    assert_eq!(variables["URL"], "http://h/$(LATER)/$(HOST)");
}

#[test]
fn whole_objects_come_with_their_prefix_and_single_values_win() {
    let variables = resolve(json!({
        "name": "c",
        "envFrom": [{"prefix": "S_", "secretRef": {"name": "keys"}}, {"configMapRef": {"name": "settings"}}],
        "env": [{"name": "colour", "value": "red"}],
    }))
    .unwrap();
    assert_eq!(variables["S_token"], "s3");
    assert_eq!(variables["colour"], "red");
}

#[test]
fn what_is_missing_is_named_unless_it_is_optional() {
    let missing = json!([{"name": "A", "valueFrom": {"secretKeyRef": {"name": "none", "key": "k"}}}]);
    assert_eq!(env(&missing).unwrap_err(), "secret \"none\" not found");
    let key = json!([{"name": "A", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "k"}}}]);
    assert_eq!(env(&key).unwrap_err(), "couldn't find key k in secret keys");
    let optional =
        json!([{"name": "A", "valueFrom": {"secretKeyRef": {"name": "none", "key": "k", "optional": true}}}]);
    assert_eq!(env(&optional).unwrap(), BTreeMap::new());
}

#[test]
fn arguments_come_after_the_entrypoint_and_a_command_replaces_it() {
    let container = |value| serde_json::from_value::<Container>(value).unwrap();
    let entrypoint = ["/opt/coder".to_owned(), "server".to_owned()];
    let none = BTreeMap::new();
    let bare = container(json!({"name": "c"}));
    assert_eq!(command_line(&bare, &entrypoint, &none), ["/opt/coder", "server"]);
    let args = container(json!({"name": "c", "args": ["provisioner", "start"]}));
    assert_eq!(command_line(&args, &entrypoint, &none), ["/opt/coder", "server", "provisioner", "start"]);
    let command = container(json!({"name": "c", "command": ["sh"], "args": ["-c", "true"]}));
    assert_eq!(command_line(&command, &entrypoint, &none), ["sh", "-c", "true"]);
}
