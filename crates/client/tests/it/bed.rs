//! Tests on the bed: what the client takes coderd for is what coderd is.

mod accounts;
mod licenses;
mod provisioner_keys;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use client::{
    Class, Client, ClientOptions, HttpOptions, HttpTransport,
    appearance::{AnnouncementBanner, UpdateAppearance},
    groups::{CreateGroup, UpdateGroup},
    idp_sync::{GroupSync, OrganizationSync, RoleSync},
    organizations::{CreateOrganization, Organization, UpdateOrganization},
    users::{CreateToken, ME},
};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::json;
use testbed::{
    Coderd, Flavour,
    coderd::{FIRST_USER_EMAIL, FIRST_USER_NAME, sign_license},
};
use uuid::Uuid;

fn client(url: &str, token: Option<&str>) -> Client {
    let transport = Arc::new(HttpTransport::new(HttpOptions::default()).unwrap());
    let token = token.map(SecretString::from);
    Client::new(ClientOptions { url: url.parse().unwrap(), token, transport }).unwrap()
}

/// The shared coderd without a licence, for tests that change nothing of note.
fn shipped() -> Client {
    let coder = testbed::shared().unwrap().coder.as_ref().unwrap();
    client(&coder.url, Some(&coder.token))
}

/// A coderd of the test's own with a premium licence.
async fn licensed() -> (Coderd, Client) {
    let coderd = testbed::shared().unwrap().coderd(Flavour::Licensed).await.unwrap();
    let wanted = json!({"feature_set": "premium"});
    let license = sign_license(coderd.licenses.as_ref().unwrap(), &wanted).await.unwrap();
    let body = json!({"license": license});
    let (status, answer) =
        coderd.owner.request(reqwest::Method::POST, "/api/v2/licenses", Some(&body)).await.unwrap();
    assert_eq!(status, 201, "{answer}");
    let client = client(&coderd.owner.url, Some(&coderd.owner.token));
    (coderd, client)
}

async fn default_organization(client: &Client) -> Organization {
    client.list_organizations().await.unwrap().into_iter().find(|it| it.is_default).unwrap()
}

#[tokio::test]
async fn a_deployment_says_what_it_is_without_a_token() {
    let bed = testbed::shared().unwrap();
    let url = &bed.coder.as_ref().unwrap().url;
    let build = client(url, None).build_info().await.unwrap();
    assert!(build.version.starts_with(&bed.coder_version), "{build:?}");
    assert!(!build.deployment_id.is_nil());
    let entitlements = client(url, None).entitlements().await.unwrap();
    assert!(!entitlements.has_license);
    assert!(!entitlements.is_enabled("multiple_organizations"));
    assert_eq!(entitlements.features["user_limit"].entitlement, "not_entitled");
    assert!(entitlements.features["user_limit"].actual.is_some());
}

#[tokio::test]
async fn a_licence_gate_is_told_from_a_missing_right() {
    let wanted = CreateOrganization { name: "second".to_owned(), ..CreateOrganization::default() };
    let error = shipped().create_organization(&wanted).await.unwrap_err();
    assert_eq!(error.class(), Class::License, "{error}");
    assert!(error.request_id().is_some());
    let organization = default_organization(&shipped()).await.id;
    assert_eq!(shipped().list_groups(organization).await.unwrap_err().class(), Class::License);
}

#[tokio::test]
async fn a_wrong_token_is_signed_out_and_is_not_repeated() {
    let url = &testbed::shared().unwrap().coder.as_ref().unwrap().url;
    let wrong = [["wrongwrong"; 1].concat(), "W1".repeat(11)].join("-");
    for token in [Some(wrong.as_str()), Some("nonsense"), None] {
        let error = client(url, token).current_user().await.unwrap_err();
        assert_eq!(error.class(), Class::SignedOut, "{error}");
        assert!(!error.to_string().contains(&wrong), "{error}");
    }
}

#[tokio::test]
async fn what_is_not_there_is_missing_and_its_route_is_not() {
    let error = shipped().group_sync(Uuid::from_u128(7)).await.unwrap_err();
    assert_eq!((error.class(), error.route_missing()), (Class::Missing, false), "{error}");
}

