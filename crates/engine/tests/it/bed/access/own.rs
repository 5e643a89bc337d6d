//! An account of our own: from a fresh deployment up, and down again.

mod former;

use std::process::Stdio;

use client::{
    Class, Client,
    users::{CreateToken, CreateUser, ME},
};
use engine::{
    Cluster as _, Trouble,
    kinds::control_plane::{
        access::{
            AccessOutcome, Account, AdminCredentials, FirstUser, FromSecret, Granted, Job, Ladder, Left,
            OwnAccount, TokenRecord,
        },
        token_secret::Contents,
    },
};
use jiff::Timestamp;
use reqwest::Method;
use secrecy::{ExposeSecret as _, SecretString};
use testbed::{Coderd, Flavour, coderd::FIRST_USER_EMAIL};
use uuid::Uuid;

use super::{Kept, UID, anonymous, later};
use crate::{
    bed::deployment::license,
    coder_k8s::{token, write_into_tables},
    examples::request,
};

const NAME: &str = "coder-operator-0f0e0d0c";

/// A deployment, and what we are given for it.
struct Stage {
    client: Client,
    secret: Kept,
    first_user: FromSecret<FirstUser>,
    admin: FromSecret<AdminCredentials>,
    job: Job,
    may_be_first: bool,
}

impl Stage {
    fn at(url: &str) -> Self {
        Self {
            client: anonymous(url),
            secret: Kept::default(),
            first_user: FromSecret::NotDeclared,
            admin: FromSecret::NotDeclared,
            job: Job::NotPossible,
            may_be_first: false,
        }
    }

    /// A deployment that has its owner, whose password we are given.
    async fn with_admin(flavour: Flavour) -> (Self, Coderd) {
        let coderd = testbed::shared().unwrap().coderd(flavour).await.unwrap();
        let password = SecretString::from(coderd.password.clone());
        let account = Account { email: FIRST_USER_EMAIL.to_owned(), password };
        let admin = FromSecret::There(AdminCredentials::Password(account));
        (Self { admin, ..Self::at(&coderd.owner.url) }, coderd)
    }

    async fn ladder(&self, now: Timestamp) -> Ladder<'_> {
        Ladder {
            client: &self.client,
            deployment: self.client.build_info().await.unwrap().deployment_id,
            control_plane_uid: UID,
            first_user: &self.first_user,
            admin: &self.admin,
            job: &self.job,
            may_be_first: self.may_be_first,
            may_create: true,
            now,
            random: self.secret.cluster.random(),
        }
    }

    async fn pass(&self, now: Timestamp) -> Result<AccessOutcome, Trouble> {
        let (secret, Contents { token, mut record }) = self.secret.open().await;
        let ladder = self.ladder(now).await;
        if token.is_some() && record.deployment_id.is_none() {
            record.deployment_id = Some(ladder.deployment);
            secret.adopt(&record).await.unwrap();
        }
        ladder.acquire(token.as_ref(), &mut record, &secret).await
    }

    async fn granted(&self, now: Timestamp) -> Granted {
        match self.pass(now).await.unwrap() {
            AccessOutcome::Granted(granted) => *granted,
            other => panic!("{other:?}"),
        }
    }

    async fn reason(&self) -> (&'static str, String) {
        match self.pass(Timestamp::now()).await.unwrap() {
            AccessOutcome::Wait(waiting) => (waiting.reason.as_str(), waiting.message),
            other => panic!("{other:?}"),
        }
    }

    async fn end(&self) -> Left {
        let ladder = self.ladder(Timestamp::now()).await;
        ladder.clean_up(self.secret.token().as_ref(), &self.secret.record()).await.unwrap()
    }

    /// Why the token of coder-k8s is not taken; nothing when it is.
    async fn coder_k8s(&self) -> Option<Class> {
        let client = self.client.with_token(SecretString::from(token())).unwrap();
        client.current_user().await.err().map(|it| it.class())
    }

    /// The names of all tokens of our account, as an owner sees them.
    async fn tokens(&self, owner: &Client) -> Vec<String> {
        let id = self.secret.record().account.unwrap().id.unwrap();
        let listed = owner.list_tokens(&id.to_string()).await.unwrap();
        let mut names: Vec<_> = listed.into_iter().map(|it| it.token_name).collect();
        names.sort();
        names
    }
}

fn owner(client: &Client, coderd: &Coderd) -> Client {
    client.with_token(SecretString::from(coderd.owner.token.clone())).unwrap()
}

