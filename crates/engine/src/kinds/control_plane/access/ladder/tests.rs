use super::*;

/// A deployment with users, and nothing that would let us in.
fn bare() -> Observed {
    Observed {
        held: TokenHeld::None,
        has_users: true,
        may_be_first: false,
        first_user: Standing::NotDeclared,
        admin: Standing::NotDeclared,
        held_token: Standing::NotDeclared,
        account: None,
        job: AdminJob::NotPossible,
    }
}

fn reason_of(observed: &Observed) -> (Reason, String) {
    match next(observed) {
        Rung::Wait(Blocked { reason, message }) => (reason, message),
        other => panic!("{other:?}"),
    }
}

fn user(id: u128, username: &str, name: &str) -> User {
    serde_json::from_value(serde_json::json!({
        "id": Uuid::from_u128(id), "username": username, "name": name,
    }))
    .unwrap()
}

fn ours(id: Option<u128>) -> TokenRecord {
    let account = OwnAccount {
        username: "coder-operator-1a2b3c4d".to_owned(),
        marker: "k7".to_owned(),
        id: id.map(Uuid::from_u128),
    };
    TokenRecord { account: Some(account), ..TokenRecord::default() }
}

const UID: &str = "1a2b3c4d-5e6f-4711-8aaa-000000000001";

#[test]
fn a_token_of_ours_is_used_and_nothing_else_is_touched() {
    let observed =
        Observed { held: TokenHeld::Ours, admin: Standing::Available, job: AdminJob::NotStarted, ..bare() };
    assert_eq!(next(&observed), Rung::Use);
}

#[test]
fn the_rungs_come_in_their_order() {
    let mut observed = Observed {
        held: TokenHeld::Others,
        held_token: Standing::Available,
        admin: Standing::Available,
        first_user: Standing::Available,
        job: AdminJob::NotStarted,
        ..bare()
    };
    assert_eq!(next(&observed), Rung::Ask(BorrowedRights::HeldToken));
    observed.held_token = Standing::Refused("no".to_owned());
    assert_eq!(next(&observed), Rung::Ask(BorrowedRights::Admin));
    observed.admin = Standing::Refused("no".to_owned());
    assert_eq!(next(&observed), Rung::Ask(BorrowedRights::FirstUser));
    observed.first_user = Standing::Refused("no".to_owned());
    assert_eq!(next(&observed), Rung::RunAdminJob);
    observed.job = AdminJob::Ended;
    assert_eq!(next(&observed), Rung::EnterAfterJob);
}

#[test]
fn without_users_the_first_one_is_made_and_only_then() {
    let observed = Observed { first_user: Standing::Available, admin: Standing::Available, ..bare() };
    assert_eq!(next(&observed), Rung::Ask(BorrowedRights::Admin), "there are users: nobody is made");
    let observed = Observed { has_users: false, ..observed };
    assert_eq!(next(&observed), Rung::CreateFirstUser);
}

#[test]
fn a_person_is_not_locked_out_of_setting_up_unless_that_is_wanted() {
    let observed = Observed { has_users: false, job: AdminJob::NotStarted, ..bare() };
    let (reason, message) = reason_of(&observed);
    assert_eq!(reason, Reason::NoUsers);
    assert!(message.contains("firstUserSecretRef"), "{message}");
    let observed = Observed { may_be_first: true, ..observed };
    assert_eq!(next(&observed), Rung::RunAdminJob);
    let without_database = Observed { job: AdminJob::NotPossible, ..observed };
    assert_eq!(reason_of(&without_database).0, Reason::NoUsers, "and nobody is asked for an administrator");
}

#[test]
fn the_account_of_coder_k8s_lends_its_rights_though_coder_counts_no_user() {
    let held =
        Observed { held: TokenHeld::Others, held_token: Standing::Available, may_be_first: true, ..bare() };
    let observed = Observed { has_users: false, job: AdminJob::NotStarted, ..held };
    assert_eq!(next(&observed), Rung::Ask(BorrowedRights::HeldToken));
    let observed = Observed { first_user: Standing::Available, ..observed };
    assert_eq!(next(&observed), Rung::CreateFirstUser, "a person who is named comes first");
}

