use super::*;
use crate::script::{Scripted, answer, answer_with, stranger, token};

fn judged(scripted: Scripted) -> Refusal {
    let asked = "https://coder.test/api/v2/organizations".parse().unwrap();
    Refusal::judge(&Answer::read(scripted.0.unwrap()), &asked, &[&token()])
}

fn class_of(status: u16, message: &str, detail: &str) -> Class {
    let body = serde_json::json!({"message": message, "detail": detail});
    judged(answer(status, &body.to_string())).class
}

#[test]
fn a_status_alone_says_most() {
    let expected = [
        (400, Class::Invalid),
        (401, Class::SignedOut),
        (403, Class::Forbidden),
        (404, Class::Missing),
        (409, Class::Conflict),
        (413, Class::Invalid),
        (417, Class::Conflict),
        (429, Class::RateLimited),
        (428, Class::Unexpected),
        (500, Class::Transient),
        (501, Class::Unexpected),
        (502, Class::Transient),
        (503, Class::Transient),
        (504, Class::Transient),
    ];
    for (status, class) in expected {
        assert_eq!(class_of(status, "Words.", ""), class, "{status}");
        assert_eq!(judged(answer(status, "")).class, class, "{status} with an empty body");
    }
}

#[test]
fn a_licence_gate_is_told_from_a_refusal_of_rights() {
    let gate = "Multiple organizations is a Premium feature. Contact sales!";
    assert_eq!(class_of(403, gate, ""), Class::License);
    let gate = "External provisioner daemons is an Enterprise feature. Contact sales!";
    assert_eq!(class_of(403, gate, ""), Class::License);
    assert_eq!(class_of(403, "Forbidden.", ""), Class::Forbidden);
}

#[test]
fn refusals_of_rights_hide_behind_400_and_500() {
    let detail = "execute transaction: unauthorized: rbac: forbidden";
    assert_eq!(class_of(500, "Internal error inserting organization member.", detail), Class::Forbidden);
    assert_eq!(
        class_of(400, "Failed to add or remove non-existent group member", "rbac: forbidden"),
        Class::Forbidden
    );
}

#[test]
fn expected_conflicts_hide_behind_500() {
    let left = "This organization has 1 member, 1 group that must be deleted first.";
    assert_eq!(class_of(500, "Error deleting organization.", left), Class::Conflict);
    let race = "pq: duplicate key value violates unique constraint \"licenses_jwt_key\"";
    assert_eq!(class_of(500, "Unable to add license to database", race), Class::Conflict);
}

#[test]
fn a_refresh_that_comes_too_early_is_a_rate_limit_in_a_400() {
    let early = answer_with(400, &[("Retry-After", "17")], r#"{"message":"already recently refreshed"}"#);
    assert_eq!(judged(early).class, Class::RateLimited);
}

#[test]
fn a_missing_route_is_told_from_a_missing_object() {
    let version = [("X-Coder-Build-Version", "v2.36.0")];
    let unknown = judged(answer_with(404, &version, r#"{"message":"Route not found."}"#));
    assert!(unknown.route_missing);
    assert_eq!(unknown.to_string(), "404 Not Found: this build of Coder (v2.36.0) has no such route");
    let bare = judged(answer(405, ""));
    assert!(bare.route_missing && bare.class == Class::Missing);
    let object = r#"{"message":"Resource not found or you do not have access to this resource"}"#;
    assert!(!judged(answer(404, object)).route_missing);
}

#[test]
fn json_text_html_and_nothing_all_become_words() {
    let json = r#"{"message":"Validation failed.","validations":[
        {"field":"name","detail":"is too long"},{"field":"icon","detail":"is no path"}]}"#;
    let words = |scripted| judged(scripted).to_string();
    assert_eq!(
        words(answer(400, json)),
        "400 Bad Request: Validation failed.; name: is too long, icon: is no path"
    );
    let detailed = r#"{"message":"Error deleting organization.","detail":"why","validations":null}"#;
    assert_eq!(words(answer(500, detailed)), "500 Internal Server Error: Error deleting organization: why");
    assert_eq!(
        words(answer(428, "provided but\nuser is not owner")),
        "428 Precondition Required: provided but user is not owner"
    );
    let html = "<!DOCTYPE html><html><head><Title> Bad\ngateway </title></head><body>long</body></html>";
    assert_eq!(words(answer(502, html)), "502 Bad Gateway: an HTML page");
    let untitled = answer_with(503, &[("Content-Type", "text/html")], "<p>wait</p>");
    assert_eq!(words(untitled), "503 Service Unavailable: an HTML page");
    assert_eq!(words(answer(500, "")), "500 Internal Server Error");
    assert_eq!(
        words(answer(500, r#"{"message":"cut of"#)),
        r#"500 Internal Server Error: {"message":"cut of"#
    );
    assert_eq!(
        words(answer(500, r#"{"error":"unlike coderd"}"#)),
        r#"500 Internal Server Error: {"error":"unlike coderd"}"#
    );
}

#[test]
fn nothing_of_a_strangers_answer_is_repeated_but_its_status_and_type() {
    let json =
        r#"{"message":"secrets is forbidden","detail":"inside","validations":[{"field":"f","detail":"d"}]}"#;
    let html = "<html><title>Internal wiki</title></html>";
    for (kind, body) in
        [("text/plain; charset=utf-8", "role: admin"), ("application/json", json), ("text/html", html)]
    {
        let said = judged(stranger(403, &[("Content-Type", kind)], body)).to_string();
        let kind = kind.split(';').next().unwrap();
        assert_eq!(said, format!("403 Forbidden: not an answer of Coder ({kind})"));
    }
    let strange = [("Content-Type", "role: admin")];
    assert_eq!(judged(stranger(500, &strange, "x")).words, "not an answer of Coder (no content type)");
    assert_eq!(judged(stranger(500, &[], "")).to_string(), "500 Internal Server Error");
}

#[test]
fn our_token_is_never_repeated() {
    let text = format!("panic: key {} in header", token());
    let body = serde_json::json!({"message": text, "detail": text, "validations": [{"field": text, "detail": text}]});
    for refusal in [judged(answer(500, &text)), judged(answer(500, &body.to_string()))] {
        let said = format!("{refusal} {refusal:?}");
        assert!(said.contains("panic: key [redacted] in header"), "{said}");
        assert!(!said.contains(&token()), "{said}");
        assert!(!said.contains("Zyxwvutsrq"), "{said}");
    }
}

#[test]
fn a_redirect_is_an_answer_that_names_an_origin_and_nothing_more() {
    let to = |location: &str| judged(answer_with(302, &[("Location", location)], ""));
    let elsewhere = to("https://user:pass@sso.test:8443/login?state=secret");
    assert_eq!(elsewhere.class, Class::Unexpected);
    assert_eq!(elsewhere.to_string(), "302 Found: redirects to https://sso.test:8443");
    assert_eq!(to("/login").words, "redirects to https://coder.test");
    assert_eq!(judged(answer(301, "")).words, "redirects to nowhere");
}
