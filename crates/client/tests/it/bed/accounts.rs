//! Accounts: the first one, those that others make, and what becomes of a deleted one.

use std::time::Duration;

use client::{
    Class, Client,
    users::{CreateFirstUser, CreateToken, CreateUser, ME},
};
use secrecy::SecretString;
use testbed::Flavour;
use uuid::Uuid;

use super::{client, licensed};

fn password() -> SecretString {
    SecretString::from(format!("Word-{}", Uuid::new_v4()))
}

async fn member(client: &Client, username: &str) -> client::users::User {
    let wanted = CreateUser {
        username: username.to_owned(),
        email: format!("{username}@bed.test"),
        password: Some(password()),
        login_type: Some("password".to_owned()),
        organization_ids: vec![Uuid::nil()],
        ..CreateUser::default()
    };
    client.create_user(&wanted).await.unwrap()
}

#[tokio::test]
async fn a_deployment_without_users_takes_its_first_one_and_no_second() {
    let coderd = testbed::shared().unwrap().fresh_coderd(Flavour::Shipped).await.unwrap();
    let client = client(&coderd.url, None);
    assert!(!client.has_users().await.unwrap());
    let wanted = |password: SecretString| CreateFirstUser {
        email: "first@bed.test".to_owned(),
        username: "first".to_owned(),
        password,
    };
    let weak = client.create_first_user(&wanted(SecretString::from("hunter2"))).await.unwrap_err();
    assert_eq!(weak.class(), Class::Invalid, "{weak}");
    assert!(!weak.to_string().contains("hunter2"), "{weak}");
    let password = password();
    client.create_first_user(&wanted(password.clone())).await.unwrap();
    assert!(client.has_users().await.unwrap());
    let second = client.create_first_user(&wanted(password.clone())).await.unwrap_err();
    assert_eq!(second.class(), Class::Conflict, "{second}");
    let session = client.login("first@bed.test", &password).await.unwrap();
    let me = client.with_token(session).unwrap().current_user().await.unwrap();
    assert!(me.has_role("owner") && !me.is_service_account);
}

#[tokio::test]
async fn a_deleted_account_is_told_by_its_name_and_not_by_its_id() {
    let (_coderd, client) = licensed().await;
    let made = member(&client, "leaver").await;
    assert_eq!(client.living_user(made.id).await.unwrap().map(|it| it.id), Some(made.id));
    assert_eq!(
        client
            .create_user(&CreateUser {
                username: "leaver".to_owned(),
                email: "x@bed.test".to_owned(),
                password: Some(password()),
                organization_ids: vec![Uuid::nil()],
                ..CreateUser::default()
            })
            .await
            .unwrap_err()
            .class(),
        Class::Conflict
    );
    client.delete_user(made.id).await.unwrap();
    client.user(&made.id.to_string()).await.unwrap();
    assert_eq!(client.user_named("leaver").await.unwrap(), None);
    assert_eq!(client.living_user(made.id).await.unwrap(), None);
    let next = member(&client, "leaver").await;
    assert_eq!(client.living_user(made.id).await.unwrap(), None, "the name is somebody else's now");
    assert_eq!(client.living_user(next.id).await.unwrap().map(|it| it.id), Some(next.id));
    let me = client.current_user().await.unwrap();
    assert_eq!(
        client.delete_user(me.id).await.unwrap_err().class(),
        Class::Forbidden,
        "nobody deletes themselves"
    );
}

#[tokio::test]
async fn a_service_account_with_a_role_lives_by_tokens_that_an_owner_makes_for_it() {
    let (_coderd, client) = licensed().await;
    let wanted = CreateUser {
        username: "robot".to_owned(),
        name: "A robot".to_owned(),
        login_type: Some("none".to_owned()),
        service_account: true,
        organization_ids: vec![Uuid::nil()],
        roles: vec!["owner".to_owned()],
        ..CreateUser::default()
    };
    let robot = client.create_user(&wanted).await.unwrap();
    assert_eq!((robot.is_service_account, robot.name.as_str(), robot.email.as_str()), (true, "A robot", ""));
    let longest = client.longest_token_lifetime("robot").await.unwrap();
    assert_eq!(longest, Duration::from_hours(168), "an owner's tokens do not live long");
    let day = CreateToken { lifetime: Some(Duration::from_hours(24)), ..CreateToken::default() };
    let token = client.create_token("robot", &day).await.unwrap();
    let by_token = client.with_token(token).unwrap();
    assert_eq!(by_token.current_user().await.unwrap().id, robot.id);
    by_token.create_token(ME, &day).await.unwrap();
}
