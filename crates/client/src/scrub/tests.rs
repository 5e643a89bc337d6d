use super::*;

/// Shaped like a session token; in pieces, so that nothing in this file looks like one.
fn token() -> String {
    ["Abcdefghi1", "Zyxwvutsrq9876543210AB"].join("-")
}

#[test]
fn the_calls_own_secret_goes_whole_and_in_half() {
    let token = token();
    let half = token.split_once('-').unwrap().1;
    let cleaned = clean(&format!("bad key {token}, hash of {half} differs"), &[&token]);
    assert_eq!(cleaned, "bad key [redacted], hash of [redacted] differs");
}

#[test]
fn a_password_that_is_quoted_back_goes_also_in_its_json_spelling() {
    let cleaned = clean(r#"cannot store "pass\"word one""#, &["pass\"word one"]);
    assert_eq!(cleaned, r#"cannot store "[redacted]""#);
}

#[test]
fn what_looks_like_a_token_goes_and_ids_and_names_stay() {
    let jwt = ["eyJ", "hbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl"].concat();
    assert_eq!(clean(&format!("licence {jwt} is bad"), &[]), "licence [redacted] is bad");
    assert_eq!(clean(&format!("got {}!", token()), &[]), "got [redacted]!");
    let key = "a1B2".repeat(11);
    assert_eq!(clean(&format!("key <{key}>"), &[]), "key <[redacted]>");
    let harmless = "organization 7d2f7e5e-6d0a-4d7b-9a1e-0c6a5d8b3f11 my-long-template-name-for-the-team-2";
    assert_eq!(clean(harmless, &[]), harmless);
}

#[test]
fn userinfo_and_assigned_secrets_go() {
    let dsn = "dial postgres://coder:hunter2@db:5432/coder?sslmode=off failed";
    assert_eq!(clean(dsn, &[]), "dial postgres://[redacted]@db:5432/coder?sslmode=off failed");
    assert_eq!(clean("user=a password=hunter host=b", &[]), "user=a password=[redacted] host=b");
    assert_eq!(
        clean(r#"sent {"password":"correct horse","name":"a"}"#, &[]),
        r#"sent {"password":"[redacted]","name":"a"}"#
    );
    assert_eq!(clean("Authorization: Bearer abc", &[]), "Authorization: Bearer [redacted]");
}

#[test]
fn the_port_of_a_caller_goes_because_it_is_another_one_each_time() {
    for (text, cleaned) in [
        ("read tcp 127.0.0.1:50324->127.0.0.1:5432: read: reset", "read tcp 127.0.0.1:5432: read: reset"),
        ("write tcp [::1]:50324->[fd00::2]:5432: broken", "write tcp [fd00::2]:5432: broken"),
        ("alpha -> bravo", "alpha -> bravo"),
        ("quotaAllowance: 3->20", "quotaAllowance: 3->20"),
        ("a->b->", "a->b->"),
    ] {
        assert_eq!(clean(text, &[]), cleaned);
    }
}

#[test]
fn prose_stays_readable() {
    for prose in [
        "Invalid password: too short",
        "Cookie \"coder_session_token\" or query parameter must be provided.",
        "API key secret is invalid.",
    ] {
        assert_eq!(clean(prose, &[]), prose);
    }
}

#[test]
fn control_and_invisible_characters_go_and_lines_become_one() {
    assert_eq!(clean("a\r\n\tb\u{1b}[31m\u{202e}c\u{0}", &[]), "a b[31mc");
}

#[test]
fn long_words_are_cut_between_characters() {
    let cleaned = clean(&"ü ".repeat(1000), &[]);
    assert_eq!(cleaned.chars().count(), 300);
    assert!(cleaned.ends_with('…'));
}

#[test]
fn a_field_with_a_secrets_name_does_not_get_its_value_quoted() {
    let detail = "Validation failed for tag \"min\" with value: \"hunter2\"";
    let redacted = "Validation failed for tag \"min\" with value: [redacted]";
    assert_eq!(clean_validation("password", detail, &[]), redacted);
    assert_eq!(clean_validation("name", detail, &[]), detail);
}
