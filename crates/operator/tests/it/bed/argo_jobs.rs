//! The shipped Jobs for Argo CD: what kustomize makes of them, and their containers as processes with the account of the Jobs.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use k8s_openapi::{
    api::core::v1::Secret, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams},
};
use reqwest::Method;
use serde_json::{Value, json};

use super::{
    cluster_door::expect,
    get, licensed,
    operator::Operator,
    proxy::{Mood, Proxy},
    service_account::{Account, apply, wait_until_allowed},
    stage::{Stage, define, install, is_ready, until},
};
use crate::{
    ci::{self, gitlab},
    examples::request,
    support::{Folder, bare},
};

const KEYS: [&str; 2] = ["alpha-eks", "bravo-eks"];

fn shipped() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/argocd/jobs")
}

/// The folder of the Jobs as a person copies it, for a Coder at this address.
fn copied(name: &str, url: &str) -> Folder {
    let folder = Folder::new(name);
    for entry in fs::read_dir(shipped()).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap().replace("https://coder.example.com", url);
        folder.write(path.file_name().unwrap().to_str().unwrap(), &text);
    }
    folder
}

/// What kustomize makes of the folder.
fn built(folder: &Folder) -> Vec<Value> {
    let kubectl = &testbed::shared().unwrap().kubectl;
    let output = Command::new(kubectl).arg("kustomize").arg(&folder.0).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_saphyr::from_multiple(&String::from_utf8(output.stdout).unwrap()).unwrap()
}

fn find<'a>(objects: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let is_it = |it: &&Value| {
        it["kind"] == kind && it["metadata"]["name"].as_str().is_some_and(|it| it.starts_with(name))
    };
    objects.iter().find(is_it).unwrap_or_else(|| panic!("no {kind} {name}"))
}

/// The Jobs of one namespace, with the account and the rights that they ship with.
struct Jobs {
    client: Client,
    namespace: String,
    kubeconfig: PathBuf,
    objects: Vec<Value>,
    folder: Folder,
}

impl Jobs {
    async fn new(name: &str, url: &str) -> Self {
        let bed = testbed::shared().unwrap();
        let client = bed.client().await.unwrap();
        install(&client).await;
        let namespace = bed.namespace(name).await.unwrap();
        let folder = copied(name, url);
        let objects = built(&folder);
        for kind in ["ServiceAccount", "Role", "RoleBinding"] {
            let mut object = find(&objects, kind, "coder-").clone();
            object["metadata"]["namespace"] = json!(namespace);
            if kind == "RoleBinding" {
                object["subjects"][0]["namespace"] = json!(namespace);
            }
            apply(&client, &object).await;
        }
        let kubeconfig = Account::named(&namespace, "coder-jobs").kubeconfig(bed, &client).await;
        let mut config: Value = serde_json::from_str(&fs::read_to_string(&kubeconfig).unwrap()).unwrap();
        // In a pod, the namespace is that of the pod.
        config["contexts"][0]["context"]["namespace"] = json!(namespace);
        let kubeconfig = folder.0.join("kubeconfig");
        fs::write(&kubeconfig, config.to_string()).unwrap();
        let as_job = testbed::kubernetes::client(&kubeconfig).await.unwrap();
        wait_until_allowed(&as_job, &namespace, ("", "secrets", "create")).await;
        Self { client, namespace, kubeconfig, objects, folder }
    }

    /// The container of a Job as a process: its arguments, with the ConfigMap of its volume as a folder, as the kubelet mounts it.
    fn command(&self, job: &str) -> Command {
        let pod = &find(&self.objects, "Job", job)["spec"]["template"]["spec"];
        let volume = pod["volumes"][0]["configMap"]["name"].as_str().unwrap();
        let mounted = self.folder.0.join(volume);
        fs::remove_dir_all(&mounted).ok();
        let version = mounted.join("..2026_01_01");
        fs::create_dir_all(&version).unwrap();
        symlink("..2026_01_01", mounted.join("..data")).unwrap();
        let data = find(&self.objects, "ConfigMap", volume)["data"].as_object().unwrap().clone();
        for (file, text) in data {
            fs::write(version.join(&file), text.as_str().unwrap()).unwrap();
            symlink(Path::new("..data").join(&file), mounted.join(&file)).unwrap();
        }
        let path = mounted.display().to_string();
        let args = pod["containers"][0]["args"].as_array().unwrap();
        let args =
            args.iter().map(|it| if it == "/manifests" { path.as_str() } else { it.as_str().unwrap() });
        let mut command = bare(&args.collect::<Vec<_>>());
        command.env("KUBECONFIG", &self.kubeconfig);
        command
    }

