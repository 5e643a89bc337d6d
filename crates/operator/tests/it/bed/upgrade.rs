//! An operator of now on a cluster and a Coder that an older operator left.
//!
//! `upgrade/left_by_1a36221.jsonl` holds the objects that the operator of commit 1a36221 left on the bed, one a line: a managed
//! control plane with its licence and its token, an organization, a group, daemons and a key, both in the middle of a rotation,
//! and a pod that still has the old key. Whatever is secret, or another one in each cluster, is a placeholder.

use std::{collections::BTreeMap, fmt::Write as _};

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::{
    apps::v1::{Deployment, ReplicaSet},
    core::v1::Pod,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{
        ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
        PostParams,
    },
    runtime::wait::await_condition,
};
use reqwest::Method;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use testbed::{Session, coderd::sign_license};
use tokio::time::timeout;

use super::{
    operator::{Operator, writes},
    stage::{self, LIMIT, Stage, eventually, image, is_ready},
};

const LEFT: &str = include_str!("upgrade/left_by_1a36221.jsonl");
const MANAGER: &str = "coder-operator";
const LICENSES_PORT: u16 = 8099;
const PASSWORD: &str = "Correct-Horse-Battery-9";
const KEYS: &str = "/api/v2/organizations/alpha/provisionerkeys";
/// How long the old pod may take to end, in seconds. Its key is due that long, and a minute, after the rotation: longer than this
/// test takes on the slowest machine. That keys go when they are due is tested on a model, with a clock of its own.
const OLD_PODS_GRACE: u32 = 1800;
/// The manifests of the recording.
const MANIFESTS: [(&str, &str); 5] = [
    ("CoderControlPlane", "main"),
    ("CoderOrganization", "alpha"),
    ("CoderGroup", "developers"),
    ("CoderProvisioner", "builders"),
    ("CoderProvisionerKey", "robots"),
];

/// The recorded objects, and what takes the place of their placeholders.
struct Fixture {
    client: Client,
    namespace: String,
    values: BTreeMap<String, String>,
    now: Timestamp,
}

impl Fixture {
    fn set(&mut self, name: &str, value: impl Into<String>) {
        self.values.insert(name.to_owned(), value.into());
    }

    fn get(&self, name: &str) -> &str {
        self.values.get(name).unwrap_or_else(|| panic!("{name} is not known yet"))
    }

    /// A recorded object with its placeholders filled in.
    fn object(&self, kind: &str, name: &str) -> Value {
        let is_it = |it: &&Value| it["kind"] == kind && it["metadata"]["name"] == self.as_recorded(name);
        let objects: Vec<Value> = LEFT.lines().map(|it| serde_json::from_str(it).unwrap()).collect();
        let found = objects.iter().find(is_it).unwrap_or_else(|| panic!("{kind} {name} is not recorded"));
        serde_json::from_str(&self.fill(&found.to_string())).unwrap()
    }

    /// The name of an object as it was recorded.
    fn as_recorded(&self, name: &str) -> String {
        match self.values.get("main.hash") {
            Some(hash) => name.replace(hash, "${main.hash}"),
            None => name.to_owned(),
        }
    }

    /// Every recorded object of a kind, by name.
    fn names(&self, kind: &str) -> Vec<String> {
        let objects = LEFT.lines().map(|it| serde_json::from_str::<Value>(it).unwrap());
        let those = objects.filter(|it| it["kind"] == kind);
        those.map(|it| self.fill(it["metadata"]["name"].as_str().unwrap())).collect()
    }

    fn fill(&self, text: &str) -> String {
        let mut filled = String::new();
        let mut parts = text.split("${");
        filled.push_str(parts.next().unwrap());
        for part in parts {
            let (name, rest) = part.split_once('}').unwrap();
            match name.strip_prefix("time:") {
                Some(seconds) => {
                    let time = self.now + SignedDuration::from_secs(seconds.parse().unwrap());
                    write!(filled, "{}", time.strftime("%Y-%m-%dT%H:%M:%SZ")).unwrap();
                }
                None => filled.push_str(self.get(name)),
            }
            filled.push_str(rest);
        }
        filled
    }

    fn api(&self, object: &Value) -> Api<DynamicObject> {
        let version = object["apiVersion"].as_str().unwrap();
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let kind = object["kind"].as_str().unwrap();
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
    }

