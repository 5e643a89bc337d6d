//! Provisioner keys: made once, proved by their value, deleted by their name.

use std::collections::BTreeMap;

use client::{Class, Client, users::CreateUser};
use secrecy::{ExposeSecret as _, SecretString};
use uuid::Uuid;

use super::{client, default_organization, licensed, shipped};

fn tags() -> BTreeMap<String, String> {
    BTreeMap::from([("zone".to_owned(), "a".to_owned()), ("empty".to_owned(), String::new())])
}

/// Somebody with no rights but a membership in the default organization.
async fn member(owner: &Client) -> Client {
    let password = SecretString::from(format!("Word-{}", Uuid::new_v4()));
    let wanted = CreateUser {
        username: "member".to_owned(),
        email: "member@bed.test".to_owned(),
        password: Some(password.clone()),
        login_type: Some("password".to_owned()),
        organization_ids: vec![Uuid::nil()],
        ..CreateUser::default()
    };
    owner.create_user(&wanted).await.unwrap();
    owner.with_token(owner.login("member@bed.test", &password).await.unwrap()).unwrap()
}

#[tokio::test]
async fn a_provisioner_key_lives_from_create_to_delete() {
    let (coderd, owner) = licensed().await;
    let anonymous = client(&coderd.owner.url, None);
    let organization = default_organization(&owner).await.id;
    assert_eq!(owner.list_provisioner_keys(organization).await.unwrap(), [], "coderd's own are not listed");
    let value = owner.create_provisioner_key(organization, "Builders", &tags()).await.unwrap();

    let proved = anonymous.prove_provisioner_key(&value).await.unwrap().unwrap();
    assert_eq!((proved.organization, proved.name.as_str()), (organization, "builders"), "in small letters");
    assert_eq!(proved.tags, tags(), "as they were sent");
    assert_eq!(owner.prove_provisioner_key(&value).await.unwrap().as_ref(), Some(&proved));
    let listed = owner.list_provisioner_keys(organization).await.unwrap();
    assert_eq!((listed.len(), &listed[0].key, listed[0].daemons.len()), (1, &proved, 0));

    let error = owner.create_provisioner_key(organization, "bUILDERS", &tags()).await.unwrap_err();
    assert_eq!(error.class(), Class::Conflict, "{error}");
    for name in ["", "PSK", "user-auth", "built-in", &"x".repeat(65)] {
        let error = owner.create_provisioner_key(organization, name, &tags()).await.unwrap_err();
        assert_eq!(error.class(), Class::Invalid, "{name}: {error}");
    }

    owner.delete_provisioner_key(organization, "builders").await.unwrap();
    assert_eq!(anonymous.prove_provisioner_key(&value).await.unwrap(), None);
    let error = owner.delete_provisioner_key(organization, "Builders").await.unwrap_err();
    assert_eq!((error.class(), error.route_missing()), (Class::Missing, false), "{error}");
    let again = owner.create_provisioner_key(organization, "Builders", &tags()).await.unwrap();
    assert_ne!(again.expose_secret(), value.expose_secret());
}

