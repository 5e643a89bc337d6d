use uuid::Uuid;

use super::*;
use crate::kinds::control_plane::token_record::TokenKept;

const UID: &str = "1a2b3c4d-5e6f-4711-8aaa-000000000001";

fn at(hours: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + hours * 3600).unwrap()
}

fn names() -> TokenNames {
    TokenNames::of(UID)
}

fn token(number: u64, made: i64) -> Token {
    Token {
        id: format!("id{number}"),
        user_id: Uuid::from_u128(1),
        token_name: names().nth(number),
        created_at: at(made),
        expires_at: at(made + 24),
        login_type: "token".to_owned(),
        scopes: Vec::new(),
    }
}

fn kept(number: u64, made: i64) -> TokenRecord {
    let token = TokenKept { name: names().nth(number), minted_at: at(made), expires_at: at(made + 24) };
    TokenRecord { token: Some(token), ..TokenRecord::default() }
}

fn decide(record: &TokenRecord, held: Option<&str>, listed: &[Token], now: Timestamp) -> TokenPlan {
    plan(&TokenSituation { names: &names(), record, held, listed, now })
}

fn revoke(number: u64) -> TokenStep {
    TokenStep::Revoke { id: format!("id{number}"), name: names().nth(number) }
}

/// Intend, then these revocations, then mint.
fn renewal(number: u64, revoked: &[u64]) -> Vec<TokenStep> {
    let name = names().nth(number);
    let mut steps = vec![TokenStep::Intend { name: name.clone() }];
    steps.extend(revoked.iter().map(|it| revoke(*it)));
    steps.push(TokenStep::Mint { name });
    steps
}

#[test]
fn names_are_of_one_control_plane_and_counted() {
    assert_eq!(names().nth(3), "coder-operator-1a2b3c4d-3");
    assert_eq!(names().number("coder-operator-1a2b3c4d-3"), Some(3));
    for other in ["coder-operator-1a2b3c4e-3", "coder-operator-1a2b3c4d", "coder-operator-1a2b3c4d-x", "mine"]
    {
        assert_eq!(names().number(other), None, "{other}");
    }
}

#[test]
fn without_a_token_the_first_one_is_minted_after_its_name_is_written_down() {
    assert_eq!(decide(&TokenRecord::default(), None, &[], at(0)).steps, renewal(1, &[]));
}

#[test]
fn a_token_is_left_alone_until_half_of_its_life_and_renewed_from_then_on() {
    let (record, listed) = (kept(1, 0), [token(1, 0)]);
    let young = decide(&record, Some("id1"), &listed, at(11));
    assert_eq!(young, TokenPlan { steps: Vec::new(), next: at(12) });
    assert_eq!(decide(&record, Some("id1"), &listed, at(12)).steps, renewal(2, &[]));
}

#[test]
fn the_token_before_stays_for_the_passes_that_began_with_it_and_then_goes() {
    let (record, listed) = (kept(2, 12), [token(1, 0), token(2, 12)]);
    let plan = decide(&record, Some("id2"), &listed, at(12));
    assert_eq!(plan.steps, []);
    let overlap_ends = at(12).checked_add(OVERLAP).unwrap();
    assert_eq!(plan.next, overlap_ends, "it is looked at again when the overlap is over");
    assert_eq!(decide(&record, Some("id2"), &listed, overlap_ends).steps, [revoke(1)]);
}

#[test]
fn a_token_that_was_minted_and_lost_goes_and_its_name_is_not_used_again() {
    let crashed = TokenRecord { minting: Some(names().nth(2)), ..kept(1, 0) };
    let listed = [token(1, 0), token(2, 12)];
    assert_eq!(decide(&crashed, Some("id1"), &listed, at(12)).steps, renewal(3, &[2]));
    let not_listed_yet = decide(&crashed, Some("id1"), &listed[..1], at(12)).steps;
    assert_eq!(not_listed_yet, renewal(3, &[]), "the request may still be under way");
    let late = [token(1, 0), token(2, 12), token(3, 12)];
    let after = decide(&kept(3, 12), Some("id3"), &late, at(13)).steps;
    assert_eq!(after, [revoke(1), revoke(2)], "and is found when it comes late");
}

