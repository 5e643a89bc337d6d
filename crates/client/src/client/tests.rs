use tokio::time::Instant;
use uuid::Uuid;

use super::*;
use crate::{
    error::Class,
    groups::UpdateGroup,
    idp_sync::{GroupSync, OrganizationSync},
    organizations::{CreateOrganization, UpdateOrganization},
    script::{Script, answer, answer_with, failure, refused_connection, token},
    transport::TransportError,
    users::CreateToken,
};

const ORGANIZATION: &str = r#"{"id":"7d2f7e5e-6d0a-4d7b-9a1e-0c6a5d8b3f11","name":"a"}"#;

fn create() -> CreateOrganization {
    CreateOrganization { name: "a".to_owned(), ..CreateOrganization::default() }
}

#[test]
fn only_plain_addresses_are_taken() {
    let refusal = |url: &str| {
        let transport: Arc<dyn Transport> = Script::new([]);
        Client::new(ClientOptions { url: url.parse().unwrap(), token: None, transport }).err()
    };
    assert_eq!(refusal("https://coder.test/prefix/"), None);
    assert_eq!(refusal("http://127.0.0.1:3000"), None);
    assert_eq!(refusal("ftp://coder.test"), Some(ClientOptionsError::Scheme));
    assert_eq!(refusal("https://user@coder.test"), Some(ClientOptionsError::Userinfo));
    assert_eq!(refusal("https://:word@coder.test"), Some(ClientOptionsError::Userinfo));
    assert_eq!(refusal("https://coder.test/?a=b"), Some(ClientOptionsError::QueryOrFragment));
    assert_eq!(refusal("https://coder.test/#a"), Some(ClientOptionsError::QueryOrFragment));
}

#[test]
fn a_token_that_could_break_out_of_its_header_is_refused() {
    let client = Script::new([]).client();
    for token in ["", "a\r\nX: y", "a b", "ü"] {
        assert_eq!(client.with_token(SecretString::from(token)).err(), Some(ClientOptionsError::Token));
    }
}

#[tokio::test]
async fn nothing_that_can_be_printed_holds_the_token() {
    let script = Script::new([answer(500, &format!("boom {}", token()))]);
    let client = script.client();
    let error = client.list_organizations().await.unwrap_err();
    let asked = script.last();
    assert_eq!(asked.headers()["coder-session-token"], token().as_str());
    let password = "hunter2-hunter2";
    let options = ClientOptions {
        url: format!("https://a:{password}@coder.test").parse().unwrap(),
        token: Some(SecretString::from(token())),
        transport: Script::new([]),
    };
    let printed = format!("{client:?} {error:?} {error} {:?} {options:?}", asked.headers());
    assert!(!printed.contains(&token()) && !printed.contains(password), "{printed}");
}

#[tokio::test]
async fn an_error_says_what_was_attempted_where_and_what_came_back() {
    let headers = [("X-Coder-Request-Id", "5c4a")];
    let body = r#"{"message":"Organization already exists with that name.","validations":[{"field":"name","detail":"taken"}]}"#;
    let script = Script::new([answer_with(409, &headers, body)]);
    let error = script.client_at("http://coder.test:3000").create_organization(&create()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "POST /api/v2/organizations at coder.test:3000: 409 Conflict: Organization already exists with that name.; \
         name: taken (request 5c4a)"
    );
    assert_eq!(error.class(), Class::Conflict);
    assert_eq!(error.status().map(|it| it.as_u16()), Some(409));
    assert_eq!(error.request_id(), Some("5c4a"));
    assert!(!error.words().contains("5c4a"), "the same failure twice is the same text");
    assert_eq!(error.validations().len(), 1);
    assert!(!error.is_retryable());
}

#[tokio::test]
async fn a_redirect_is_not_followed_and_no_other_origin_sees_a_request() {
    let elsewhere = [("Location", "https://evil.test/api/v2/organizations")];
    let script = Script::new([answer_with(307, &elsewhere, "")]);
    let error = script.client().list_organizations().await.unwrap_err();
    assert_eq!(error.class(), Class::Unexpected);
    assert!(error.to_string().ends_with("redirects to https://evil.test"), "{error}");
    assert_eq!(script.asked(), ["GET https://coder.test/api/v2/organizations"]);
}

#[tokio::test]
async fn a_prefix_is_kept_and_a_parameter_is_one_encoded_segment() {
    let script = Script::new([answer(204, "")]);
    let client = script.client_at("https://coder.test/prefix/");
    client.delete_token("me", "a?b#c %2e").await.unwrap();
    assert_eq!(script.asked(), ["DELETE https://coder.test/prefix/api/v2/users/me/keys/a%3Fb%23c%20%252e"]);
    for escape in ["", ".", "..", "../../organizations", "a/b"] {
        let error = client.delete_token("me", escape).await.unwrap_err();
        assert_eq!(error.class(), Class::Invalid, "{escape}");
    }
    assert_eq!(script.asked().len(), 1, "nothing else was sent");
}

