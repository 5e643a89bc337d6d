//! What is sent for a key, what is read, and that no value of a key gets anywhere else.

use super::*;
use crate::{
    error::Class,
    script::{Script, answer},
};

const ORGANIZATION: Uuid = Uuid::from_u128(7);

/// As long as a key; in pieces, so that nothing in this file looks like one.
fn value() -> SecretString {
    SecretString::from(["Key0".repeat(10), "end".to_owned()].concat())
}

fn listed(id: u128, name: &str) -> String {
    format!(
        r#"{{"key":{{"id":"{}","created_at":"0001-01-01T00:00:00Z","organization":"{ORGANIZATION}","name":"{name}","tags":null}},"daemons":null}}"#,
        Uuid::from_u128(id)
    )
}

#[tokio::test]
async fn a_proof_carries_the_key_in_its_header_and_nowhere_else() {
    let body = format!(
        r#"{{"id":"{}","created_at":"2026-01-02T03:04:05Z","organization":"{ORGANIZATION}","name":"a","tags":{{"b":"c"}}}}"#,
        Uuid::from_u128(9)
    );
    let script = Script::new([answer(200, &body)]);
    let key = script.client().prove_provisioner_key(&value()).await.unwrap().unwrap();
    assert_eq!((key.id, key.organization, key.tags["b"].as_str()), (Uuid::from_u128(9), ORGANIZATION, "c"));
    let asked = script.last();
    assert_eq!(asked.headers()[KEY_HEADER], value().expose_secret());
    assert!(asked.headers()[KEY_HEADER].is_sensitive());
    assert!(!asked.headers().contains_key("coder-session-token"));
    assert_eq!(script.asked(), ["GET https://coder.test/api/v2/provisionerkeys/own"]);
    assert!(!format!("{asked:?}").contains(value().expose_secret()));
}

#[tokio::test]
async fn what_cannot_be_a_key_is_not_sent() {
    let script = Script::new([]);
    let client = script.client();
    let long = "x".repeat(KEY_LENGTH - 1);
    for text in [String::new(), "short".to_owned(), long.clone() + "xx", long.clone() + "\n", long + " "] {
        assert_eq!(client.prove_provisioner_key(&SecretString::from(text)).await.unwrap(), None);
    }
    // Forty-three bytes, and forty-three characters, that no header takes.
    for text in ["ä".repeat(21) + "x", "ä".repeat(43)] {
        assert_eq!(client.prove_provisioner_key(&SecretString::from(text)).await.unwrap(), None);
    }
    assert!(script.asked().is_empty());
}

#[tokio::test]
async fn only_coderds_own_words_say_that_a_value_is_no_key() {
    let invalid = r#"{"message":"provisioner daemon key invalid"}"#;
    for status in [400, 401] {
        let script = Script::new([answer(status, invalid)]);
        assert_eq!(script.client().prove_provisioner_key(&value()).await.unwrap(), None);
    }
    // A proxy that wants a login, one that takes the header out, a build without the route, a database that is away.
    let others = [
        (401, "<html><title>Sign in</title></html>", Class::SignedOut),
        (401, r#"{"message":"provisioner daemon key required"}"#, Class::SignedOut),
        (400, "bad", Class::Invalid),
        (404, r#"{"message":"Route not found."}"#, Class::Missing),
        (500, r#"{"message":"get provisioner daemon key","detail":"x"}"#, Class::Transient),
        (200, "{}", Class::Unexpected),
    ];
    for (status, body, class) in others {
        let script = Script::new([answer(status, body)]);
        let error = script.client().prove_provisioner_key(&value()).await.unwrap_err();
        assert_eq!(error.class(), class, "{error}");
    }
}

#[tokio::test]
async fn a_key_that_the_server_quotes_is_not_repeated() {
    let value = value();
    let text = value.expose_secret();
    for body in [format!(r#"{{"message":"no","detail":"{text} is bad"}}"#), text.to_owned()] {
        let script = Script::new([answer(500, &body)]);
        let error = script.client().prove_provisioner_key(&value).await.unwrap_err();
        assert!(!format!("{error} {error:?} {}", error.words()).contains(text), "{error}");
    }
}

#[tokio::test]
async fn a_created_key_cannot_be_printed_and_is_asked_for_once() {
    let script = Script::new([answer(201, &format!(r#"{{"key":"{}"}}"#, value().expose_secret()))]);
    let tags = BTreeMap::from([("zone".to_owned(), "a".to_owned())]);
    let key = script.client().create_provisioner_key(ORGANIZATION, "a", &tags).await.unwrap();
    assert_eq!(key.expose_secret(), value().expose_secret());
    assert!(!format!("{key:?}").contains(value().expose_secret()));
    assert_eq!(script.last().body().as_ref(), br#"{"name":"a","tags":{"zone":"a"}}"#);
    let script = Script::new([answer(503, "{}"), answer(201, "{}")]);
    let error = script.client().create_provisioner_key(ORGANIZATION, "a", &tags).await.unwrap_err();
    assert_eq!((script.asked().len(), error.nothing_was_done()), (1, false));
}

#[tokio::test]
async fn a_refusal_of_rights_that_comes_as_a_broken_server_is_forbidden() {
    let body = r#"{"message":"An internal server error occurred.","detail":"unauthorized: rbac: forbidden"}"#;
    let script = Script::new([answer(500, body)]);
    let error =
        script.client().create_provisioner_key(ORGANIZATION, "a", &BTreeMap::new()).await.unwrap_err();
    assert_eq!(error.class(), Class::Forbidden, "{error}");
}

#[tokio::test]
async fn coderds_own_keys_are_not_listed() {
    let body = format!("[{},{},{}]", listed(2, "user-auth"), listed(3, "psk"), listed(4, "built-in"));
    let script = Script::new([answer(200, &body), answer(200, "null")]);
    let keys = script.client().list_provisioner_keys(ORGANIZATION).await.unwrap();
    assert_eq!(keys.len(), 1, "by their ids, and not by their names");
    assert!(keys[0].key.tags.is_empty() && keys[0].daemons.is_empty());
    assert_eq!(script.client().list_provisioner_keys(ORGANIZATION).await.unwrap(), []);
}

#[tokio::test]
async fn a_name_is_one_segment_of_the_path() {
    let script = Script::new([answer(204, "")]);
    let client = script.client();
    client.delete_provisioner_key(ORGANIZATION, "my key? 100% ü").await.unwrap();
    let path = format!("DELETE https://coder.test/api/v2/organizations/{ORGANIZATION}/provisionerkeys/");
    assert_eq!(script.asked(), [path + "my%20key%3F%20100%25%20%C3%BC"]);
    let error = client.delete_provisioner_key(ORGANIZATION, "a/b").await.unwrap_err();
    assert_eq!((error.class(), script.asked().len()), (Class::Invalid, 1), "{error}");
}