#[tokio::test]
async fn an_organization_lives_from_create_to_delete() {
    let (_coderd, client) = licensed().await;
    assert!(client.entitlements().await.unwrap().is_enabled("multiple_organizations"));
    let wanted = CreateOrganization {
        name: "payments".to_owned(),
        display_name: Some("Payments".to_owned()),
        description: Some("cards and such".to_owned()),
        icon: None,
    };
    let created = client.create_organization(&wanted).await.unwrap();
    assert_eq!((created.display_name.as_str(), created.is_default), ("Payments", false));
    assert_eq!(client.create_organization(&wanted).await.unwrap_err().class(), Class::Conflict);
    let change = UpdateOrganization { description: Some(String::new()), ..UpdateOrganization::default() };
    let updated = client.update_organization(created.id, &change).await.unwrap();
    assert_eq!((updated.description.as_str(), updated.display_name.as_str()), ("", "Payments"));
    assert!(client.list_organizations().await.unwrap().contains(&updated));

    let group = CreateGroup { name: "in-the-way".to_owned(), ..CreateGroup::default() };
    let group = client.create_group(created.id, &group).await.unwrap();
    let error = client.delete_organization(created.id).await.unwrap_err();
    assert_eq!(error.class(), Class::Conflict, "{error}");
    assert!(error.to_string().contains("must be deleted first"), "{error}");
    client.delete_group(group.id).await.unwrap();
    client.delete_organization(created.id).await.unwrap();
    assert!(client.list_organizations().await.unwrap().iter().all(|it| it.id != created.id));
    let default = default_organization(&client).await;
    let error = client.delete_organization(default.id).await.unwrap_err();
    assert_eq!(error.class(), Class::Invalid, "{error}");
}

#[tokio::test]
async fn a_group_has_the_members_it_is_given() {
    let (_coderd, client) = licensed().await;
    let organization = default_organization(&client).await.id;
    let me = client.current_user().await.unwrap();
    let wanted = CreateGroup { name: "dev".to_owned(), quota_allowance: Some(5), ..CreateGroup::default() };
    let group = client.create_group(organization, &wanted).await.unwrap();
    assert_eq!((group.quota_allowance, group.members.len()), (5, 0));
    let add = UpdateGroup { add_users: vec![me.id], ..UpdateGroup::default() };
    let updated = client.update_group(group.id, &add).await.unwrap();
    assert_eq!((updated.members[0].username.as_str(), updated.quota_allowance), (FIRST_USER_NAME, 5));
    let error = client.update_group(group.id, &add).await.unwrap_err();
    assert_eq!(error.class(), Class::Invalid, "{error}");
    let listed = client.list_groups(organization).await.unwrap();
    let everyone = listed.iter().find(|it| it.id == organization).unwrap();
    assert_eq!(everyone.name, "Everyone");
    let listed = listed.iter().find(|it| it.id == group.id).unwrap();
    assert_eq!((listed.total_member_count, listed.source.as_str()), (1, "user"));
    let remove = UpdateGroup { remove_users: vec![me.id], ..UpdateGroup::default() };
    assert_eq!(client.update_group(group.id, &remove).await.unwrap().members, []);
    client.delete_group(group.id).await.unwrap();
    assert_eq!(client.delete_group(group.id).await.unwrap_err().class(), Class::Missing);
}

#[tokio::test]
async fn members_of_an_organization_are_listed() {
    let organization = default_organization(&shipped()).await.id;
    let members = shipped().list_members(organization).await.unwrap();
    let me = members.iter().find(|it| it.username == FIRST_USER_NAME).unwrap();
    assert_eq!(me.email, FIRST_USER_EMAIL);
    assert_eq!(me.user_id, shipped().current_user().await.unwrap().id);
}

#[tokio::test]
async fn roles_of_an_organization_are_listed_in_order() {
    let organization = default_organization(&shipped()).await.id;
    let roles = shipped().list_organization_roles(organization).await.unwrap();
    let admin = roles.iter().find(|it| it.name == "organization-admin").unwrap();
    assert!(admin.built_in && admin.assignable && !admin.display_name.is_empty());
    assert!(roles.is_sorted_by_key(|it| &it.name));
}

#[tokio::test]
async fn sync_documents_are_stored_as_they_are_sent() {
    let coderd = testbed::shared().unwrap().coderd(Flavour::Shipped).await.unwrap();
    let client = client(&coderd.owner.url, Some(&coderd.owner.token));
    let organization = default_organization(&client).await.id;

    assert_eq!(client.organization_sync().await.unwrap(), OrganizationSync::default());
    let mapping = BTreeMap::from([("staff".to_owned(), vec![organization])]);
    let wanted = OrganizationSync { field: "orgs".to_owned(), mapping, organization_assign_default: false };
    assert_eq!(client.put_organization_sync(&wanted).await.unwrap(), wanted);
    assert_eq!(client.organization_sync().await.unwrap(), wanted);

    assert_eq!(client.group_sync(organization).await.unwrap(), GroupSync::default());
    let wanted = GroupSync {
        field: "groups".to_owned(),
        mapping: BTreeMap::from([("dev".to_owned(), vec![Uuid::from_u128(1), organization])]),
        regex_filter: Some("^team-".to_owned()),
        auto_create_missing_groups: true,
        legacy_group_name_mapping: BTreeMap::new(),
    };
    assert_eq!(client.put_group_sync(organization, &wanted).await.unwrap(), wanted);
    assert_eq!(client.group_sync(organization).await.unwrap(), wanted);
    let unreadable = GroupSync { regex_filter: Some("(?=a)".to_owned()), ..wanted };
    let error = client.put_group_sync(organization, &unreadable).await.unwrap_err();
    assert_eq!(error.class(), Class::Invalid, "{error}");

    assert_eq!(client.role_sync(organization).await.unwrap(), RoleSync::default());
    let mapping = BTreeMap::from([("lead".to_owned(), vec!["organization-admin".to_owned()])]);
    let wanted = RoleSync { field: "roles".to_owned(), mapping };
    assert_eq!(client.put_role_sync(organization, &wanted).await.unwrap(), wanted);
    assert_eq!(client.role_sync(organization).await.unwrap(), wanted);
}

