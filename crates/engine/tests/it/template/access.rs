//! Who may use a template: groups of other organizations, and users whom Coder does not show.

use reqwest::Method;
use serde_json::{Value, json};

use super::{Scene, template};
use crate::support::assess;

impl Scene {
    async fn access_path(&self, manifest: &Value) -> String {
        format!("/api/v2/templates/{}/acl", self.remote(manifest).await["id"].as_str().unwrap())
    }

    async fn group(&self, organization: &str, name: &str) -> String {
        let path = format!("/api/v2/organizations/{organization}/groups");
        let group = self.by_hand(Method::POST, &path, &json!({"name": name})).await;
        group["id"].as_str().unwrap().to_owned()
    }
}

#[tokio::test]
async fn group_of_another_organization_is_not_the_declared_one() {
    let scene = Scene::new().await;
    scene.by_hand(Method::POST, "/api/v2/organizations", &json!({"name": "other"})).await;
    let (ours, foreign) = (scene.group("default", "devs").await, scene.group("other", "devs").await);
    let mut manifest = template(&json!({"acl": {"groups": {"devs": "use"}}}));
    scene.published(&mut manifest).await;
    let path = scene.access_path(&manifest).await;
    for ours_by_hand in ["", "use"] {
        let change = json!({"group_perms": {(&ours): ours_by_hand, (&foreign): "use"}});
        scene.by_hand(Method::PATCH, &path, &change).await;
        let told = format!("{:?}", assess(&manifest, &scene.coder.anew()).await);
        assert!(told.contains("other/devs"), "{told}");
        scene.applied(&mut manifest).await;
        let access = scene.by_hand(Method::GET, &path, &json!(null)).await;
        let groups: Vec<&Value> = access["group"].as_array().unwrap().iter().map(|it| &it["id"]).collect();
        assert_eq!(groups, [&json!(ours)], "{ours_by_hand:?}");
    }
}

#[tokio::test]
async fn suspended_user_is_compared_once_active_again() {
    let scene = Scene::new().await;
    let bob = scene.person("bob").await;
    let mut manifest = template(&json!({"acl": {"users": {"bob@coder.test": "use"}}}));
    scene.published(&mut manifest).await;
    let path = scene.access_path(&manifest).await;
    scene.edit_person("bob", |it| it.status = "suspended".to_owned());
    scene.equal(&mut manifest).await;
    let change = json!({"user_perms": {bob.as_str().unwrap(): "admin"}});
    scene.by_hand(Method::PATCH, &path, &change).await;
    scene.equal(&mut manifest).await;
    scene.edit_person("bob", |it| it.status = "active".to_owned());
    scene.applied(&mut manifest).await;
    let access = scene.by_hand(Method::GET, &path, &json!(null)).await;
    assert_eq!((&access["users"][0]["id"], &access["users"][0]["role"]), (&bob, &json!("use")));
}
