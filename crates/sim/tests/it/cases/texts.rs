//! Texts that have a form: passwords, e-mail addresses, names and filters.

use serde_json::{Value, json};

use crate::side::{ANONYMOUS, MEMBER, OWNER, PASSWORD, Side};

const USERS: &str = "/api/v2/users";
const DEFAULT: &str = "/api/v2/organizations/default";

/// Expressions that RE2 reads and others that it does not.
const FILTERS: &[&str] = &[
    "^team-(a|b)$",
    "(?i)team",
    "(?P<name>a)",
    "(?<name>a)",
    "a{2,3}",
    "[a-z]+",
    "\\d+",
    "\\(",
    "[(]",
    "(?:a)",
    "a|",
    "|",
    "a)",
    "(a",
    "[a",
    "*a",
    "a**",
    "a\\",
    "(?!a)",
    "(?<=a)",
    "(?<!a)",
    "a{2,1}",
    "a+?",
    "a??",
    "a++",
    "(|a)*",
    "[z-a]",
    "\\1",
    "(?P<n>a)(?P<n>b)",
    "a{1001}",
    "x{2}{3}",
    "(?z)",
    "^*",
    "[[:alpha:]]",
    "[[:nonsense:]]",
    "\\pN",
    "\\p{X}",
    "a{,3}",
    "a{2,}",
    "a{",
    "[]a]",
    "[^]a]",
    "[a-]",
    "[-a]",
    "[a-z-9]",
    "[\\]]",
    "(?i:a)",
    "(?i-s)a*",
    "(?",
    "(?i",
    "()",
    "(*a)",
    "a|*",
    "\\Qa*\\E",
    "\\Q(\\E",
    "\\x41",
    "\\_",
    "\\y",
    "[\\d-z]",
    "\\p{Greek}",
    "\\p{Lu}",
    "\\pL",
];

/// Makes an account that differs from a valid one in these fields, and deletes it.
async fn account(side: &mut Side, change: Value) {
    let mut wanted = json!({"username": "formed", "email": "formed@sim.test", "password": PASSWORD,
        "organization_ids": [uuid::Uuid::nil()]});
    for (key, value) in change.as_object().unwrap() {
        wanted[key] = value.clone();
    }
    let name = wanted["username"].as_str().unwrap().to_owned();
    side.post(OWNER, USERS, wanted).await;
    // Also a refused one, so that a difference does not move everything that follows.
    side.delete(OWNER, &format!("{USERS}/{name}")).await;
}

pub(super) async fn passwords(side: &mut Side) {
    let passwords = [
        "password123",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        "abababababababababab",
        "abcdefghijklmnopqrstuvwxyz",
        "zyxwvutsrqponmlkjihgfedcba",
        "0123456789012345678901234567",
        "qwertyuiopasdfghjklzxcvbnm",
        "Tr0ub4dor&3",
        "correct horse battery staple",
        "correcthorse",
        "ÄÖÜäöüß-12",
        "A1b2C3d4E5",
        "A1b2C3d4!",
        "!@$&*_-.,#%",
        "Ab1!Ab1!",
        "Ab1!Ab1!Ab",
        "Ab1!Ab1!Ab1!",
        "          ",
        "1q2w3e4r5t",
        "1q2w3e4r5t6z",
    ];
    for password in passwords {
        account(side, json!({"password": password})).await;
    }
    account(side, json!({"password": format!("{}{}", PASSWORD.repeat(3), "x")})).await;
    account(side, json!({"password": format!("{}{}", PASSWORD.repeat(3), "xy")})).await;
}

pub(super) async fn addresses(side: &mut Side) {
    let addresses = [
        "a@b.test",
        "a@b",
        "a@localhost",
        "a.b+c_d-e@f.test",
        "a@-b.test",
        "a@b-.test",
        "a@b_c.test",
        "a@b.test.",
        ".a@b.test",
        "a.@b.test",
        "a..b@c.test",
        "a@b..test",
        "ä@b.test",
        "a@ä.test",
        "a b@c.test",
        " a@b.test",
        "a@b.t",
        "a@b.1",
        "@b.test",
        "a@",
        "a@b@c.test",
        "a!#$%&'*+/=?^_`{|}~@b.test",
        "a,b@c.test",
    ];
    for address in addresses {
        account(side, json!({"email": address})).await;
    }
}

