//! Manifests and coders, made of few words so that they meet.

use proptest::{
    collection::{btree_map, vec},
    option,
    prelude::{Just, Strategy, any, prop_oneof},
    sample::{select, subsequence},
};
use serde_json::{Map, Value, json};
use sim::state::State;

use crate::memory::{self, DEFAULT};

const ALPHA: &str = "00000000-0000-4000-8000-0000000000a0";
const GROUPS: [(&str, &str); 3] = [
    ("00000000-0000-4000-8000-000000000101", "developers"),
    ("00000000-0000-4000-8000-000000000102", "security"),
    ("00000000-0000-4000-8000-000000000103", "Developers"),
];
const PEOPLE: [(&str, &str); 3] = [
    ("00000000-0000-4000-8000-000000000201", "alice"),
    ("00000000-0000-4000-8000-000000000202", "bob"),
    ("00000000-0000-4000-8000-000000000203", "carol"),
];

/// A field that may be absent.
type Field = (&'static str, Option<Value>);

fn text() -> impl Strategy<Value = Value> {
    select(vec!["", "a", "b"]).prop_map(Value::from)
}

fn words(of: &'static [&'static str]) -> impl Strategy<Value = Value> {
    subsequence(of, 0..=of.len()).prop_map(Value::from)
}

fn mapping(of: &'static [&'static str]) -> impl Strategy<Value = Value> {
    btree_map(select(vec!["/a", "/b"]), words(of), 0..3).prop_map(|it| {
        it.into_iter().map(|(claim, names)| (claim.to_owned(), names)).collect::<Map<_, _>>().into()
    })
}

fn maybe(name: &'static str, value: impl Strategy<Value = Value>) -> impl Strategy<Value = Field> {
    option::of(value).prop_map(move |it| (name, it))
}