#[test]
fn a_name_that_the_job_finds_taken_is_told_as_such() {
    let failed = |words: &str| Observed { job: AdminJob::Failed(words.to_owned()), ..bare() };
    let taken = failed("insert user: pq: duplicate key value violates unique constraint");
    assert_eq!(reason_of(&taken).0, Reason::AccountTaken);
    assert_eq!(reason_of(&failed("connect to postgres")).0, Reason::AdminJobFailed);
    let foreign = Observed { job: AdminJob::NotOurs("Secret x is not ours".to_owned()), ..bare() };
    assert_eq!(reason_of(&foreign).0, Reason::NotOurs);
}

#[test]
fn our_account_is_made_where_there_is_none_and_entered_where_there_is() {
    let observed = |account| Observed { admin: Standing::Available, account: Some(account), ..bare() };
    assert_eq!(next(&observed(AccountState::Absent)), Rung::CreateAccount(BorrowedRights::Admin));
    let id = Uuid::from_u128(3);
    assert_eq!(next(&observed(AccountState::Ours(id))), Rung::MintFor(BorrowedRights::Admin, id));
}

#[test]
fn an_account_of_our_name_that_is_not_ours_is_left_alone_and_named() {
    let taken = Some(AccountState::Others);
    let observed =
        Observed { admin: Standing::Available, account: taken, job: AdminJob::NotStarted, ..bare() };
    let (reason, message) = reason_of(&observed);
    assert_eq!(reason, Reason::AccountTaken);
    assert!(message.contains("delete or rename"), "{message}");
}

#[test]
fn every_dead_end_says_what_to_do_and_what_was_tried() {
    let missing = Standing::Missing("there is no Secret coder-first-user".to_owned());
    let without_users = Observed { has_users: false, first_user: missing, ..bare() };
    assert_eq!(reason_of(&without_users).0, Reason::SecretNotFound);
    let (reason, message) = reason_of(&bare());
    assert_eq!(reason, Reason::NoCredentials);
    assert!(message.contains("adminCredentialsSecretRef"), "{message}");
    let refused = Standing::Refused("Incorrect email or password.".to_owned());
    let message = reason_of(&Observed { admin: refused, ..bare() }).1;
    assert!(message.contains("Incorrect email or password."), "{message}");
    let running = AdminJob::Running("Job main-create-admin-user".to_owned());
    assert_eq!(reason_of(&Observed { job: running, ..bare() }).0, Reason::AdminJobRunning);
    let failed = AdminJob::Failed("no such database".to_owned());
    let (reason, message) = reason_of(&Observed { job: failed, ..bare() });
    assert_eq!(reason, Reason::AdminJobFailed);
    assert!(message.contains("no such database"), "{message}");
}

#[test]
fn an_account_is_ours_by_its_id_and_before_that_by_the_word_that_was_written_down() {
    let name = "coder-operator-1a2b3c4d";
    let marked = user(3, name, "Coder operator k7");
    assert_eq!(recognise(None, &ours(None)), AccountState::Absent);
    assert_eq!(recognise(Some(&marked), &ours(None)), AccountState::Ours(Uuid::from_u128(3)));
    assert_eq!(recognise(Some(&user(3, name, "Somebody")), &ours(None)), AccountState::Others);
    assert_eq!(
        recognise(Some(&user(3, name, "renamed")), &ours(Some(3))),
        AccountState::Ours(Uuid::from_u128(3))
    );
    assert_eq!(recognise(Some(&marked), &ours(Some(4))), AccountState::Others, "made anew by somebody");
    assert_eq!(recognise(Some(&marked), &TokenRecord::default()), AccountState::Others);
}

#[test]
fn a_job_never_asks_for_a_name_that_is_taken_by_an_earlier_account_of_ours() {
    assert_eq!(username_after(UID, &TokenRecord::default()), "coder-operator-1a2b3c4d");
    assert_eq!(username_after(UID, &ours(None)), "coder-operator-1a2b3c4d");
    assert_eq!(username_after(UID, &ours(Some(3))), "coder-operator-1a2b3c4d-2");
    let mut record = ours(Some(3));
    record.account.as_mut().unwrap().username = "coder-operator-1a2b3c4d-2".to_owned();
    assert_eq!(username_after(UID, &record), "coder-operator-1a2b3c4d-3");
    assert!(username(UID, 999_999).len() <= 32, "what Coder takes as a name");
}