#[tokio::test]
async fn the_appearance_is_shown_as_it_was_written() {
    let (_coderd, client) = licensed().await;
    let banner = AnnouncementBanner {
        enabled: true,
        message: "Maintenance on Sunday".to_owned(),
        background_color: "#004852".to_owned(),
    };
    let mut wanted = UpdateAppearance {
        application_name: "Payments".to_owned(),
        logo_url: String::new(),
        announcement_banners: vec![banner],
    };
    client.put_appearance(&wanted).await.unwrap();
    let shown = client.appearance().await.unwrap();
    assert_eq!(shown.application_name, wanted.application_name);
    assert_eq!(shown.announcement_banners, wanted.announcement_banners);
    "teal".clone_into(&mut wanted.announcement_banners[0].background_color);
    assert_eq!(client.put_appearance(&wanted).await.unwrap_err().class(), Class::Invalid);
}

#[tokio::test]
async fn a_password_becomes_a_session_and_a_session_makes_a_token_that_can_be_revoked() {
    let coderd = testbed::shared().unwrap().coderd(Flavour::Shipped).await.unwrap();
    let anonymous = client(&coderd.owner.url, None);
    let wrong = anonymous.login(FIRST_USER_EMAIL, &SecretString::from("Wrong-password-1")).await.unwrap_err();
    assert_eq!(wrong.class(), Class::SignedOut, "{wrong}");
    let password = SecretString::from(coderd.password.clone());
    let session = anonymous.login(FIRST_USER_EMAIL, &password).await.unwrap();
    let signed_in = anonymous.with_token(session).unwrap();

    let wanted = CreateToken {
        token_name: Some("operator".to_owned()),
        lifetime: Some(Duration::from_hours(24)),
        scopes: None,
    };
    assert_eq!(signed_in.list_tokens(ME).await.unwrap(), []);
    let secret = signed_in.create_token(ME, &wanted).await.unwrap();
    assert_eq!(signed_in.create_token(ME, &wanted).await.unwrap_err().class(), Class::Conflict);
    let listed = signed_in.list_tokens(ME).await.unwrap();
    assert_eq!(listed[0].token_name, "operator");
    assert!(secret.expose_secret().starts_with(&listed[0].id));
    // Two readings of the server's clock.
    let lifetime = listed[0].expires_at.duration_since(listed[0].created_at).as_secs();
    assert!((86_390..=86_410).contains(&lifetime), "{lifetime}");

    let by_token = anonymous.with_token(secret).unwrap();
    let me = by_token.current_user().await.unwrap();
    assert_eq!(me.username, FIRST_USER_NAME);
    assert!(me.roles.iter().any(|it| it.name == "owner"));
    signed_in.delete_token(ME, &listed[0].id).await.unwrap();
    assert_eq!(by_token.current_user().await.unwrap_err().class(), Class::SignedOut);
    assert_eq!(signed_in.delete_token(ME, &listed[0].id).await.unwrap_err().class(), Class::Missing);

    signed_in.logout().await.unwrap();
    assert_eq!(signed_in.current_user().await.unwrap_err().class(), Class::SignedOut);
    signed_in.logout().await.unwrap();
}

#[tokio::test]
async fn a_member_without_rights_is_forbidden_and_not_taken_for_a_broken_server() {
    let (coderd, owner) = licensed().await;
    let organization = default_organization(&owner).await.id;
    let password = format!("Member-{}", Uuid::new_v4());
    let user = json!({"email": "member@bed.test", "username": "member", "password": password,
        "login_type": "password", "organization_ids": [organization]});
    let (status, answer) =
        coderd.owner.request(reqwest::Method::POST, "/api/v2/users", Some(&user)).await.unwrap();
    assert_eq!(status, 201, "{answer}");
    let session = owner.login("member@bed.test", &SecretString::from(password)).await.unwrap();
    let member = owner.with_token(session).unwrap();
    let wanted = CreateOrganization { name: "mine".to_owned(), ..CreateOrganization::default() };
    let error = member.create_organization(&wanted).await.unwrap_err();
    assert_eq!(error.class(), Class::Forbidden, "{error}");
    let group = CreateGroup { name: "mine".to_owned(), ..CreateGroup::default() };
    assert_eq!(member.create_group(organization, &group).await.unwrap_err().class(), Class::Forbidden);
    assert_eq!(member.organization_sync().await.unwrap_err().class(), Class::Forbidden);
}