#[test]
fn older_record_of_a_backup_takes_no_name_again() {
    let listed = [token(3, 10)];
    // Coder does not take the restored token any more, so the later one is nobody's.
    assert_eq!(decide(&kept(1, 0), None, &listed, at(12)).steps, renewal(4, &[3]));
    // While Coder takes it, the later one stays until the next renewal, which has a name of its own.
    let listed = [token(2, 0), token(3, 10)];
    assert_eq!(decide(&kept(2, 0), Some("id2"), &listed, at(11)).steps, []);
    assert_eq!(decide(&kept(2, 0), Some("id2"), &listed, at(12)).steps, renewal(4, &[3]));
}

#[test]
fn a_later_token_may_be_another_leaders_and_is_not_revoked_in_passing() {
    let plan = decide(&kept(1, 0), Some("id1"), &[token(1, 0), token(2, 1)], at(1));
    assert_eq!(plan.steps, []);
}

#[test]
fn what_others_minted_is_never_revoked() {
    let other = Token { token_name: "ci".to_owned(), id: "ci".to_owned(), ..token(7, 0) };
    let listed = [other, token(1, 0), token(2, 12)];
    assert_eq!(decide(&kept(2, 12), Some("id2"), &listed, at(13)).steps, [revoke(1)]);
    assert_eq!(decide(&TokenRecord::default(), None, &listed, at(13)).steps, renewal(3, &[1, 2]));
    let steps = plan_revocation(&TokenSituation {
        names: &names(),
        record: &kept(2, 12),
        held: Some("id2"),
        listed: &listed,
        now: at(13),
    });
    assert_eq!(steps, [revoke(1), revoke(2)], "the one in use goes last");
}

#[test]
fn a_lost_record_is_made_up_for_by_what_coderd_lists() {
    let listed = [token(4, 0)];
    assert_eq!(decide(&TokenRecord::default(), Some("id4"), &listed, at(11)).steps, []);
    assert_eq!(decide(&TokenRecord::default(), Some("id4"), &listed, at(12)).steps, renewal(5, &[]));
    assert_eq!(decide(&TokenRecord::default(), None, &listed, at(1)).steps, renewal(5, &[4]));
}

#[test]
fn a_server_whose_clock_is_elsewhere_does_not_make_us_mint_without_end() {
    let elsewhere = [token(1, -20)];
    assert_eq!(decide(&kept(1, 0), Some("id1"), &elsewhere, at(1)).steps, []);
}

#[test]
fn a_record_from_the_future_does_not_keep_us_from_renewing() {
    assert_eq!(decide(&kept(1, 1000), Some("id1"), &[token(1, 0)], at(12)).steps, renewal(2, &[]));
}

#[test]
fn where_tokens_live_for_a_minute_they_do_not_pile_up() {
    let second = |it: i64| at(0).checked_add(SignedDuration::from_secs(it)).unwrap();
    let minute = |number: u64, made: i64| Token {
        created_at: second(made),
        expires_at: second(made + 60),
        ..token(number, 0)
    };
    let kept = TokenKept { name: names().nth(2), minted_at: second(30), expires_at: second(90) };
    let record = TokenRecord { token: Some(kept), ..TokenRecord::default() };
    let listed = [minute(1, 0), minute(2, 30)];
    assert_eq!(decide(&record, Some("id2"), &listed, second(44)).steps, []);
    assert_eq!(decide(&record, Some("id2"), &listed, second(45)).steps, [revoke(1)]);
}

#[test]
fn what_was_begun_is_brought_to_its_end_whatever_the_clock_says() {
    let begun = TokenRecord { minting: Some(names().nth(2)), ..kept(1, 0) };
    let listed = [token(1, 0), token(2, 1)];
    assert_eq!(decide(&begun, Some("id1"), &listed, at(1)).steps, renewal(3, &[2]));
}