#[tokio::test]
async fn a_provisioner_key_of_any_name_can_be_deleted() {
    let (_coderd, owner) = licensed().await;
    let organization = default_organization(&owner).await.id;
    let names = [
        "a b",
        "it's (my) key!",
        "50% [x] \\ ^|`",
        "a+b&c=d;e,f:g@h$i~j",
        "Schlüssel 鍵",
        "a?b#c",
        "{\"<>\"}*",
    ];
    for name in names {
        owner.create_provisioner_key(organization, name, &BTreeMap::new()).await.unwrap();
        owner
            .delete_provisioner_key(organization, name)
            .await
            .unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    assert_eq!(owner.list_provisioner_keys(organization).await.unwrap(), []);
}

#[tokio::test]
async fn a_member_reads_provisioner_keys_and_neither_makes_nor_deletes_one() {
    let (_coderd, owner) = licensed().await;
    let organization = default_organization(&owner).await.id;
    owner.create_provisioner_key(organization, "builders", &tags()).await.unwrap();
    let member = member(&owner).await;
    assert_eq!(member.list_provisioner_keys(organization).await.unwrap().len(), 1);
    let error = member.create_provisioner_key(organization, "mine", &tags()).await.unwrap_err();
    assert_eq!(error.class(), Class::Forbidden, "a 500 by its status: {error}");
    let error = member.delete_provisioner_key(organization, "builders").await.unwrap_err();
    assert!(matches!(error.class(), Class::Forbidden | Class::Missing), "{error}");
    assert_eq!(owner.list_provisioner_keys(organization).await.unwrap().len(), 1);
}

#[tokio::test]
async fn without_a_licence_provisioner_keys_are_gated_and_a_proof_is_not() {
    let client = shipped();
    let organization = default_organization(&client).await.id;
    let errors = [
        client.create_provisioner_key(organization, "builders", &tags()).await.unwrap_err(),
        client.list_provisioner_keys(organization).await.unwrap_err(),
        client.delete_provisioner_key(organization, "builders").await.unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.class(), Class::License, "{error}");
    }
    let unknown = SecretString::from("x".repeat(43));
    assert_eq!(client.prove_provisioner_key(&unknown).await.unwrap(), None);
}

#[tokio::test]
async fn what_becomes_of_provisioner_keys_when_their_organization_goes() {
    let (_coderd, owner) = licensed().await;
    let wanted =
        client::organizations::CreateOrganization { name: "payments".to_owned(), ..Default::default() };
    let organization = owner.create_organization(&wanted).await.unwrap().id;
    owner.create_provisioner_key(organization, "builders", &tags()).await.unwrap();
    let listed = owner.list_provisioner_keys(organization).await.unwrap();
    assert_eq!(listed.len(), 1, "the one that coderd makes up for itself is left out");
    let error = owner.delete_organization(organization).await.unwrap_err();
    assert_eq!(error.class(), Class::Conflict, "the key is in the way: {error}");
    owner.delete_provisioner_key(organization, "builders").await.unwrap();
    owner.delete_organization(organization).await.unwrap();
}

#[tokio::test]
async fn a_key_is_listed_with_the_daemons_that_use_it() {
    let (coderd, owner) = licensed().await;
    let organization = default_organization(&owner).await.id;
    let value = owner.create_provisioner_key(organization, "builders", &tags()).await.unwrap();
    owner.create_provisioner_key(organization, "idle", &tags()).await.unwrap();
    // coderd writes a daemon down before it finds that this one does not go on to talk.
    let url = format!(
        "{}/api/v2/organizations/{organization}/provisionerdaemons/serve?name=pod-1&provisioner=echo&version=1.18",
        coderd.owner.url.trim_end_matches('/')
    );
    let knock = reqwest::Client::new()
        .get(url)
        .header("Coder-Provisioner-Daemon-Key", value.expose_secret())
        .header("X-Coder-Build-Version", "v2.35.0");
    assert_eq!(knock.send().await.unwrap().status(), 426);
    let listed = owner.list_provisioner_keys(organization).await.unwrap();
    let of = |name: &str| listed.iter().find(|it| it.key.name == name).unwrap();
    assert_eq!(of("idle").daemons, []);
    let daemon = &of("builders").daemons[0];
    assert_eq!((daemon.key_id, daemon.name.as_str()), (of("builders").key.id, "pod-1"));
    assert_eq!(daemon.provisioners, ["echo"]);
    assert!(daemon.last_seen_at.is_some());
    assert_eq!((daemon.version.as_str(), daemon.api_version.as_str()), ("v2.35.0", "1.18"));
    assert_eq!((&daemon.key_name, &daemon.status), (&None, &None), "these are not said here");
    let expected = [("owner", ""), ("scope", "organization"), ("zone", "a")];
    assert!(
        daemon.tags.iter().map(|(name, value)| (name.as_str(), value.as_str())).eq(expected),
        "{daemon:?}"
    );
}