fn always(name: &'static str, of: &'static [&'static str]) -> impl Strategy<Value = Field> {
    select(of).prop_map(move |it| (name, Some(it.into())))
}

fn build(kind: &str, fields: impl IntoIterator<Item = Field>) -> Value {
    let mut spec = Map::new();
    for (name, value) in fields {
        if let Some(value) = value {
            spec.insert(name.to_owned(), value);
        }
    }
    spec.insert("controlPlaneRef".to_owned(), json!({"name": "main"}));
    json!({"apiVersion": "coder.com/v1alpha1", "kind": kind, "metadata": {"name": "example"}, "spec": spec})
}

fn organization() -> impl Strategy<Value = Value> {
    let shown = select(vec!["A", "B"]).prop_map(Value::from);
    (
        always("name", &["alpha", "Alpha", "bravo", "default", "coder"]),
        maybe("displayName", shown),
        maybe("description", text()),
        maybe("icon", text()),
    )
        .prop_map(|(a, b, c, d)| build("CoderOrganization", [a, b, c, d]))
}

fn group() -> impl Strategy<Value = Value> {
    (
        always("organization", &["alpha", "ALPHA", "default", "bravo"]),
        always("name", &["developers", "security"]),
        maybe("displayName", text()),
        maybe("avatarURL", text()),
        maybe("quotaAllowance", (0..3).prop_map(Value::from)),
        maybe("members", words(&["alice", "BOB", "alice@example.com", "carol@example.com"])),
    )
        .prop_map(|(a, b, c, d, e, f)| build("CoderGroup", [a, b, c, d, e, f]))
}

fn everyone() -> impl Strategy<Value = Value> {
    (always("organization", &["alpha", "default"]), maybe("quotaAllowance", (0..3).prop_map(Value::from)))
        .prop_map(|(a, b)| build("CoderGroup", [a, b, ("name", Some("Everyone".into()))]))
}

fn group_sync() -> impl Strategy<Value = Value> {
    (
        always("organization", &["alpha", "default", "coder"]),
        maybe("field", text()),
        maybe("regexFilter", text()),
        maybe("autoCreateMissingGroups", any::<bool>().prop_map(Value::from)),
        maybe("mapping", mapping(&["developers", "security", "Everyone"])),
    )
        .prop_map(|(a, b, c, d, e)| build("CoderGroupSync", [a, b, c, d, e]))
}

fn role_sync() -> impl Strategy<Value = Value> {
    (
        always("organization", &["alpha", "default"]),
        maybe("field", text()),
        maybe("mapping", mapping(&["organization-admin", "auditor"])),
    )
        .prop_map(|(a, b, c)| build("CoderRoleSync", [a, b, c]))
}

fn organization_sync() -> impl Strategy<Value = Value> {
    (
        maybe("field", text()),
        maybe("assignDefault", any::<bool>().prop_map(Value::from)),
        maybe("mapping", mapping(&["alpha", "Alpha", "default", "coder"])),
    )
        .prop_map(|(a, b, c)| build("CoderOrganizationSync", [a, b, c]))
}

fn appearance() -> impl Strategy<Value = Value> {
    let banner = (any::<bool>(), option::of(text()), select(vec!["#007a33", "#007A33"])).prop_map(
        |(enabled, message, colour)| match message {
            Some(message) => json!({"enabled": enabled, "message": message, "backgroundColor": colour}),
            None => json!({"backgroundColor": colour}),
        },
    );
    (
        maybe("applicationName", text()),
        maybe("logoURL", text()),
        maybe("announcementBanners", vec(banner, 0..3).prop_map(Value::from)),
    )
        .prop_map(|(a, b, c)| build("CoderAppearance", [a, b, c]))
}

/// A manifest of any kind, most of the time with leave to take over what is there.
pub(super) fn manifest() -> impl Strategy<Value = Value> {
    let any_kind = prop_oneof![
        organization(),
        group(),
        everyone(),
        group_sync(),
        role_sync(),
        organization_sync(),
        appearance()
    ];
    let policies = select(vec!["Adopt", "Adopt", "Adopt", "IfEqual", "Never"]);
    (any_kind, policies, option::weighted(0.1, Just("Observe"))).prop_map(|(mut manifest, policy, mode)| {
        manifest["spec"]["adoptionPolicy"] = policy.into();
        if let Some(mode) = mode {
            manifest["spec"]["mode"] = mode.into();
        }
        manifest
    })
}

/// One manifest of every kind.
pub(super) fn manifests() -> impl Strategy<Value = Vec<Value>> {
    (organization(), group(), everyone(), group_sync(), role_sync(), organization_sync(), appearance())
        .prop_map(|(a, b, c, d, e, f, g)| vec![a, b, c, d, e, f, g])
}

/// A deployment with two organizations and some of everything.
pub(super) fn coder() -> impl Strategy<Value = State> {
    let document = || (text(), found_mapping(), option::of(text()), any::<bool>());
    let documents = (document(), document());
    let shown = (text(), text(), text(), select(vec!["A", "B"]));
    let roster = || subsequence(PEOPLE.to_vec(), 0..=PEOPLE.len());
    let group = (subsequence(GROUPS.to_vec(), 0..=GROUPS.len()), text(), 0..3, roster());
    (documents, shown, group, any::<bool>()).prop_map(|(documents, shown, group, has_alpha)| {
        let (in_alpha, in_default) = documents;
        let people: Map<String, Value> =
            PEOPLE.iter().map(|(id, name)| ((*id).to_owned(), json!({"username": name}))).collect();
        let ids = |of: &[(&str, &str)]| of.iter().map(|(id, _)| Value::from(*id)).collect::<Value>();
        let (names, display_name, quota, roster) = group;
        let home = if has_alpha { ALPHA } else { DEFAULT };
        let mut groups = json!({home: {"quota_allowance": quota}});
        for (id, name) in names {
            groups[id] = json!({"organization_id": home, "name": name, "display_name": display_name,
                "quota_allowance": quota, "members": ids(&roster)});
        }
        let mut organizations = json!({DEFAULT: {"members": ids(&PEOPLE)}});
        if has_alpha {
            organizations[ALPHA] = json!({"name": "alpha", "display_name": shown.3, "description": shown.0,
                "icon": shown.1, "members": ids(&PEOPLE)});
        }
        let role = |home: &str| json!({"organization_id": home, "name": "auditor"});
        memory::described(&json!({
            "organizations": organizations,
            "users": people,
            "groups": groups,
            "custom_roles": [role(ALPHA), role(DEFAULT)],
            "organization_sync": {"field": in_alpha.0, "mapping": in_alpha.1, "organization_assign_default": in_alpha.3},
            "group_sync": {ALPHA: group_document(&in_alpha), DEFAULT: group_document(&in_default)},
            "role_sync": {ALPHA: {"field": in_default.0, "mapping": {"/a": ["organization-admin"]}},
                DEFAULT: {"field": "", "mapping": {}}},
            "appearance": {"application_name": shown.0, "logo_url": shown.2, "announcement_banners":
                [{"enabled": true, "background_color": "#007a33"}]},
        }))
    })
}

type Document = (Value, Value, Option<Value>, bool);

fn group_document((field, mapping, filter, auto_create): &Document) -> Value {
    json!({"field": field, "mapping": mapping, "regex_filter": filter, "auto_create_missing_groups": auto_create})
}

/// A mapping as coderd keeps it, also to what is not there any more.
fn found_mapping() -> impl Strategy<Value = Value> {
    mapping(&[DEFAULT, ALPHA, GROUPS[0].0, GROUPS[1].0])
}