#[tokio::test]
async fn a_fresh_deployment_gets_its_owner_and_we_an_account_and_a_token_that_works() {
    let coderd = testbed::shared().unwrap().fresh_coderd(Flavour::Shipped).await.unwrap();
    let mut stage = Stage::at(&coderd.url);
    assert_eq!(stage.reason().await.0, "NoUsers");
    assert!(!stage.client.has_users().await.unwrap(), "and nobody was made");
    let password = SecretString::from(format!("Human-{}", Uuid::new_v4()));
    let (email, username) = ("human@bed.test".to_owned(), "human".to_owned());
    stage.first_user = FromSecret::There(FirstUser { email, username, password: password.clone() });

    let granted = stage.granted(Timestamp::now()).await;
    assert_eq!(granted.user.username, NAME);
    let ours = stage.client.with_token(granted.token).unwrap();
    assert!(ours.user("human").await.unwrap().has_role("owner"));
    assert!(ours.current_user().await.unwrap().has_role("owner"));
    ours.list_licenses().await.unwrap();
    assert_eq!(stage.tokens(&ours).await, ["coder-operator-0f0e0d0c-1"]);
    stage.client.login("human@bed.test", &password).await.unwrap();
}

#[tokio::test]
async fn admin_credentials_are_used_once() {
    let (mut stage, coderd) = Stage::with_admin(Flavour::Shipped).await;
    let now = Timestamp::now();
    stage.granted(now).await;
    stage.admin = FromSecret::Missing("there is no Secret coder-break-glass".to_owned());
    let first = stage.secret.token().unwrap();
    stage.granted(later(now, 12)).await;
    stage.granted(later(now, 13)).await;
    let old = stage.client.with_token(first).unwrap();
    assert_eq!(old.current_user().await.unwrap_err().class(), Class::SignedOut, "it renews itself");
    let owner = owner(&stage.client, &coderd);
    assert_eq!(stage.tokens(&owner).await, ["coder-operator-0f0e0d0c-2"]);
    assert_eq!(owner.list_tokens(ME).await.unwrap(), [], "and nothing is left with the lender");
}

#[tokio::test]
async fn an_account_of_our_name_that_is_not_ours_is_refused_and_not_promoted() {
    let (stage, coderd) = Stage::with_admin(Flavour::Shipped).await;
    let owner = owner(&stage.client, &coderd);
    let theirs = CreateUser {
        username: NAME.to_owned(),
        email: "theirs@bed.test".to_owned(),
        password: Some(SecretString::from(format!("Theirs-{}", Uuid::new_v4()))),
        organization_ids: vec![Uuid::nil()],
        ..CreateUser::default()
    };
    let theirs = owner.create_user(&theirs).await.unwrap();
    let (reason, message) = stage.reason().await;
    assert_eq!(reason, "AccountTaken", "{message}");
    assert_eq!(owner.user(NAME).await.unwrap(), theirs);
    assert_eq!(owner.list_tokens(NAME).await.unwrap(), []);
    owner.delete_user(theirs.id).await.unwrap();
    let granted = stage.granted(Timestamp::now()).await;
    assert_ne!(granted.user.id, theirs.id, "the name is free again");
}

#[tokio::test]
async fn an_account_that_was_made_just_before_a_crash_is_known_again() {
    let (stage, coderd) = Stage::with_admin(Flavour::Shipped).await;
    let owner = owner(&stage.client, &coderd);
    stage.granted(Timestamp::now()).await;
    let made = stage.secret.record().account.unwrap();
    // As it was when the account had just been asked for.
    let mut before = stage.secret.record();
    before.account = Some(OwnAccount { id: None, ..made.clone() });
    (before.token, before.user_id) = (None, None);
    stage.secret.set_record(&before);
    stage.secret.set_token(None);
    let granted = stage.granted(Timestamp::now()).await;
    assert_eq!(Some(granted.user.id), made.id);
    assert_eq!(stage.tokens(&owner).await, ["coder-operator-0f0e0d0c-2"], "the lost token is gone");
}

#[tokio::test]
async fn a_token_that_was_minted_and_never_stored_is_gone_in_the_end() {
    let (stage, coderd) = Stage::with_admin(Flavour::Shipped).await;
    let owner = owner(&stage.client, &coderd);
    let now = Timestamp::now();
    stage.granted(now).await;
    // What a crash between minting and storing leaves behind.
    let id = stage.secret.record().account.unwrap().id.unwrap();
    let name = "coder-operator-0f0e0d0c-2".to_owned();
    let lost = CreateToken { token_name: Some(name.clone()), ..CreateToken::default() };
    owner.create_token(&id.to_string(), &lost).await.unwrap();
    stage.secret.set_record(&TokenRecord { minting: Some(name), ..stage.secret.record() });
    stage.granted(later(now, 12)).await;
    stage.granted(later(now, 13)).await;
    assert_eq!(stage.tokens(&owner).await, ["coder-operator-0f0e0d0c-3"]);
    assert_eq!(stage.secret.record().minting, None);
}

