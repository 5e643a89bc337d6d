//! The command line as a Job: what a deployment needs from nothing, with Secrets in the cluster and a controller beside it.

use std::{collections::BTreeSet, path::PathBuf, process::Command};

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, api::PostParams};
use serde_json::{Value, json};
use testbed::{
    Coderd, Flavour,
    coderd::{FIRST_USER_EMAIL, sign_license},
};

use super::{
    cluster_door::expect,
    get, licensed,
    operator::Operator,
    service_account::{Account, documents, wait_until_allowed},
    stage::{Stage, install, is_ready, plane},
};
use crate::support::{Folder, bare};

const SECRET: &str = "eks-provisioner-key";

/// A Job's account in a namespace of its own: it has the rights that are shipped for the command line, and no others.
pub(super) struct Job {
    pub(super) client: Client,
    pub(super) namespace: String,
    kubeconfig: PathBuf,
    folder: Folder,
}

impl Job {
    pub(super) async fn new(name: &str) -> Self {
        let bed = testbed::shared().unwrap();
        let client = bed.client().await.unwrap();
        install(&client).await;
        let namespace = bed.namespace(name).await.unwrap();
        Self::in_namespace(&client, &namespace, name).await
    }

    /// The same in a namespace that is there. `name` is that of the folder for the manifests.
    pub(super) async fn in_namespace(client: &Client, namespace: &str, name: &str) -> Self {
        let (bed, client, namespace) = (testbed::shared().unwrap(), client.clone(), namespace.to_owned());
        let account = Account::named(&namespace, "deploys");
        account.create(&client).await;
        account.add_rules(&client, &namespace, &documents("cli.yaml")[0]["rules"]).await;
        let kubeconfig = account.kubeconfig(bed, &client).await;
        // In a pod, the namespace of the client is that of the pod.
        let mut config: Value = serde_json::from_str(&std::fs::read_to_string(&kubeconfig).unwrap()).unwrap();
        config["contexts"][0]["context"]["namespace"] = json!(namespace);
        std::fs::write(&kubeconfig, config.to_string()).unwrap();
        let as_job = testbed::kubernetes::client(&kubeconfig).await.unwrap();
        wait_until_allowed(&as_job, &namespace, ("", "secrets", "create")).await;
        Self { client, namespace, kubeconfig, folder: Folder::new(name) }
    }

    pub(super) async fn write_secret(&self, name: &str, values: &Value) {
        let secret = json!({"metadata": {"name": name}, "stringData": values});
        let secrets = Api::<Secret>::namespaced(self.client.clone(), &self.namespace);
        secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
    }

    /// The manifests as a file.
    pub(super) fn write(&self, manifests: &[Value]) -> String {
        let document = |manifest: &Value| {
            let mut manifest = manifest.clone();
            manifest["metadata"]["namespace"] = self.namespace.clone().into();
            format!("---\n{manifest}\n")
        };
        self.folder.write("set.yaml", &manifests.iter().map(document).collect::<String>())
    }

    pub(super) fn command(&self, args: &[&str]) -> Command {
        let mut command = bare(args);
        command.env("KUBECONFIG", &self.kubeconfig);
        command
    }

    async fn secret(&self) -> Secret {
        Api::<Secret>::namespaced(self.client.clone(), &self.namespace).get(SECRET).await.unwrap()
    }
}

fn manifest(kind: &str, name: &str, spec: &Value) -> Value {
    let mut whole = json!({"controlPlaneRef": {"name": "main"}});
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    json!({"apiVersion": "coder.com/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": whole})
}

/// The names of the keys in the organization `alpha`.
async fn keys(coderd: &Coderd) -> Vec<String> {
    let found = get(coderd, "/api/v2/organizations/alpha/provisionerkeys").await;
    let names = found.as_array().into_iter().flatten().map(|it| it["name"].as_str().unwrap().to_owned());
    let mut names: Vec<String> = names.filter(|it| it.starts_with("eks")).collect();
    names.sort();
    names
}

/// The value in a Secret.
fn value(secret: &Secret) -> Vec<u8> {
    secret.data.as_ref().unwrap()["key"].0.clone()
}

/// Without anything to refer to, some objects wait: what counts is that none is left out.
#[tokio::test]
async fn plan_of_the_examples_shows_every_kind() {
    let (job, coderd) = (Job::new("plan-of-the-examples").await, licensed().await);
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/kinds");
    let mut command =
        job.command(&["plan", "--quiet", "-o", "json", "--url", &coderd.owner.url, "-f", folder]);
    command.env("CODER_SESSION_TOKEN", &coderd.owner.token);
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    let plan: Value = serde_json::from_str(&shown).unwrap_or_else(|error| {
        panic!("{error}: {shown} {}", String::from_utf8_lossy(&output.stderr));
    });
    let kinds: BTreeSet<&str> =
        plan["objects"].as_array().unwrap().iter().map(|it| it["kind"].as_str().unwrap()).collect();
    let all = api::crds();
    let all: BTreeSet<&str> = all.iter().map(|it| it.spec.names.kind.as_str()).collect();
    assert_eq!(kinds, all, "{shown}");
}

