//! An account that we are given: e-mail and password become a token that is renewed.

use client::{Client, users::ME};
use engine::{
    Trouble,
    kinds::control_plane::{
        access::{Account, Granted, SuppliedAccount, TokenRecord},
        token_secret::Contents,
    },
};
use jiff::Timestamp;
use secrecy::SecretString;
use testbed::{Coderd, Flavour, coderd::FIRST_USER_EMAIL};

use super::{Kept, anonymous, later, names};

struct Stage {
    coderd: Coderd,
    client: Client,
    account: Account,
    secret: Kept,
}

impl Stage {
    async fn set() -> Self {
        let coderd = testbed::shared().unwrap().coderd(Flavour::Shipped).await.unwrap();
        let client = anonymous(&coderd.owner.url);
        let password = SecretString::from(coderd.password.clone());
        let account = Account { email: FIRST_USER_EMAIL.to_owned(), password };
        Self { coderd, client, account, secret: Kept::default() }
    }

    async fn pass(&self, now: Timestamp) -> Result<Granted, Trouble> {
        let deployment = self.client.build_info().await.unwrap().deployment_id;
        let supplied = SuppliedAccount {
            client: &self.client,
            deployment,
            account: &self.account,
            names: &names(),
            now,
        };
        let (secret, Contents { token, mut record }) = self.secret.open().await;
        supplied.keep(token.as_ref(), &mut record, &secret).await
    }

    /// The names of all tokens that the account has.
    async fn tokens(&self) -> Vec<String> {
        let owner = self.client.with_token(SecretString::from(self.coderd.owner.token.clone())).unwrap();
        let mut names: Vec<_> =
            owner.list_tokens(ME).await.unwrap().into_iter().map(|it| it.token_name).collect();
        names.sort();
        names
    }
}

#[tokio::test]
async fn a_password_becomes_a_token_that_is_kept_until_half_of_its_life() {
    let stage = Stage::set().await;
    let now = Timestamp::now();
    let granted = stage.pass(now).await.unwrap();
    assert_eq!(granted.user.email, FIRST_USER_EMAIL);
    let first = stage.secret.id();
    stage.pass(later(now, 11)).await.unwrap();
    assert_eq!(stage.secret.id(), first);
    assert_eq!(stage.tokens().await, ["coder-operator-0f0e0d0c-1"]);
    assert_eq!(stage.secret.record().minting, None);
}

#[tokio::test]
async fn a_renewal_revokes_the_token_before_once_the_new_one_is_proved() {
    let stage = Stage::set().await;
    let now = Timestamp::now();
    stage.pass(now).await.unwrap();
    let first = stage.secret.token().unwrap();
    let granted = stage.pass(later(now, 12)).await.unwrap();
    assert_ne!(stage.secret.id(), None);
    let first = stage.client.with_token(first).unwrap();
    first.current_user().await.unwrap();
    assert!(granted.next <= later(now, 13), "it is looked at again soon");
    stage.pass(later(now, 13)).await.unwrap();
    first.current_user().await.unwrap_err();
    assert_eq!(stage.tokens().await, ["coder-operator-0f0e0d0c-2"]);
}

#[tokio::test]
async fn a_token_that_could_not_be_stored_leaves_none_behind() {
    let stage = Stage::set().await;
    let now = Timestamp::now();
    stage.secret.refuse_tokens(true);
    stage.pass(now).await.unwrap_err();
    assert_eq!(stage.tokens().await, [] as [String; 0]);
    assert_eq!(stage.secret.record().minting.as_deref(), Some("coder-operator-0f0e0d0c-1"));
    stage.secret.refuse_tokens(false);
    stage.pass(now).await.unwrap();
    assert_eq!(stage.tokens().await, ["coder-operator-0f0e0d0c-2"]);
}

#[tokio::test]
async fn a_wrong_password_says_what_to_do_and_is_not_repeated() {
    let mut stage = Stage::set().await;
    stage.account.password = SecretString::from("Wrong-password-1");
    let Err(Trouble::Blocked(waiting)) = stage.pass(Timestamp::now()).await else { panic!("it was taken") };
    assert_eq!(waiting.reason, api::Reason::Unauthorized);
    assert!(waiting.message.contains("correct them in the Secret"), "{}", waiting.message);
    assert!(!waiting.message.contains("Wrong-password-1"), "{}", waiting.message);
}

#[tokio::test]
async fn a_token_of_another_deployment_is_not_sent_and_another_one_is_minted() {
    let (stage, other) = tokio::join!(Stage::set(), Stage::set());
    let now = Timestamp::now();
    other.pass(now).await.unwrap();
    let TokenRecord { deployment_id, token, .. } = other.secret.record();
    stage.secret.set_token(other.secret.token());
    stage.secret.set_record(&TokenRecord { deployment_id, token, ..TokenRecord::default() });
    stage.pass(now).await.unwrap();
    assert_ne!(stage.secret.id(), other.secret.id());
    assert_eq!(stage.tokens().await, ["coder-operator-0f0e0d0c-2"]);
}

#[tokio::test]
async fn giving_up_access_revokes_what_we_minted_and_nothing_else() {
    let stage = Stage::set().await;
    let now = Timestamp::now();
    let owner = stage.client.with_token(SecretString::from(stage.coderd.owner.token.clone())).unwrap();
    let wanted = client::users::CreateToken { token_name: Some("ci".to_owned()), ..Default::default() };
    owner.create_token(ME, &wanted).await.unwrap();
    stage.pass(now).await.unwrap();
    let deployment = stage.client.build_info().await.unwrap().deployment_id;
    let (client, account) = (&stage.client, &stage.account);
    let supplied = SuppliedAccount { client, deployment, account, names: &names(), now };
    supplied.revoke_all(stage.secret.token().as_ref(), &stage.secret.record()).await.unwrap();
    assert_eq!(stage.tokens().await, ["ci"]);
}