    /// Creates a recorded object, with the fields that the older operator owned. Returns its uid.
    async fn lay(&self, kind: &str, name: &str) -> String {
        self.create(self.object(kind, name)).await
    }

    async fn create(&self, mut object: Value) -> String {
        let managed = object["metadata"].as_object_mut().unwrap().remove("managedFields");
        let api = self.api(&object);
        let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        let made = api.create(&params, &serde_json::from_value(object).unwrap()).await.unwrap();
        if let Some(managed) = managed {
            let patch = Patch::Merge(json!({"metadata": {"managedFields": managed}}));
            let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
            let laid = api.patch(&made.name_any(), &params, &patch).await.unwrap();
            let of_manager = laid.managed_fields().iter().filter(|it| it.manager.as_deref() == Some(MANAGER));
            let operations: Vec<_> = of_manager.filter_map(|it| it.operation.as_deref()).collect();
            assert_eq!(operations, ["Apply"], "{}", made.name_any());
        }
        made.uid().unwrap()
    }

    /// Writes the recorded status of a manifest that was laid.
    async fn lay_status(&self, kind: &str, name: &str) {
        let object = self.object(kind, name);
        let patch = Patch::Merge(json!({"status": object["status"]}));
        let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        self.api(&object).patch_status(name, &params, &patch).await.unwrap();
    }

    /// Lays a manifest without its status, and enters its uid and the part of it that names have.
    async fn lay_manifest(&mut self, kind: &str, name: &str, mark: usize) {
        let mut object = self.object_before_coder(kind, name);
        object.as_object_mut().unwrap().remove("status");
        let uid = self.create(object).await;
        self.set(&format!("{name}.mark"), uid.chars().filter(|it| *it != '-').take(mark).collect::<String>());
        self.set(&format!("{name}.uid"), uid);
    }

    /// The same for an object whose status has placeholders that are not known yet.
    fn object_before_coder(&self, kind: &str, name: &str) -> Value {
        let objects = LEFT.lines().map(|it| serde_json::from_str::<Value>(it).unwrap());
        let mut is_it = objects.filter(|it| it["kind"] == kind && it["metadata"]["name"] == name);
        let mut object = is_it.next().unwrap();
        object.as_object_mut().unwrap().remove("status");
        serde_json::from_str(&self.fill(&object.to_string())).unwrap()
    }

    async fn is_served(&self, deployment: &str) {
        let deployments = Api::<Deployment>::namespaced(self.client.clone(), &self.namespace);
        let serves = |it: Option<&Deployment>| {
            it.and_then(|it| it.status.as_ref()).is_some_and(|it| it.available_replicas == Some(1))
        };
        timeout(LIMIT, await_condition(deployments, deployment, serves)).await.unwrap().unwrap();
    }
}