    async fn write_secret(&self, name: &str, values: &Value) {
        let metadata = json!({"name": name, "namespace": self.namespace});
        apply(
            &self.client,
            &json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": values}),
        )
        .await;
    }

    /// The Secrets of the provisioner keys.
    async fn keys(&self) -> [Secret; 2] {
        let secrets = Api::<Secret>::namespaced(self.client.clone(), &self.namespace);
        let [alpha, bravo] = KEYS.map(|it| format!("{it}-provisioner-key"));
        [secrets.get(&alpha).await.unwrap(), secrets.get(&bravo).await.unwrap()]
    }

    /// A job of GitLab CI over the folder as it stands in Git: no cluster, no Secret, only an address and a token.
    fn gate(&self, job: &str, files: &str, session: [&str; 2]) -> Command {
        let script = self.folder.write("script", &gitlab(job));
        let mut command = Command::new("bash");
        command.args(["-e", &script]).current_dir(&self.folder.0).env("PATH", ci::path());
        command.env("HOME", "/nowhere").env("NO_PROXY", "127.0.0.0/8").env_remove("KUBECONFIG");
        let [url, token] = session;
        command.envs([("FILES", files), ("DEPLOYMENT", url), ("CODER_SESSION_TOKEN", token)]);
        command
    }
}

#[test]
fn edit_of_the_manifests_alone_is_another_job() {
    let folder = copied("argo-content", "https://coder.example.com");
    let content = |job: &str| {
        let objects = built(&folder);
        let job = find(&objects, "Job", job);
        let content = job["metadata"]["annotations"]["coder.com/content"].as_str().unwrap().to_owned();
        let volume = &job["spec"]["template"]["spec"]["volumes"][0]["configMap"]["name"];
        assert_eq!(*volume, json!(content), "the annotation names the ConfigMap of the volume");
        content
    };
    let (state, keys) = (content("coder-state"), content("coder-bootstrap"));
    let text = fs::read_to_string(folder.0.join("state.yaml")).unwrap();
    folder.write("state.yaml", &text.replace("Mission Partner Alpha", "Team Alpha"));
    assert_ne!(content("coder-state"), state);
    assert_eq!(content("coder-bootstrap"), keys, "the manifests of the other Job are the same");
}

#[test]
fn push_secret_reads_what_the_bootstrap_job_writes() {
    let objects = built(&copied("argo-push", "https://coder.example.com"));
    let keys = find(&objects, "ConfigMap", "coder-keys")["data"]["keys.yaml"].as_str().unwrap();
    let keys: Vec<Value> = serde_saphyr::from_multiple(keys).unwrap();
    for name in KEYS {
        let key = find(&keys, "CoderProvisionerKey", name);
        let push = &find(&objects, "PushSecret", name)["spec"];
        assert_eq!(push["selector"]["secret"]["name"], key["spec"]["secretName"]);
        assert_eq!(push["data"][0]["match"]["secretKey"], "key", "the default of secretKey");
        // The values that keep an entry of the store.
        assert_eq!((&push["updatePolicy"], &push["deletionPolicy"]), (&json!("IfNotExists"), &json!("None")));
    }
}

#[tokio::test]
async fn push_secrets_are_as_external_secrets_wants_them() {
    let bed = testbed::shared().unwrap();
    let client = bed.client().await.unwrap();
    let file = testbed::parts::push_secrets(&|_| ()).unwrap();
    let crd: CustomResourceDefinition = serde_saphyr::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    define(&client, &crd).await;
    let namespace = bed.namespace("argo-push-secrets").await.unwrap();
    let objects = built(&copied("argo-push-crd", "https://coder.example.com"));
    let pushes: Vec<&Value> = objects.iter().filter(|it| it["kind"] == "PushSecret").collect();
    assert_eq!(pushes.len(), KEYS.len());
    let gvk = GroupVersionKind::gvk("external-secrets.io", "v1alpha1", "PushSecret");
    let api: Api<DynamicObject> = Api::namespaced_with(client, &namespace, &ApiResource::from_gvk(&gvk));
    // A field that the definition does not know is an error.
    let params = PatchParams::apply("test").validation_strict();
    let create = async |push: &Value| {
        api.patch(push["metadata"]["name"].as_str().unwrap(), &params, &Patch::Apply(push)).await
    };
    for push in pushes {
        create(push).await.unwrap();
        let mut unknown = push.clone();
        unknown["metadata"]["name"] = json!("unknown");
        unknown["spec"]["secretStore"] = json!("aws");
        assert!(create(&unknown).await.unwrap_err().to_string().contains("secretStore"));
    }
}