#[tokio::test]
async fn a_token_that_died_while_nobody_looked_is_minted_again_for_the_same_account() {
    let (stage, coderd) = Stage::with_admin(Flavour::Shipped).await;
    let owner = owner(&stage.client, &coderd);
    let first = stage.granted(Timestamp::now()).await;
    owner.delete_token(&first.user.id.to_string(), &stage.secret.id().unwrap()).await.unwrap();
    let second = stage.granted(Timestamp::now()).await;
    assert_eq!(second.user.id, first.user.id);
}

#[tokio::test]
async fn a_lost_record_is_found_again_through_the_token() {
    let (stage, coderd) = Stage::with_admin(Flavour::Shipped).await;
    let id = stage.granted(Timestamp::now()).await.user.id;
    let before = stage.secret.id();
    stage.secret.set_record(&TokenRecord::default());
    assert_eq!(stage.granted(Timestamp::now()).await.user.id, id);
    assert_eq!(stage.secret.id(), before, "nothing had to be minted");
    assert_eq!(stage.end().await, Left::default());
    assert_eq!(owner(&stage.client, &coderd).user_named(NAME).await.unwrap(), None);
}

#[tokio::test]
async fn with_premium_our_account_has_no_password_and_no_mail() {
    let (stage, coderd) = Stage::with_admin(Flavour::Licensed).await;
    license(&coderd).await;
    let granted = stage.granted(Timestamp::now()).await;
    assert!(granted.user.is_service_account, "{:?}", granted.user);
    assert_eq!((granted.user.email.as_str(), granted.user.has_role("owner")), ("", true));
    stage.granted(later(Timestamp::now(), 12)).await;
}

#[tokio::test]
async fn a_token_of_another_account_is_used_once_and_coder_k8s_one_is_revoked() {
    let (mut stage, coderd) = Stage::with_admin(Flavour::Shipped).await;
    write_into_tables(&coderd.database).await;
    stage.secret.set_token(Some(SecretString::from(token())));
    stage.admin = FromSecret::NotDeclared;
    let granted = stage.granted(Timestamp::now()).await;
    assert_eq!(granted.user.username, NAME);
    stage.granted(Timestamp::now()).await;
    assert_eq!(stage.coder_k8s().await, Some(Class::SignedOut));
    assert_eq!(stage.secret.record().former, []);
}

#[tokio::test]
async fn the_token_of_coder_k8s_lets_us_in_where_coder_counts_no_user_and_goes_with_access() {
    let coderd = testbed::shared().unwrap().fresh_coderd(Flavour::Shipped).await.unwrap();
    write_into_tables(&coderd.database).await;
    let mut stage = Stage::at(&coderd.url);
    stage.secret.set_token(Some(SecretString::from(token())));
    stage.may_be_first = true;
    assert!(!stage.client.has_users().await.unwrap());
    assert_eq!(stage.granted(Timestamp::now()).await.user.username, NAME);
    stage.granted(Timestamp::now()).await;
    assert_eq!(stage.coder_k8s().await, Some(Class::SignedOut));

    let coderd = testbed::shared().unwrap().fresh_coderd(Flavour::Shipped).await.unwrap();
    write_into_tables(&coderd.database).await;
    let stage = Stage::at(&coderd.url);
    stage.secret.set_token(Some(SecretString::from(token())));
    assert_eq!(stage.coder_k8s().await, None, "it is good");
    assert_eq!(stage.end().await, Left::default());
    assert_eq!(stage.coder_k8s().await, Some(Class::SignedOut), "no use was made of it");
}

#[tokio::test]
async fn the_token_of_coder_k8s_goes_also_when_another_way_let_us_in() {
    let (mut stage, coderd) = Stage::with_admin(Flavour::Shipped).await;
    write_into_tables(&coderd.database).await;
    let owner = owner(&stage.client, &coderd);
    // It may not make accounts any more, so the administrator does.
    let roles = serde_json::json!({"roles": []});
    request(&coderd.owner, Method::PUT, "/api/v2/users/coder-k8s-operator/roles", Some(&roles)).await;
    stage.secret.set_token(Some(SecretString::from(token())));
    assert_eq!(stage.granted(Timestamp::now()).await.user.username, NAME);
    stage.granted(Timestamp::now()).await;
    assert_eq!(stage.coder_k8s().await, Some(Class::SignedOut));
    assert_eq!(stage.tokens(&owner).await, ["coder-operator-0f0e0d0c-1"]);
    stage.admin = FromSecret::NotDeclared;
}