/// FNV-1a, 32 bits: what pods carry of a key.
fn fnv(text: &str) -> String {
    let step = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    format!("{:08x}", text.bytes().fold(0x811c_9dc5, step))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

/// The annotation for what the pods of the control plane read: the database's address, with the key of fingerprints.
fn configuration(fingerprint_key: &str, database: &str) -> String {
    let mut hash = Sha256::new();
    hash.update(fingerprint_key);
    for part in ["url", database] {
        hash.update(part.len().to_be_bytes());
        hash.update(part);
    }
    let fingerprint = hex(&hash.finalize());
    hex(&Sha256::digest(format!("Secret\0coder-db\0{fingerprint}\0"))[..16])
}

async fn post(session: &Session, path: &str, body: &Value) -> Value {
    let (status, answer) = session.request(Method::POST, path, Some(body)).await.unwrap();
    assert_eq!(status, 201, "{path}: {answer}");
    answer
}

async fn list(session: &Session, path: &str) -> Value {
    session.request(Method::GET, path, None).await.unwrap().1
}

/// Whether daemons can sign in with the value of a key.
async fn is_valid(owner: &Session, value: &str) -> bool {
    let http = testbed::shared().unwrap().http_by_name().unwrap();
    let ask = http.get(format!("{}/api/v2/provisionerkeys/x", owner.url));
    ask.header("Coder-Provisioner-Daemon-Key", value).send().await.unwrap().status() == 200
}

/// Lays the control plane with its objects, and signs its owner in.
async fn lay_plane() -> (Fixture, Session) {
    let bed = testbed::shared().unwrap();
    let client = bed.client().await.unwrap();
    stage::install(&client).await;
    let namespace = bed.namespace("upgrade").await.unwrap();
    let database = bed.database().await.unwrap();
    let values = BTreeMap::new();
    let mut fixture = Fixture { client, namespace: namespace.clone(), values, now: Timestamp::now() };
    fixture.set("namespace", &namespace);
    fixture.set("main.hash", fnv(&format!("{namespace}\0main")));
    fixture.set("version", &bed.coder_version);
    fixture.set("image.licensed", image("bed/coder-licensed"));
    fixture.set("image.coder", image("bed/coder"));
    fixture.set("fingerprint-key", uuid::Uuid::new_v4().to_string());
    fixture.set("configuration", configuration(fixture.get("fingerprint-key"), &database));
    let secret = |name: &str, values: Value| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": values});
    fixture.create(secret("coder-db", json!({"url": database}))).await;
    let first = json!({"email": "admin@example.com", "username": "admin", "password": PASSWORD});
    fixture.create(secret("coder-first-user", first)).await;
    fixture.lay_manifest("CoderControlPlane", "main", 8).await;
    for kind in ["ServiceAccount", "Role", "RoleBinding", "Service", "Deployment"] {
        for name in fixture.names(kind).into_iter().filter(|it| it.starts_with("main")) {
            fixture.lay(kind, &name).await;
        }
    }
    fixture.is_served("main").await;
    let url = format!("http://main.{namespace}.svc.cluster.local");
    let owner = Session::first_user(bed.http_by_name().unwrap(), &url, PASSWORD).await.unwrap();
    let pods = Api::<Pod>::namespaced(fixture.client.clone(), &namespace);
    let pods = pods.list(&ListParams::default()).await.unwrap();
    let address = pods.items.iter().find_map(|it| it.status.as_ref()?.pod_ip.clone()).unwrap();
    let premium = json!({"feature_set": "premium"});
    let license = sign_license(&format!("http://{address}:{LICENSES_PORT}"), &premium).await.unwrap();
    fixture.create(secret("coder-license", json!({"license": license}))).await;
    let uploaded = post(&owner, "/api/v2/licenses", &json!({"license": license})).await;
    assert_eq!(uploaded["id"], 1, "as it was recorded");
    fixture.set("license.uuid", uploaded["uuid"].as_str().unwrap());
    fixture.set("license.hash", hex(&Sha256::digest(&license)));
    let claims = BASE64_URL_SAFE_NO_PAD.decode(license.split('.').nth(1).unwrap()).unwrap();
    let claims: Value = serde_json::from_slice(&claims).unwrap();
    fixture.set("license.identity", hex(&Sha256::digest(claims.to_string())[..16]));
    (fixture, owner)
}

/// Makes what the recorded statuses name: the operator's account and token, an organization, a group, and four keys.
async fn fill_coder(fixture: &mut Fixture, owner: &Session) {
    let deployment = list(owner, "/api/v2/buildinfo").await["deployment_id"].clone();
    fixture.set("deployment", deployment.as_str().unwrap());
    let name = format!("coder-operator-{}", fixture.get("main.mark"));
    let account = json!({"username": name, "email": format!("{name}@coder-operator.invalid"),
        "password": uuid::Uuid::new_v4().to_string(), "login_type": "password",
        "name": "Coder operator 9a668f81954c4c76", "user_status": "active", "roles": ["owner"],
        "organization_ids": [uuid::Uuid::nil()]});
    let account = post(owner, "/api/v2/users", &account).await["id"].as_str().unwrap().to_owned();
    let roles = json!({"roles": ["owner"]});
    let path = format!("/api/v2/users/{account}/roles");
    assert_eq!(owner.request(Method::PUT, &path, Some(&roles)).await.unwrap().0, 200);
    let day = 86_400_000_000_000_u64;
    let token = json!({"token_name": format!("{name}-1"), "lifetime": day, "scope": "all"});
    let token = post(owner, &format!("/api/v2/users/{account}/keys/tokens"), &token).await;
    fixture.set("token", token["key"].as_str().unwrap());
    fixture.set("account", account);
    let organization = json!({"name": "alpha", "display_name": "Alpha"});
    let organization = post(owner, "/api/v2/organizations", &organization).await;
    fixture.set("organization", organization["id"].as_str().unwrap());
    let group = json!({"name": "developers", "quota_allowance": 3});
    let group = post(owner, "/api/v2/organizations/alpha/groups", &group).await;
    fixture.set("group", group["id"].as_str().unwrap());
    for (manifest, site) in [("builders", "bed"), ("robots", "edge")] {
        let next = format!("{manifest}-{}-2", fixture.get(&format!("{manifest}.mark")));
        for (slot, name) in [("old", manifest.to_owned()), ("new", next)] {
            let value =
                post(owner, KEYS, &json!({"name": name, "tags": {"site": site}})).await["key"].clone();
            let value = value.as_str().unwrap();
            let listed = list(owner, KEYS).await;
            let key = listed.as_array().unwrap().iter().find(|it| it["name"] == *name).unwrap();
            fixture.set(&format!("{manifest}.{slot}.id"), key["id"].as_str().unwrap());
            fixture.set(&format!("{manifest}.{slot}.checksum"), fnv(value));
            fixture.set(&format!("{manifest}.{slot}.value"), value);
        }
    }
}

/// Starts the daemons: the old pod with the old key, which is on its way out, and the Deployment's with the new one.
async fn start_daemons(fixture: &Fixture) {
    for kind in ["ServiceAccount", "Role", "RoleBinding"] {
        for name in fixture.names(kind).into_iter().filter(|it| !it.starts_with("main")) {
            fixture.lay(kind, &name).await;
        }
    }
    let mut secret = fixture.object("Secret", "builders-provisioner-key");
    secret["stringData"]["key"] = fixture.get("builders.old.value").into();
    fixture.create(secret.clone()).await;
    let pod = fixture.names("Pod").remove(0);
    let mut old = fixture.object("Pod", &pod);
    old["spec"]["terminationGracePeriodSeconds"] = OLD_PODS_GRACE.into();
    fixture.create(old).await;
    let pods = Api::<Pod>::namespaced(fixture.client.clone(), &fixture.namespace);
    let runs = |it: Option<&Pod>| {
        it.and_then(|it| it.status.as_ref()?.phase.as_deref()).is_some_and(|it| it == "Running")
    };
    timeout(LIMIT, await_condition(pods.clone(), &pod, runs)).await.unwrap().unwrap();
    let value = json!({"stringData": {"key": fixture.get("builders.new.value")}});
    let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    fixture.api(&secret).patch("builders-provisioner-key", &params, &Patch::Merge(value)).await.unwrap();
    fixture.lay("Deployment", "provisioner-builders").await;
    pods.delete(&pod, &DeleteParams::default().grace_period(5)).await.unwrap();
    fixture.is_served("provisioner-builders").await;
}

/// Everything in Coder that must neither be made again nor go: keys, tokens, licences, accounts, organizations, groups.
async fn in_coder(fixture: &Fixture, owner: &Session) -> BTreeMap<&'static str, Vec<String>> {
    let ids = |list: &Value| -> Vec<String> {
        let mut ids: Vec<String> = list.as_array().unwrap().iter().map(|it| it["id"].to_string()).collect();
        ids.sort();
        ids
    };
    let tokens = format!("/api/v2/users/{}/keys/tokens?include_expired=true", fixture.get("account"));
    BTreeMap::from([
        ("keys", ids(&list(owner, KEYS).await)),
        ("tokens", ids(&list(owner, &tokens).await)),
        ("licences", ids(&list(owner, "/api/v2/licenses").await)),
        ("accounts", ids(&list(owner, "/api/v2/users?limit=100").await["users"])),
        ("organizations", ids(&list(owner, "/api/v2/organizations").await)),
        ("groups", ids(&list(owner, "/api/v2/organizations/alpha/groups").await)),
    ])
}