#[tokio::test]
async fn argo_jobs_wait_for_coder_write_once_and_live_beside_a_controller() {
    let coderd = licensed().await;
    let proxy = Proxy::start(&coderd.owner.url).await;
    let jobs = Jobs::new("argo-jobs", &proxy.url).await;
    jobs.write_secret("coder-automation", &json!({"token": coderd.owner.token})).await;
    jobs.write_secret("ai-keys", &json!({"anthropic": "key-argo-0123456789-abcdefgh"})).await;

    // coderd is not up when the sync is done.
    proxy.set(Mood::Down);
    let early = tokio::spawn(expect(jobs.command("coder-state"), 0));
    until("the Job asks", || proxy.requests().len() >= 3).await;
    proxy.set(Mood::Passing);
    let told = early.await.unwrap();
    assert!(told.contains("7 applied in "), "{told}");
    assert_eq!(get(&coderd, "/api/v2/organizations/alpha").await["display_name"], "Mission Partner Alpha");

    let told = expect(jobs.command("coder-bootstrap"), 0).await;
    assert!(told.contains("2 applied in "), "{told}");
    let first = jobs.keys().await;
    let writes = proxy.writes().len();
    for job in ["coder-state", "coder-bootstrap"] {
        let told = expect(jobs.command(job), 0).await;
        assert!(told.contains(" equal in ") && !told.contains("applied in"), "{told}");
    }
    assert_eq!(proxy.writes().len(), writes, "the second run changes nothing");
    assert_eq!(jobs.keys().await, first);

    // The gate of CI: equal, then a change by hand, which the next Job heals.
    // Only a cluster knows of the keys.
    let gate = |job, files| jobs.gate(job, files, [&proxy.url, &coderd.owner.token]);
    let verify = || gate("coder-operator-verify", "plane.yaml state.yaml");
    expect(gate("coder-operator-validate", "plane.yaml state.yaml keys.yaml"), 0).await;
    let told = expect(verify(), 0).await;
    assert!(told.contains("ai-keys"), "the Secret that was not compared is named: {told}");
    let by_hand = json!({"display_name": "Changed by hand"});
    request(&coderd.owner, Method::PATCH, "/api/v2/organizations/alpha", Some(&by_hand)).await;
    let told = expect(verify(), 3).await;
    assert!(told.contains("Changed by hand"), "{told}");
    let told = expect(jobs.command("coder-state"), 0).await;
    assert!(told.contains("1 applied, 6 equal in "), "{told}");
    expect(verify(), 0).await;
    let writes = proxy.writes().len();

    // A controller beside the Jobs, with the same manifests.
    let operator = Operator::start(&jobs.namespace, &[]);
    let stage = Stage { client: jobs.client.clone(), namespace: jobs.namespace.clone(), coderd, operator };
    let mut manifests = Vec::new();
    for (map, file) in
        [("coder-state", "plane.yaml"), ("coder-state", "state.yaml"), ("coder-keys", "keys.yaml")]
    {
        let text = find(&jobs.objects, "ConfigMap", map)["data"][file].as_str().unwrap().to_owned();
        manifests.extend(serde_saphyr::from_multiple::<Value>(&text).unwrap());
    }
    for manifest in &manifests {
        stage.apply(manifest).await;
    }
    for manifest in &manifests {
        let (kind, name) =
            (manifest["kind"].as_str().unwrap(), manifest["metadata"]["name"].as_str().unwrap());
        stage.wait_for(kind, name, "ready", is_ready).await;
    }
    for job in ["coder-state", "coder-bootstrap"] {
        let told = expect(jobs.command(job), 0).await;
        assert!(told.contains(" equal in ") && !told.contains("applied in"), "{told}");
    }
    let again = stage.look_again("CoderGroup", "alpha-developers").await;
    assert!(is_ready(&again), "{again:#}");
    let of_state = |it: &&String| !it.contains("/keys/tokens") && !it.contains("/users");
    assert_eq!(proxy.writes().iter().filter(of_state).count(), writes, "{:?}", proxy.writes());
    assert_eq!(jobs.keys().await.map(|it| it.data), first.map(|it| it.data), "the keys are the same");
}