#[tokio::test]
async fn anonymous_routes_get_no_token() {
    let entitlements = r#"{"features":null,"warnings":null,"errors":null,"has_license":false,
        "refreshed_at":"0001-01-01T00:00:00Z"}"#;
    let script = Script::new([answer(200, entitlements), answer(201, r#"{"session_token":"s"}"#)]);
    let client = script.client();
    assert!(client.entitlements().await.unwrap().features.is_empty());
    assert!(!script.last().headers().contains_key("coder-session-token"));
    let token = client.login("a@b.test", &SecretString::from("word")).await.unwrap();
    assert_eq!(token.expose_secret(), "s");
    assert!(!script.last().headers().contains_key("coder-session-token"));
}

#[tokio::test]
async fn a_session_that_has_ended_already_is_signed_out() {
    let script = Script::new([answer(200, "{}"), answer(401, r#"{"message":"API key is invalid."}"#)]);
    let client = script.client();
    client.logout().await.unwrap();
    assert_eq!(script.last().uri().path(), "/api/v2/users/logout");
    client.logout().await.unwrap();
}

#[tokio::test]
async fn a_password_that_the_server_quotes_is_not_repeated() {
    let body = r#"{"message":"cannot check correct horse","detail":"correct horse"}"#;
    let script = Script::new([answer(400, body)]);
    let error = script.client().login("a@b.test", &SecretString::from("correct horse")).await.unwrap_err();
    assert!(!error.to_string().contains("correct horse"), "{error}");
}

#[tokio::test]
async fn a_success_that_cannot_be_read_is_unexpected_and_says_where_but_not_what() {
    let secret = "Sensitive-value-1";
    let wrong = format!(r#"[{ORGANIZATION},{{"id":"{secret}","name":"b"}}]"#);
    let bodies = [
        (wrong.as_str(), "[1].id"),
        (r#"[{"name":"a"}]"#, "missing field `id`"),
        (r#"[{"id":"7d2f"#, "EOF"),
        ("", "it is empty"),
        ("<html><body>sign in</body></html>", "an HTML page"),
    ];
    for (body, words) in bodies {
        let script = Script::new([answer_with(200, &[("X-Coder-Request-Id", "r1")], body)]);
        let error = script.client().list_organizations().await.unwrap_err();
        assert_eq!((error.class(), error.request_id()), (Class::Unexpected, Some("r1")));
        assert!(error.to_string().contains(words), "{error}");
        assert!(!error.to_string().contains(secret), "{error}");
    }
    let key = [("key", 7)].map(|(name, value)| format!(r#"{{"{name}":{value}}}"#)).concat();
    let script = Script::new([answer(201, &key)]);
    let error = script.client().create_token("me", &CreateToken::default()).await.unwrap_err();
    assert!(error.to_string().contains("key: expected a string"), "{error}");
}

#[tokio::test]
async fn null_lists_and_maps_are_empty() {
    let script = Script::new([
        answer(200, "null"),
        answer(200, r#"{"field":"g","mapping":{"a":null,"b":[]},"regex_filter":null}"#),
        answer(200, r#"{"members":null,"count":0}"#),
        answer(200, r#"{"announcement_banners":null}"#),
        answer(
            200,
            &format!(r#"{{"id":"{0}","organization_id":"{0}","name":"g","members":null}}"#, Uuid::nil()),
        ),
    ]);
    let client = script.client();
    assert_eq!(client.list_tokens("me").await.unwrap(), []);
    let sync = client.group_sync(Uuid::nil()).await.unwrap();
    assert_eq!(sync.mapping.get("a"), Some(&Vec::new()));
    assert_eq!(client.list_members(Uuid::nil()).await.unwrap(), []);
    assert_eq!(client.appearance().await.unwrap().announcement_banners, []);
    assert_eq!(client.group(Uuid::nil()).await.unwrap().members, []);
}

#[tokio::test]
async fn absent_fields_are_not_sent_and_whole_documents_are_sent_whole() {
    let group = r#"{"id":"7d2f7e5e-6d0a-4d7b-9a1e-0c6a5d8b3f11","organization_id":"7d2f7e5e-6d0a-4d7b-9a1e-0c6a5d8b3f11","name":"g"}"#;
    let documents = [r#"{"regex_filter":null}"#, r#"{"organization_assign_default":true}"#];
    let answers = [ORGANIZATION, group, documents[0], documents[1], r#"{"key":"k"}"#];
    let script = Script::new(answers.map(|it| answer(200, it)));
    let client = script.client();
    let sent = || String::from_utf8(script.last().body().to_vec()).unwrap();
    let change = UpdateOrganization { icon: Some(String::new()), ..UpdateOrganization::default() };
    client.update_organization(Uuid::nil(), &change).await.unwrap();
    assert_eq!(sent(), r#"{"icon":""}"#);
    client.update_group(Uuid::nil(), &UpdateGroup::default()).await.unwrap();
    assert_eq!(sent(), "{}", "a body is required, and empty means that nothing changes");
    client.put_group_sync(Uuid::nil(), &GroupSync::default()).await.unwrap();
    assert_eq!(sent(), r#"{"field":"","mapping":{},"regex_filter":null,"auto_create_missing_groups":false}"#);
    client.put_organization_sync(&OrganizationSync::default()).await.unwrap();
    assert_eq!(sent(), r#"{"field":"","mapping":{},"organization_assign_default":true}"#);
    let day = CreateToken { lifetime: Some(Duration::from_hours(24)), ..CreateToken::default() };
    client.create_token("me", &day).await.unwrap();
    assert_eq!(sent(), r#"{"lifetime":86400000000000}"#);
}

#[tokio::test]
async fn members_are_read_page_by_page_and_nobody_twice() {
    let member = |id: u128| format!(r#"{{"user_id":"{}","username":"u{id}"}}"#, Uuid::from_u128(id));
    let page = |ids: &[u128]| {
        let members: Vec<_> = ids.iter().copied().map(member).collect();
        answer(200, &format!(r#"{{"members":[{}],"count":5}}"#, members.join(",")))
    };
    let script = Script::new([page(&[1, 2]), page(&[2, 3]), page(&[4])]);
    let members = script.client().list_members(Uuid::nil()).await.unwrap();
    assert_eq!(members.iter().map(|it| it.username.as_str()).collect::<Vec<_>>(), ["u1", "u2", "u3", "u4"]);
    let offsets: Vec<_> = script.asked().iter().map(|it| it.rsplit('=').next().unwrap().to_owned()).collect();
    assert_eq!(offsets, ["0", "2", "4"]);
}

#[tokio::test(start_paused = true)]
async fn a_repeatable_call_is_tried_twice_and_not_more() {
    let script = Script::new([answer(502, ""), answer(200, "[]")]);
    assert_eq!(script.client().list_organizations().await.unwrap(), []);
    let script = Script::new([answer(503, ""), answer(503, ""), answer(200, "[]")]);
    let error = script.client().list_organizations().await.unwrap_err();
    assert_eq!((error.class(), script.asked().len()), (Class::Transient, 2));
    assert!(error.is_retryable());
}

#[tokio::test(start_paused = true)]
async fn a_create_is_repeated_only_when_nothing_was_sent() {
    let script = Script::new([refused_connection(), answer(201, ORGANIZATION)]);
    script.client().create_organization(&create()).await.unwrap();
    for failure in
        [answer(502, ""), answer_with(429, &[("Retry-After", "1")], ""), failure(TransportError::TimedOut)]
    {
        let script = Script::new([failure, answer(201, ORGANIZATION)]);
        script.client().create_organization(&create()).await.unwrap_err();
        assert_eq!(script.asked().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_short_retry_after_is_sat_out_and_a_long_one_is_handed_on() {
    let start = Instant::now();
    let script = Script::new([answer_with(429, &[("Retry-After", "3")], ""), answer(200, "[]")]);
    script.client().list_organizations().await.unwrap();
    assert!(start.elapsed() >= Duration::from_secs(3), "{:?}", start.elapsed());

    let script = Script::new([answer_with(429, &[("Retry-After", "60")], "{}"), answer(200, "[]")]);
    let client = script.client();
    let error = client.list_organizations().await.unwrap_err();
    assert_eq!((error.class(), error.retry_after()), (Class::RateLimited, Some(Duration::from_mins(1))));
    let error = client.list_organizations().await.unwrap_err();
    assert_eq!((error.class(), script.asked().len()), (Class::RateLimited, 1), "that path is left alone");
    assert!(error.retry_after().is_some() && error.status().is_none(), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_dead_deployment_is_asked_seldom() {
    let script = Script::new((0..20).map(|_| refused_connection()));
    let client = script.client();
    for _ in 0..4 {
        client.list_organizations().await.unwrap_err();
    }
    let asked = script.asked().len();
    assert_eq!(asked, 5, "the fifth failure opens the circuit");
    let error = client.create_organization(&create()).await.unwrap_err();
    assert_eq!((error.class(), script.asked().len()), (Class::Transient, asked));
    assert!(error.retry_after().is_some_and(|it| it <= Duration::from_secs(1)), "{error}");
    assert!(error.to_string().contains("not asked"), "{error}");
    tokio::time::sleep(Duration::from_secs(1)).await;
    client.list_organizations().await.unwrap_err();
    assert!(script.asked().len() > asked, "after the pause it is asked again");
}

/// Dead for five requests, silent for one, then well.
#[derive(Debug, Default)]
struct Recovering(std::sync::atomic::AtomicUsize);

impl Transport for Recovering {
    fn send(
        &self,
        _: http::Request<bytes::Bytes>,
    ) -> crate::transport::BoxFuture<'_, Result<http::Response<bytes::Bytes>, TransportError>> {
        match self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
            0..5 => Box::pin(async { Err(TransportError::Broken("reset".to_owned())) }),
            5 => Box::pin(std::future::pending()),
            _ => Box::pin(async { Ok(http::Response::new(bytes::Bytes::from_static(b"[]"))) }),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_goes_away_in_the_middle_of_the_trial_does_not_lock_out_the_others() {
    let transport: Arc<dyn Transport> = Arc::new(Recovering::default());
    let url = "https://coder.test".parse().unwrap();
    let client = Client::new(ClientOptions { url, token: None, transport }).unwrap();
    for _ in 0..5 {
        client.list_organizations().await.unwrap_err();
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let trial = tokio::time::timeout(Duration::from_secs(1), client.list_organizations()).await;
    assert!(trial.is_err(), "it was let through, and given up");
    client.list_organizations().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn refusals_of_coderd_itself_do_not_open_the_circuit() {
    let script = Script::new((0..10).map(|_| answer(500, "{}")).chain([answer(200, "[]")]));
    let client = script.client();
    for _ in 0..10 {
        client.list_organizations().await.unwrap_err();
    }
    client.list_organizations().await.unwrap();
}

#[test]
fn a_call_may_move_between_threads() {
    fn check(_: &(impl Send + 'static)) {}
    let client = Script::new([]).client();
    check(&async move { client.list_members(Uuid::nil()).await });
}

/// Refuses every write once it is closed.
#[derive(Debug, Default)]
struct Closing(std::sync::atomic::AtomicBool);

impl Guard for Closing {
    fn refusal(&self, route: &Route) -> Option<&'static str> {
        let is_closed = self.0.load(std::sync::atomic::Ordering::Relaxed);
        (is_closed && !route.method().is_safe()).then_some("closed")
    }
}

#[tokio::test]
async fn a_guard_stops_every_clone_at_once_and_what_it_stops_is_not_sent() {
    let script = Script::new([answer(200, ORGANIZATION), answer(200, "[]"), answer(200, ORGANIZATION)]);
    let guard = Arc::new(Closing::default());
    let client = script.client().guarded_by(Arc::clone(&guard) as _);
    let clone = client.with_token(SecretString::from(token())).unwrap();
    client.create_organization(&create()).await.unwrap();
    guard.0.store(true, std::sync::atomic::Ordering::Relaxed);
    for client in [&client, &clone] {
        let error = client.create_organization(&create()).await.unwrap_err();
        assert!(error.nothing_was_done() && error.words().ends_with("not sent: closed"), "{error}");
        assert_eq!(error.class(), Class::Transient);
    }
    client.list_organizations().await.unwrap();
    assert_eq!(script.asked().len(), 2);
    let anonymous = client.anonymous();
    assert!(!anonymous.has_token());
    anonymous.create_organization(&create()).await.unwrap();
    assert!(!script.last().headers().contains_key("coder-session-token"));
}

#[tokio::test(start_paused = true)]
async fn clients_with_one_rate_limiter_share_its_permits() {
    let headers = [("X-RateLimit-Limit", "4"), ("X-RateLimit-Remaining", "4")];
    let script = Script::new((0..4).map(|_| answer_with(200, &headers, "[]")));
    let one = script.client();
    // A prefix that coderd does not see.
    let other =
        script.client_at("https://elsewhere.test/coder/").with_rate_limiter(Arc::clone(&one.rate_limiter));
    one.list_organizations().await.unwrap();
    other.list_organizations().await.unwrap();
    for client in [&one, &other, &one.anonymous().with_token(SecretString::from(token())).unwrap()] {
        let refused = client.list_organizations().await.unwrap_err();
        assert_eq!(refused.class(), Class::RateLimited, "{refused}");
    }
    let stranger = script.client();
    stranger.list_organizations().await.unwrap();
    assert_eq!(script.asked().len(), 3);
    assert!(!one.rate_limiter.is_as_new());
    tokio::time::advance(Duration::from_mins(1)).await;
    assert!(one.rate_limiter.is_as_new());
    other.list_organizations().await.unwrap();
}