pub(super) async fn names(side: &mut Side) {
    for name in ["1", "A", "a1-B2", "a-", "-", "ä", "New", "CREATE", "default", "a.b", &"n".repeat(32)] {
        account(side, json!({"username": name})).await;
    }
    for name in ["x", " x", "x ", "x  y", &"n".repeat(128), &"n".repeat(129), "\u{e4}", "x\ty", "x\u{a0}"] {
        account(side, json!({"name": name})).await;
    }
    let groups = format!("{DEFAULT}/groups");
    for display in ["x", "x  y", "x\u{a0}", "x\ny", " ", &"\u{e4}".repeat(32), &"\u{e4}".repeat(33), "x\n"] {
        let made = side.post(OWNER, &groups, json!({"name": "formed", "display_name": display})).await;
        let id = made.body["id"].as_str().unwrap_or("00000000-0000-0000-0000-000000000009");
        side.delete(OWNER, &format!("/api/v2/groups/{id}")).await;
    }
    let keys = format!("{DEFAULT}/provisionerkeys");
    for name in ["Schl\u{dc}ssel \u{9375}", &"\u{e4}".repeat(32), &"\u{e4}".repeat(33), "a?b#c", "  "] {
        side.post(OWNER, &keys, json!({"name": name})).await;
        side.get(OWNER, &format!("{keys}/daemons")).await;
        let path: String =
            name.to_ascii_lowercase().bytes().map(|it| format!("%{it:02X}")).collect::<Vec<_>>().concat();
        side.delete(OWNER, &format!("{keys}/{path}")).await;
    }
    side.post(OWNER, &keys, json!({"name": "a/b"})).await;
    side.delete(OWNER, &format!("{keys}/a%2Fb")).await;
    side.patch(OWNER, DEFAULT, json!({"name": "main", "display_name": "Main"})).await;
    side.get(OWNER, "/api/v2/organizations/coder/groups").await;
    side.patch(OWNER, DEFAULT, json!({"name": "coder", "display_name": "Coder"})).await;
}

pub(super) async fn filters(side: &mut Side) {
    let path = format!("{DEFAULT}/settings/idpsync/groups");
    for filter in FILTERS {
        side.patch(OWNER, &path, json!({"regex_filter": filter})).await;
    }
    side.patch(OWNER, &path, json!({})).await;
}

/// Objects that are not the caller's, or not there any more.
pub(super) async fn strangers(side: &mut Side) {
    let organization =
        side.post(OWNER, "/api/v2/organizations", json!({"name": "elsewhere"})).await.text("id");
    let group = side
        .post(OWNER, &format!("/api/v2/organizations/{organization}/groups"), json!({"name": "theirs"}))
        .await;
    for group in [organization.clone(), group.text("id")] {
        side.get(MEMBER, &format!("/api/v2/groups/{group}")).await;
        side.patch(MEMBER, &format!("/api/v2/groups/{group}"), json!({"quota_allowance": 1})).await;
        side.delete(MEMBER, &format!("/api/v2/groups/{group}")).await;
    }
    side.post(MEMBER, &format!("/api/v2/organizations/{organization}/groups"), json!({"name": "mine"})).await;
    side.post(
        MEMBER,
        &format!("/api/v2/organizations/{organization}/provisionerkeys"),
        json!({"name": "mine"}),
    )
    .await;
    side.delete(OWNER, &format!("/api/v2/groups/{}", group.text("id"))).await;
    side.delete(OWNER, &format!("/api/v2/organizations/{organization}")).await;
    let made = side.sign_up("gone").await;
    side.post("gone", &format!("{USERS}/me/keys/tokens"), json!({"token_name": "x"})).await;
    side.delete(OWNER, &format!("{USERS}/{made}")).await;
    side.get(OWNER, &format!("{USERS}/{made}/keys/tokens")).await;
    side.get(OWNER, &format!("{USERS}/{made}/keys/tokens/tokenconfig")).await;
    side.post(OWNER, &format!("{USERS}/{made}/keys/tokens"), json!({"token_name": "x"})).await;
    side.call(ANONYMOUS, "HEAD", "/api/v2/buildinfo", &Value::Null).await;
    side.call(OWNER, "HEAD", "/api/v2/nonsense", &Value::Null).await;
}
