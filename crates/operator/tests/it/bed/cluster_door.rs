//! The command line without `--url`: control planes and Secrets in files, in the cluster, on the command line.

use std::process::{Command, Output};

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, api::PostParams};
use serde_json::{Value, json};
use testbed::{Coderd, coderd::FIRST_USER_EMAIL, shared::parts};

use super::{
    asked::deployment,
    get, licensed,
    proxy::Proxy,
    service_account::{Account, documents, wait_until_allowed},
    stage::install,
};
use crate::{
    support::{Folder, bare, said},
    terminal::Terminal,
};

/// Every session and token of a deployment, as its database has them.
async fn keys(coderd: &Coderd) -> String {
    let psql = parts().unwrap().postgres.program("psql");
    let mut command = tokio::process::Command::new(psql);
    command.args(["--tuples-only", "--no-align", "--command", "select id from api_keys order by id"]);
    let output = command.arg(&coderd.database).env_clear().output().await.unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn plane(namespace: &str, name: &str, url: &str, secret: &str) -> String {
    format!(
        "---\napiVersion: coder.com/v1alpha1\nkind: CoderControlPlane\nmetadata: {{name: {name}, namespace: {namespace}}}\nspec:\n  external: {{url: \"{url}\", credentialsSecretRef: {{name: {secret}}}}}\n"
    )
}

fn organization(namespace: &str, name: &str, plane: &str) -> String {
    format!(
        "---\napiVersion: coder.com/v1alpha1\nkind: CoderOrganization\nmetadata: {{name: {name}, namespace: {namespace}}}\nspec: {{controlPlaneRef: {{name: {plane}}}}}\n"
    )
}

fn token(namespace: &str, name: &str, token: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: Secret\nmetadata: {{name: {name}, namespace: {namespace}}}\nstringData: {{token: \"{token}\"}}\n"
    )
}

fn account(coderd: &Coderd) -> String {
    format!(
        "---\napiVersion: v1\nkind: Secret\nmetadata: {{name: coder, namespace: a}}\nstringData: {{email: {FIRST_USER_EMAIL}, password: \"{}\"}}\n",
        coderd.password
    )
}

async fn output(mut command: Command) -> Output {
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

pub(super) async fn expect(command: Command, expected: i32) -> String {
    let output = output(command).await;
    assert_eq!(output.status.code(), Some(expected), "{}", said(&output));
    said(&output)
}

#[tokio::test]
async fn files_alone_are_enough_and_the_token_of_the_environment_stays_at_home() {
    let coderd = licensed().await;
    let folder = Folder::new("door-files");
    let text = [
        organization("a", "alpha", "main"),
        plane("a", "main", &coderd.owner.url, "coder"),
        token("a", "coder", &coderd.owner.token),
    ];
    let file = folder.write("set.yaml", &text.concat());
    let mut command = bare(&["apply", "--yes", "-f", &file]);
    // It would be refused, if it were sent.
    command.env("KUBECONFIG", "/nowhere").env("CODER_SESSION_TOKEN", "0123456789-0123456789012345678901");
    let told = expect(command, 0).await;
    assert!(!told.contains(&coderd.owner.token), "{told}");
    assert!(
        told.contains(&format!("Deployment {}, CoderControlPlane a/main\n", deployment(&coderd).await)),
        "{told}"
    );
    assert_eq!(get(&coderd, "/api/v2/organizations/alpha").await["name"], "alpha");
    expect(bare(&["verify", "-f", &file]), 0).await;
}

#[tokio::test]
async fn what_is_not_in_the_files_is_read_from_the_cluster() {
    let coderd = licensed().await;
    let bed = testbed::shared().unwrap();
    let client = bed.client().await.unwrap();
    install(&client).await;
    let namespace = bed.namespace("door").await.unwrap();
    // Somebody who has no other rights than those that the command line needs.
    let person = Account::named(&namespace, "deploys");
    person.create(&client).await;
    person.add_rules(&client, &namespace, &documents("cli.yaml")[0]["rules"]).await;
    let kubeconfig = person.kubeconfig(bed, &client).await;
    let as_person = testbed::kubernetes::client(&kubeconfig).await.unwrap();
    wait_until_allowed(&as_person, &namespace, ("", "secrets", "get")).await;
    let folder = Folder::new("door-cluster");
    let file = folder.write("set.yaml", &organization(&namespace, "alpha", "main"));
    let in_cluster = |args: &[&str]| {
        let mut command = bare(args);
        command.env("KUBECONFIG", &kubeconfig);
        command
    };
    let missing = expect(in_cluster(&["plan", "-f", &file]), 5).await;
    let words = format!("set.yaml:2: CoderControlPlane {namespace}/main: it is neither in the files nor in");
    assert!(missing.contains(&words), "{missing}");

    let planes = Api::<api::CoderControlPlane>::namespaced(client.clone(), &namespace);
    let main = json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderControlPlane", "metadata": {"name": "main"},
        "spec": {"external": {"url": coderd.owner.url, "credentialsSecretRef": {"name": "coder"}}}});
    planes.create(&PostParams::default(), &serde_json::from_value(main).unwrap()).await.unwrap();
    let missing = expect(in_cluster(&["plan", "-f", &file]), 5).await;
    assert!(missing.contains("there is no Secret coder: create it"), "{missing}");

    let secrets = Api::<Secret>::namespaced(client, &namespace);
    let wrong =
        json!({"metadata": {"name": "coder"}, "stringData": {"token": "0123456789-0123456789012345678901"}});
    secrets.create(&PostParams::default(), &serde_json::from_value(wrong).unwrap()).await.unwrap();
    let refused = expect(in_cluster(&["plan", "-f", &file]), 1).await;
    assert!(refused.contains("Unauthorized"), "{refused}");

    // Files win over the cluster, and the command line wins over both.
    let right = folder.write("secret.yaml", &token(&namespace, "coder", &coderd.owner.token));
    expect(in_cluster(&["plan", "--exit-code", "-f", &file, "-f", &right]), 3).await;
    let mut command = in_cluster(&["apply", "--yes", "--secret", "coder/token=env:THE_TOKEN", "-f", &file]);
    command.env("THE_TOKEN", format!("{}\n", coderd.owner.token));
    expect(command, 0).await;
    assert_eq!(get(&coderd, "/api/v2/organizations/alpha").await["name"], "alpha");
}

#[tokio::test(flavor = "multi_thread")]
async fn several_control_planes_are_served_by_one_command_each_with_its_own_way() {
    let (one, two) = tokio::join!(licensed(), licensed());
    let folder = Folder::new("door-several");
    let text = [
        organization("a", "alpha", "main"),
        organization("b", "alpha", "main"),
        plane("a", "main", &one.owner.url, "coder"),
        plane("b", "main", &two.owner.url, "coder"),
        token("a", "coder", &one.owner.token),
        token("b", "coder", &two.owner.token),
    ];
    let file = folder.write("set.yaml", &text.concat());
    let told = expect(bare(&["apply", "--yes", "-f", &file]), 0).await;
    for words in [
        format!("Deployment {}, CoderControlPlane a/main\n", deployment(&one).await),
        format!("Deployment {}, CoderControlPlane b/main\n", deployment(&two).await),
        "2 to change".to_owned(),
        format!("1 applied in {}\n", deployment(&one).await),
        format!("1 applied in {}\n", deployment(&two).await),
    ] {
        assert!(told.contains(&words), "{words:?} is not in:\n{told}");
    }
    for coderd in [&one, &two] {
        assert_eq!(get(coderd, "/api/v2/organizations/alpha").await["name"], "alpha");
    }
    let plan: Value =
        serde_json::from_str(&expect(bare(&["verify", "-o", "json", "-f", &file]), 0).await).unwrap();
    let planes: Vec<&Value> =
        plan["objects"].as_array().unwrap().iter().map(|it| &it["controlPlane"]).collect();
    let expected = async |namespace: &str, coderd: &Coderd| {
        let build = get(coderd, "/api/v2/buildinfo").await;
        json!({"namespace": namespace, "name": "main", "url": format!("{}/", coderd.owner.url),
            "version": build["version"], "deploymentID": build["deployment_id"]})
    };
    let expected = [expected("a", &one).await, expected("b", &two).await];
    assert_eq!(planes, [&expected[0], &expected[1]]);
    assert_eq!(plan["deployments"], json!(expected));
    let yaml = expect(bare(&["plan", "--quiet", "-o", "yaml", "-f", &file]), 0).await;
    let yaml: Value = serde_saphyr::from_str(&yaml).unwrap();
    assert_eq!(yaml["deployments"], json!(expected));
    replaced_deployment_is_not_changed(&one, &two).await;
}

/// The deployment that the question named is replaced by another one before the answer.
async fn replaced_deployment_is_not_changed(one: &Coderd, two: &Coderd) {
    let proxy = Proxy::start(&one.owner.url).await;
    let folder = Folder::new("door-replaced");
    let text = [
        organization("a", "bravo", "main"),
        plane("a", "main", &proxy.url, "coder"),
        token("a", "coder", &one.owner.token),
    ];
    let file = folder.write("set.yaml", &text.concat());
    let mut terminal = Terminal::start(bare(&["apply", "-f", &file]));
    terminal.wait_for("Only `yes` is accepted: ");
    proxy.turn_to(&two.owner.url);
    terminal.type_line("yes");
    let (exit, _, screen) = terminal.end();
    assert_eq!(exit, Some(5), "{screen}");
    assert!(screen.contains("another deployment answers"), "{screen}");
    assert_eq!(proxy.writes(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_is_signed_in_for_the_command_and_out_at_its_end_however_it_ends() {
    let coderd = licensed().await;
    let proxy = Proxy::start(&coderd.owner.url).await;
    let folder = Folder::new("door-account");
    let set = |organization: String| {
        [organization, plane("a", "main", &proxy.url, "coder"), account(&coderd)].concat()
    };
    let file = folder.write("set.yaml", &set(organization("a", "alpha", "main")));
    let before = keys(&coderd).await;
    let signed_out = |times: usize| {
        let requests = proxy.requests();
        let count = |path: &str| requests.iter().filter(|it| it.path == path).count();
        assert_eq!((count("/api/v2/users/login"), count("/api/v2/users/logout")), (times, times));
    };

    let told = expect(bare(&["plan", "--exit-code", "-f", &file]), 3).await;
    assert!(!told.contains(&coderd.password), "{told}");
    signed_out(1);
    assert_eq!(keys(&coderd).await, before);

    let mut terminal = Terminal::start(bare(&["apply", "-f", &file]));
    terminal.wait_for("Only `yes` is accepted: ");
    assert_ne!(keys(&coderd).await, before);
    terminal.interrupt();
    let (exit, _, screen) = terminal.end();
    assert_eq!(exit, Some(1), "{screen}");
    assert!(screen.contains("interrupted"), "{screen}");
    signed_out(2);
    assert_eq!(keys(&coderd).await, before);

    // Its second plane cannot be had: the way to the first one is closed again.
    let two = [set(organization("a", "alpha", "main")), organization("a", "bravo", "other")].concat();
    let file = folder.write("two.yaml", &two);
    expect(bare(&["plan", "-f", &file]), 2).await;
    signed_out(3);
    assert_eq!(keys(&coderd).await, before);
}

#[tokio::test]
async fn another_deployment_than_the_known_one_gets_no_credentials() {
    let coderd = licensed().await;
    let proxy = Proxy::start(&coderd.owner.url).await;
    let folder = Folder::new("door-other");
    let known = "status: {deploymentID: 00000000-0000-0000-0000-000000000001}\n";
    let set = |secret: String| {
        let plane = plane("a", "main", &proxy.url, "coder") + known;
        [organization("a", "alpha", "main"), plane, secret].concat()
    };
    let anonymous = ["/api/v2/buildinfo", "/api/v2/entitlements"];
    for secret in [account(&coderd), token("a", "coder", &coderd.owner.token)] {
        let file = folder.write("set.yaml", &set(secret));
        let told = expect(bare(&["apply", "--yes", "-f", &file]), 5).await;
        assert!(told.contains("another deployment answers"), "{told}");
    }
    let others = proxy.requests().into_iter().filter(|it| !anonymous.contains(&it.path.as_str()));
    assert_eq!(others.count(), 0);
}

#[tokio::test]
async fn a_password_that_is_wrong_is_told_without_it() {
    let coderd = licensed().await;
    let folder = Folder::new("door-password");
    let text = [
        organization("a", "alpha", "main"),
        plane("a", "main", &coderd.owner.url, "coder"),
        account(&coderd),
    ];
    let file = folder.write("set.yaml", &text.concat().replace(&coderd.password, "hunter2"));
    let told = expect(bare(&["plan", "-f", &file]), 1).await;
    assert!(
        told.contains("set.yaml:2: CoderControlPlane a/main: sign in with the account of its Secret: "),
        "{told}"
    );
    assert!(told.contains("401 Unauthorized: Incorrect email or password"), "{told}");
    assert!(!told.contains("hunter2"), "{told}");
}