/// The templates of all pods, and how many of them there have been.
async fn templates(stage: &Stage<Session>) -> (Vec<Value>, usize) {
    let deployments = stage.api::<Deployment>().list(&ListParams::default()).await.unwrap().items;
    let template = |it: Deployment| json!([it.name_any(), it.spec.unwrap().template]);
    let sets = stage.api::<ReplicaSet>().list(&ListParams::default()).await.unwrap().items.len();
    (deployments.into_iter().map(template).collect(), sets)
}

/// The requests of the operator that may have changed something in Coder.
async fn changes(stage: &Stage<Session>) -> Vec<String> {
    let metrics = stage.operator.get("/metrics").await.unwrap().1;
    let requests = metrics.lines().filter(|it| it.starts_with("coder_operator_coder_requests_total{"));
    let (reads, changes): (Vec<&str>, Vec<&str>) = requests.partition(|it| it.contains("method=\"GET\""));
    assert!(!reads.is_empty(), "{metrics}");
    changes.into_iter().map(str::to_owned).collect()
}

#[tokio::test]
async fn operator_of_now_goes_on_with_what_an_older_one_left() {
    let (mut fixture, owner) = lay_plane().await;
    fixture.lay_manifest("CoderOrganization", "alpha", 0).await;
    fixture.lay_manifest("CoderGroup", "developers", 0).await;
    fixture.lay_manifest("CoderProvisioner", "builders", 4).await;
    fixture.lay_manifest("CoderProvisionerKey", "robots", 4).await;
    fill_coder(&mut fixture, &owner).await;
    fixture.lay("Secret", "main-operator-token").await;
    fixture.lay("Secret", "robots-provisioner-key").await;
    start_daemons(&fixture).await;
    for (kind, name) in MANIFESTS {
        fixture.lay_status(kind, name).await;
    }
    let before = in_coder(&fixture, &owner).await;
    assert_eq!((before["keys"].len(), before["tokens"].len(), before["licences"].len()), (4, 1, 1));

    let (client, namespace) = (fixture.client.clone(), fixture.namespace.clone());
    let bed = testbed::shared().unwrap();
    let operator = Operator::start_with(&namespace, &[], bed.proxy_variables());
    let stage = Stage { client, namespace, coderd: owner, operator };
    let left = templates(&stage).await;
    for _ in 0..2 {
        for (kind, name) in MANIFESTS {
            stage.look_again(kind, name).await;
            stage.wait_for(kind, name, "ready", is_ready).await;
        }
    }

    assert_eq!(changes(&stage).await, [""; 0], "nothing was minted, uploaded or revoked");
    assert_eq!(in_coder(&fixture, &stage.coderd).await, before);
    assert_eq!(templates(&stage).await, left, "no pod was rolled");
    for slot in ["builders.old", "builders.new", "robots.old", "robots.new"] {
        assert!(is_valid(&stage.coderd, fixture.get(&format!("{slot}.value"))).await, "{slot}");
    }
    let writes = writes(&stage.namespace).await;
    let to_objects = writes.iter().filter(|it| it["objectRef"]["subresource"].is_null());
    let written: Vec<String> = to_objects
        .map(|it| format!("{} {} {}", it["verb"], it["objectRef"]["resource"], it["objectRef"]["name"]))
        .filter(|it| !it.contains("\"events\""))
        .collect();
    // That of the database, beside the template of the pods: the older operator did not record it.
    assert_eq!(written, ["\"patch\" \"deployments\" \"main\""], "statuses, and one record that is new");

    revokes_after_its_overlap(&stage, &fixture).await;
}