#[tokio::test]
async fn job_bootstraps_licence_organization_and_key_and_a_controller_takes_them_over() {
    let coderd = testbed::shared().unwrap().coderd(Flavour::Licensed).await.unwrap();
    let job = Job::new("job").await;
    let license =
        sign_license(coderd.licenses.as_ref().unwrap(), &json!({"feature_set": "premium"})).await.unwrap();
    let account = json!({"email": FIRST_USER_EMAIL, "password": coderd.password});
    job.write_secret("coder-automation", &account).await;
    let mut main = plane("main", &coderd.owner.url);
    main["spec"]["licenseSecretRef"] = json!({"name": "license"});
    let set = [
        main,
        manifest("CoderOrganization", "alpha", &json!({})),
        manifest("CoderProvisionerKey", "eks", &json!({"organization": "alpha", "tags": {"site": "bed"}})),
    ];
    let file = job.write(&set);
    let told = expect(job.command(&["plan", "-f", &file]), 5).await;
    assert!(told.contains("SecretMissing") && told.contains("needs a Premium licence"), "{told}");

    job.write_secret("license", &json!({"license": license})).await;
    let mut observed = set[0].clone();
    observed["spec"]["mode"] = "Observe".into();
    let file = job.write(&[observed]);
    let told = expect(job.command(&["apply", "--yes", "-f", &file]), 0).await;
    assert!(told.contains("1 observed"), "{told}");
    assert_eq!(get(&coderd, "/api/v2/licenses").await, json!([]), "mode is Observe");

    let file = job.write(&set);
    let apply = ["apply", "--wait", "--yes", "-f", file.as_str()];
    let told = expect(job.command(&apply), 0).await;
    assert!(told.contains("3 applied in "), "{told}");
    assert!(told.contains("Secrets are read and written in the cluster"), "{told}");
    assert_eq!(get(&coderd, "/api/v2/organizations/alpha").await["name"], "alpha");
    let (minted, first) = (keys(&coderd).await, job.secret().await);
    assert_eq!(minted, ["eks"]);
    let secrets = [license.clone(), String::from_utf8(value(&first)).unwrap(), coderd.password.clone()];
    assert!(!secrets.iter().any(|it| told.contains(it)), "nothing secret is printed");

    // Again: nothing is to be done, and nothing is written.
    let told = expect(job.command(&apply), 0).await;
    assert!(told.contains("3 equal in "), "{told}");
    expect(job.command(&["verify", "-f", &file]), 0).await;
    assert_eq!(job.secret().await.metadata.resource_version, first.metadata.resource_version);

    // A controller comes, and goes on with the same key.
    let operator = Operator::start(&job.namespace, &[]);
    let Job { client, namespace, .. } = &job;
    let stage = Stage { client: client.clone(), namespace: namespace.clone(), coderd, operator };
    for manifest in &set {
        stage.apply(manifest).await;
    }
    let held = stage.wait_for("CoderProvisionerKey", "eks", "ready", is_ready).await;
    assert_eq!(held["status"]["provisionerKeyName"], "eks");
    assert_eq!(keys(&stage.coderd).await, minted);
    assert_eq!(value(&job.secret().await), value(&first));

    // The Job beside it does no harm, nor does the controller to the Job.
    let told = expect(job.command(&apply), 0).await;
    assert!(told.contains("3 equal in "), "{told}");
    let rotated_at = json!({"coder.com/rotate-requested-at": "now"});
    let mut asked = set.clone();
    asked[2]["metadata"]["annotations"] = rotated_at;
    let file = job.write(&asked);
    let told = expect(job.command(&["apply", "--yes", "-f", &file]), 0).await;
    assert!(told.contains("1 applied"), "{told}");
    let second = job.secret().await;
    assert_ne!(value(&second), value(&first));
    let is_second = |it: &Value| is_ready(it) && it["status"]["provisionerKeyName"] != "eks";
    let held = stage.wait_for("CoderProvisionerKey", "eks", "with the Job's key", is_second).await;
    assert_eq!(value(&job.secret().await), value(&second), "the controller has minted none: {held:#}");
    // The old key is valid until the overlap is over. Should both have begun at once, the key that neither keeps is on record, too.
    let record = job.secret().await.metadata.annotations.unwrap_or_default();
    let record = &record[api::annotation::PROVISIONER_KEY];
    let minted = keys(&stage.coderd).await;
    assert!(minted.len() >= 2, "{minted:?}");
    for name in minted {
        assert!(record.contains(&format!("\"{name}\"")), "{name} is not in {record}");
    }
}
