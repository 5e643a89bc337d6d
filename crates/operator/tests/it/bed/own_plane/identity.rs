//! Who a Coder of ours is: another database under it, and a status that was lost.

use api::CoderControlPlane;
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Patch, PatchParams};
use reqwest::Method;
use serde_json::json;
use testbed::Session;

use super::ground::{Ground, give_licence, license, licensed, ours, owner, process, running, stage, token};
use crate::bed::{
    operator::writes,
    stage::{eventually, is_held_up, is_ready, says, words},
};

async fn licences(owner: &Session) -> Vec<i64> {
    let found = owner.request(Method::GET, "/api/v2/licenses", None).await.unwrap().1;
    found.as_array().unwrap().iter().map(|it| it["id"].as_i64().unwrap()).collect()
}

/// Whether anybody has an account at what the Service leads to.
async fn has_users(stage: &Ground) -> bool {
    let url = format!("http://main.{}.svc.cluster.local/api/v2/users/first", stage.namespace);
    let http = testbed::shared().unwrap().http_by_name().unwrap();
    http.get(url).send().await.unwrap().status() == 200
}

#[tokio::test]
async fn another_database_is_not_touched_until_a_person_accepts_it_and_then_has_everything() {
    let stage = stage().await;
    stage.apply(&licensed()).await;
    license(&stage).await;
    let before = stage.wait::<CoderControlPlane>("main", "ready", is_ready).await;
    let (known, held) = (&before["status"]["deploymentID"], token(&stage).await);

    let database = testbed::shared().unwrap().database().await.unwrap();
    stage.write_secret("coder-db", &json!({"url": database})).await;
    let told = stage.wait::<CoderControlPlane>("main", "another one", is_held_up("DeploymentChanged")).await;
    assert_eq!(&told["status"]["deploymentID"], known, "what was known stays known");
    assert!(says(&told, "Stalled", "True", "DeploymentChanged"), "{told:#}");
    give_licence(&stage).await;
    // The pod of before is gone. When the Deployment has counted that, nothing is left to be said.
    let deployments = stage.api::<Deployment>();
    let counts = async || deployments.get("main").await.unwrap().status.unwrap();
    eventually("counted", counts, |it| {
        (it.replicas, it.updated_replicas, it.ready_replicas) == (Some(1), Some(1), Some(1))
    })
    .await;
    stage.look_again("CoderControlPlane", "main").await;
    let written = writes(&stage.namespace).await.len();
    for _ in 0..3 {
        let told = stage.look_again("CoderControlPlane", "main").await;
        assert!(is_held_up("DeploymentChanged")(&told), "{told:#}");
    }
    assert!(!has_users(&stage).await, "nothing was written there");
    assert_eq!(token(&stage).await, held, "the token of the one before is kept");
    let written = writes(&stage.namespace).await.split_off(written);
    assert_eq!(written.len(), 3, "the echo of each annotation and nothing else: {written:#?}");

    let id = words(&told).rsplit(' ').next().unwrap().to_owned();
    stage.annotate("CoderControlPlane", "main", api::annotation::ACCEPT_DEPLOYMENT, Some(&id)).await;
    let accepted = stage.wait::<CoderControlPlane>("main", "accepted", is_ready).await;
    assert_eq!(accepted["status"]["deploymentID"], id);
    assert_eq!(accepted["status"]["licenseTier"], "premium");
    let owner = owner(&stage, "main").await;
    let had = ours(&owner).await;
    assert_eq!((had.accounts.len(), had.tokens.len()), (1, 1), "{had:?}");
    assert_ne!(token(&stage).await, held);
    assert_eq!(licences(&owner).await.len(), 1);

    // A status that is lost, as by a backup that does not hold it, is filled again and nothing is done twice.
    let same = (had, licences(&owner).await, running(&stage, "main").await, process(&stage, "main").await);
    let nothing = Patch::Merge(json!({"status": null}));
    stage.kind("CoderControlPlane").patch_status("main", &PatchParams::default(), &nothing).await.unwrap();
    let filled = stage.wait::<CoderControlPlane>("main", "filled again", is_ready).await;
    for field in ["deploymentID", "operatorAccountID", "version", "databaseVersion", "licenseTier", "url"] {
        let now = &filled["status"][field];
        assert!(now.is_string() && *now == accepted["status"][field], "{field}: {filled:#}");
    }
    let now = (
        ours(&owner).await,
        licences(&owner).await,
        running(&stage, "main").await,
        process(&stage, "main").await,
    );
    assert_eq!(now, same);

    // A Secret with a licence that goes and comes back is told, and installs nothing a second time.
    let secrets = stage.api::<k8s_openapi::api::core::v1::Secret>();
    let kept = secrets.get("coder-license").await.unwrap().data.unwrap().remove("license").unwrap();
    secrets.delete("coder-license", &kube::api::DeleteParams::default()).await.unwrap();
    let told = stage.wait::<CoderControlPlane>("main", "without", is_held_up("LicenseNotApplied")).await;
    assert!(words(&told).contains("Secret"), "{}", words(&told));
    assert_eq!(told["status"]["operatorAccessReady"], true);
    stage.write_secret("coder-license", &json!({"license": String::from_utf8(kept.0).unwrap()})).await;
    stage.wait::<CoderControlPlane>("main", "ready again", is_ready).await;
    assert_eq!(licences(&owner).await, same.1);
}