#[tokio::test]
async fn a_job_that_failed_after_it_made_our_account_lets_us_in_and_a_crash_leaves_one_token() {
    let (mut stage, coderd) = Stage::with_admin(Flavour::Shipped).await;
    stage.admin = FromSecret::NotDeclared;
    let password = SecretString::from(format!("Job-{}", Uuid::new_v4()));
    let account = Account { email: format!("{NAME}@coder-operator.invalid"), password: password.clone() };
    stage.job = Job::Failed("the node went away".to_owned(), account.clone());
    let (reason, message) = stage.reason().await;
    assert!(reason == "AdminJobFailed" && message.contains("the node went away"), "{reason}: {message}");
    stage.job = Job::Done(account.clone());
    let (reason, message) = stage.reason().await;
    assert!(reason == "AdminJobFailed" && message.contains("another database"), "{reason}: {message}");

    create_admin_user(&coderd.database, NAME, &account.email, &password).await;
    stage.job = Job::Failed("the node went away".to_owned(), account);
    stage.secret.refuse_tokens(true);
    stage.pass(Timestamp::now()).await.unwrap_err();
    stage.secret.refuse_tokens(false);
    assert_eq!(stage.granted(Timestamp::now()).await.user.username, NAME);
    let owner = owner(&stage.client, &coderd);
    assert_eq!(stage.tokens(&owner).await, ["coder-operator-0f0e0d0c-2"]);
}

#[tokio::test]
async fn the_images_own_command_lets_us_in_when_nothing_else_does() {
    let (mut stage, coderd) = Stage::with_admin(Flavour::Shipped).await;
    stage.admin = FromSecret::NotDeclared;
    assert_eq!(stage.reason().await.0, "NoCredentials");
    for number in ["", "-2"] {
        stage.job = Job::NotStarted;
        let AccessOutcome::RunAdminJob { username, email } = stage.pass(Timestamp::now()).await.unwrap()
        else {
            panic!("there is another way")
        };
        assert_eq!(username, format!("{NAME}{number}"));
        let password = SecretString::from(format!("Job-{}", Uuid::new_v4()));
        create_admin_user(&coderd.database, &username, &email, &password).await;
        stage.job = Job::Done(Account { email, password });
        let granted = stage.granted(Timestamp::now()).await;
        assert_eq!(granted.user.username, username);
        stage.granted(Timestamp::now()).await;
        // Nobody was there for more than a day.
        let owner = owner(&stage.client, &coderd);
        owner.delete_token(&username, &stage.secret.id().unwrap()).await.unwrap();
    }
    let owner = owner(&stage.client, &coderd);
    assert_eq!(owner.user_named(NAME).await.unwrap(), None, "the account before is gone");
}

/// What the Job runs.
async fn create_admin_user(database: &str, username: &str, email: &str, password: &SecretString) {
    let status = tokio::process::Command::new(&testbed::shared::parts().unwrap().coder)
        .args(["server", "create-admin-user"])
        .env("CODER_PG_CONNECTION_URL", database)
        .env("CODER_USERNAME", username)
        .env("CODER_EMAIL", email)
        .env("CODER_PASSWORD", password.expose_secret())
        .stdin(Stdio::null())
        .output()
        .await
        .unwrap();
    assert!(status.status.success(), "{}", String::from_utf8_lossy(&status.stderr));
}

#[tokio::test]
async fn giving_up_access_deletes_our_account_where_somebody_lends_us_the_right() {
    let (mut stage, coderd) = Stage::with_admin(Flavour::Shipped).await;
    stage.granted(Timestamp::now()).await;
    let token = stage.client.with_token(stage.secret.token().unwrap()).unwrap();
    assert_eq!(stage.end().await, Left::default());
    assert_eq!(token.current_user().await.unwrap_err().class(), Class::SignedOut);
    assert_eq!(owner(&stage.client, &coderd).user_named(NAME).await.unwrap(), None);
    assert_eq!(stage.end().await, Left::default(), "a second time finds nothing to do");

    stage.secret.set_token(None);
    stage.granted(Timestamp::now()).await;
    stage.admin = FromSecret::NotDeclared;
    let left = stage.end().await;
    assert!(left.items[0].contains(NAME), "{left:?}");
    assert_eq!(stage.tokens(&owner(&stage.client, &coderd)).await, [] as [String; 0]);
    let path = format!("/api/v2/users/{NAME}");
    request(&coderd.owner, Method::GET, &path, None).await;
}
