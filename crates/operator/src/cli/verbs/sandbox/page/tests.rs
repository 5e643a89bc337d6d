//! What the page shows, and what it must not.

use std::{collections::BTreeMap, sync::Arc};

use jiff::{SignedDuration, Timestamp};
use secrecy::ExposeSecret as _;
use sim::Options;

use super::*;

/// A deployment with an owner and a licence, and that licence.
async fn deployment() -> (Coder, String) {
    let coder = Coder::new(Options::new(Arc::new(Timestamp::now)));
    let user = json!({"email": "o@example.com", "username": "o", "password": "one-long-passw0rd-of-21"});
    let anonymous = Caller { coder: &coder, token: None, user_agent: START };
    anonymous.send(Method::POST, "/api/v2/users/first", &user).await.unwrap();
    let license = coder.sign_license(&serde_json::Map::new());
    let owner = owner(&coder, START);
    owner.send(Method::POST, "/api/v2/licenses", &json!({"license": license})).await.unwrap();
    (coder, license)
}

fn owner<'a>(coder: &'a Coder, user_agent: &'static str) -> Caller<'a> {
    Caller { coder, token: Some(coder.sign_in("o", SignedDuration::from_hours(1)).unwrap()), user_agent }
}

async fn group(caller: &Caller<'_>, name: &str) -> Uuid {
    let path = "/api/v2/organizations/default/groups";
    let group = caller.send(Method::POST, path, &json!({"name": name, "quota_allowance": 5})).await.unwrap();
    group["id"].as_str().unwrap().parse().unwrap()
}

#[tokio::test]
async fn quota_changed_on_the_page_is_a_change_of_a_person() {
    let (coder, _) = deployment().await;
    let id = group(&owner(&coder, "coder-operator/0.1.0"), "developers").await;
    Change::Quota { group: id, quota: 7 }.carry_out(&coder).await.unwrap();
    let shown = coder.read(view);
    let [last, before, ..] = shown["changes"].as_array().unwrap().as_slice() else { panic!("{shown}") };
    assert_eq!(last["who"], "a person on this page");
    assert_eq!(last["fields"], json!([{"name": "quota_allowance", "before": 5, "after": 7}]));
    assert_eq!((&before["who"], &before["target"]), (&json!("coder-operator"), &json!("developers")));
    assert!(shown["groups"].as_array().unwrap().iter().any(|it| it["quota"] == 7));
    let sessions = coder.read(|state| state.api_keys.len());
    Change::Quota { group: id, quota: 8 }.carry_out(&coder).await.unwrap();
    assert_eq!(coder.read(|state| state.api_keys.len()), sessions, "every session of the page ends");
}

#[tokio::test]
async fn banner_is_set_replaced_and_removed() {
    let (coder, _) = deployment().await;
    for message in ["one", "two"] {
        Change::Banner { message: message.to_owned() }.carry_out(&coder).await.unwrap();
        let expected = json!([{"enabled": true, "message": message, "background_color": COLOR}]);
        assert_eq!(coder.read(view)["appearance"]["announcement_banners"], expected);
    }
    Change::Banner { message: String::new() }.carry_out(&coder).await.unwrap();
    assert_eq!(coder.read(view)["appearance"]["announcement_banners"], json!([]));
}

#[tokio::test]
async fn mapping_of_a_sync_document_has_names() {
    let (coder, _) = deployment().await;
    let owner = owner(&coder, "curl/8");
    let id = group(&owner, "developers").await;
    let path = "/api/v2/organizations/default/settings/idpsync/groups";
    let document = json!({"field": "groups", "mapping": {"/dev": [id, Uuid::nil()]}});
    owner.send(Method::PATCH, path, &document).await.unwrap();
    let expected = format!("/dev: developers, {}", Uuid::nil());
    let shown = json!([{"name": "groups of coder", "field": "groups", "mapping": [expected]}]);
    assert_eq!(coder.read(view)["sync"], shown);
}

#[tokio::test]
async fn refused_change_has_the_words_of_the_deployment() {
    let (coder, _) = deployment().await;
    let error = Change::Quota { group: Uuid::nil(), quota: 1 }.carry_out(&coder).await.unwrap_err();
    assert!(format!("{error:#}").contains("404: Resource not found"), "{error:#}");
}

#[tokio::test]
async fn view_holds_no_secret() {
    let (coder, license) = deployment().await;
    let owner = owner(&coder, "curl/8");
    let key = owner
        .send(Method::POST, "/api/v2/organizations/default/provisionerkeys", &json!({"name": "pods"}))
        .await
        .unwrap();
    let token = owner.send(Method::POST, "/api/v2/users/me/keys/tokens", &json!({})).await.unwrap();
    let shown = coder.read(view).to_string();
    assert!(shown.contains("\"pods\"") && shown.contains("premium"), "{shown}");
    let mut secrets: BTreeMap<&str, String> = BTreeMap::from([
        ("key", key["key"].as_str().unwrap().to_owned()),
        ("token", token["key"].as_str().unwrap().to_owned()),
        ("session", owner.token.as_ref().unwrap().expose_secret().to_owned()),
        ("licence", license.clone()),
        ("claims of the licence", license.split('.').nth(1).unwrap().to_owned()),
    ]);
    coder.read(|state| {
        secrets.extend(state.api_keys.values().map(|it| ("hash of a token", it.secret.clone())));
        let hashes = state.provisioner_keys.values().filter(|it| !it.secret.is_empty());
        secrets.extend(hashes.map(|it| ("hash of a key", it.secret.clone())));
        secrets.extend(state.users.values().filter_map(|it| Some(("password", it.password.clone()?))));
    });
    for (what, secret) in secrets {
        assert!(!secret.is_empty() && !shown.contains(&secret), "{what} is shown");
    }
}

#[test]
fn page_loads_nothing_from_elsewhere_and_writes_no_html() {
    for text in [HTML, SCRIPT, STYLE] {
        assert!(!text.contains("//cdn") && !text.contains("https:") && !text.contains("http:"), "{text}");
    }
    for word in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("] {
        assert!(!SCRIPT.contains(word), "{word}");
    }
    assert!(!HTML.contains("onclick") && !HTML.contains("<style") && !HTML.contains("style="));
}