/// The old keys go when nobody needs them any more: after the last pod that has one, and after the declared overlap.
async fn revokes_after_its_overlap(stage: &Stage<Session>, fixture: &Fixture) {
    let is_over = |it: &Value| is_ready(it) && it["status"]["retiringKeys"].is_null();
    let pod = fixture.names("Pod").remove(0);
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    stage.api::<Pod>().patch(&pod, &PatchParams::default(), &free).await.unwrap();
    stage.wait_for("CoderProvisioner", "builders", "over", is_over).await;
    let is_valid = async |slot: &str| is_valid(&stage.coderd, fixture.get(&format!("{slot}.value"))).await;
    assert!(!is_valid("builders.old").await, "no pod has it any more");
    assert!(is_valid("robots.old").await, "its overlap is two hours");
    let overlap = Patch::Merge(json!({"spec": {"rotation": {"overlap": "10s"}}}));
    stage.kind("CoderProvisionerKey").patch("robots", &PatchParams::default(), &overlap).await.unwrap();
    stage.wait_for("CoderProvisionerKey", "robots", "over", is_over).await;
    assert!(!is_valid("robots.old").await);
    for slot in ["builders.new", "robots.new"] {
        assert!(is_valid(slot).await, "{slot}");
    }
    let keys = || async { list(&stage.coderd, KEYS).await.as_array().unwrap().len() };
    eventually("two keys", keys, |it| *it == 2).await;
}
