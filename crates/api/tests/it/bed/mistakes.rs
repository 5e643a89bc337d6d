//! Mistakes in manifests, each refused at the field where it is and with words that help.

use serde_json::{Value, json};

use super::cluster::{Cluster, refusal};

/// A kind, what its spec says beyond the reference to a control plane, the field that is to blame, and words of the refusal.
type Mistake = (&'static str, Value, &'static str, &'static str);

async fn assert_refused(word: &str, mistakes: Vec<Mistake>) {
    let cluster = Cluster::new(word).await;
    for (kind, mut spec, path, words) in mistakes {
        if kind != "CoderControlPlane" {
            spec["controlPlaneRef"] = json!({"name": "main"});
        }
        let said = refusal(cluster.apply_spec(kind, "mistake", &spec).await);
        assert!(said.contains(&format!("spec.{path}: ")) && said.contains(words), "{kind} {spec}: {said}");
    }
}

#[tokio::test]
async fn names_that_coder_would_not_take_are_refused() {
    let hyphens = "letters and digits with single hyphens";
    let blanks = "without blanks at its ends";
    assert_refused(
        "names",
        vec![
            ("CoderOrganization", json!({"name": "team alpha"}), "name", hyphens),
            ("CoderOrganization", json!({"name": "a--b"}), "name", hyphens),
            ("CoderOrganization", json!({"name": ""}), "name", "at least 1 char"),
            ("CoderOrganization", json!({"name": "a".repeat(33)}), "name", "32"),
            ("CoderOrganization", json!({"name": "new"}), "name", "which Coder reserves"),
            ("CoderOrganization", json!({"displayName": " Alpha"}), "displayName", blanks),
            ("CoderOrganization", json!({"displayName": ""}), "displayName", "at least 1 char"),
            ("CoderOrganization", json!({"displayName": "a".repeat(65)}), "displayName", "64"),
            ("CoderGroup", json!({"displayName": "ä".repeat(33)}), "displayName", "64 bytes"),
            ("CoderGroup", json!({"displayName": "two\nlines"}), "displayName", "in one line"),
            ("CoderGroup", json!({"name": "create"}), "name", "which Coder reserves"),
            ("CoderGroup", json!({"name": "dev_ops"}), "name", hyphens),
            ("CoderGroup", json!({"name": "a".repeat(256)}), "name", "255"),
            ("CoderGroup", json!({"organization": "-alpha"}), "organization", hyphens),
            ("CoderGroupSync", json!({"organization": "a".repeat(33)}), "organization", "32"),
            ("CoderRoleSync", json!({"organization": "a b"}), "organization", hyphens),
        ],
    )
    .await;
}

#[tokio::test]
async fn an_object_whose_own_name_cannot_be_coders_must_say_another() {
    let cluster = Cluster::new("own").await;
    let spec = json!({"controlPlaneRef": {"name": "main"}});
    for (kind, name) in [
        ("CoderOrganization", "team.alpha"),
        ("CoderOrganization", "a-name-of-more-than-thirty-two-letters"),
        ("CoderGroup", "new"),
        ("CoderGroup", "a--b"),
    ] {
        let said = refusal(cluster.apply_spec(kind, name, &spec).await);
        assert!(
            said.contains("metadata.name cannot be a name in Coder") && said.contains("set spec.name"),
            "{said}"
        );
        let spec = json!({"controlPlaneRef": {"name": "main"}, "name": "alpha"});
        cluster.apply_spec(kind, name, &spec).await.unwrap();
    }
}

#[tokio::test]
async fn what_cannot_be_said_of_groups_is_refused() {
    assert_refused(
        "groups",
        vec![
            ("CoderGroup", json!({"quotaAllowance": -1}), "quotaAllowance", "greater than or equal to 0"),
            ("CoderGroup", json!({"quotaAllowance": 2_147_483_648_u32}), "quotaAllowance", "2147483647"),
            ("CoderGroup", json!({"members": [""]}), "members[0]", "at least 1 char"),
            (
                "CoderGroup",
                json!({"name": "Everyone", "displayName": "All"}),
                "displayName",
                "cannot have a display name",
            ),
            (
                "CoderGroup",
                json!({"name": "Everyone", "members": []}),
                "members",
                "everybody in the organization is in it",
            ),
            (
                "CoderGroup",
                json!({"name": "Everyone", "deletionPolicy": "Delete"}),
                "deletionPolicy",
                "cannot be deleted",
            ),
            (
                "CoderOrganization",
                json!({"name": "default", "deletionPolicy": "Delete"}),
                "deletionPolicy",
                "the default organization cannot be deleted",
            ),
        ],
    )
    .await;
}

#[tokio::test]
async fn template_manifests_that_coder_could_not_take_are_refused() {
    let template = |field: &str, value: Value| json!({"source": {"files": {"main.tf": ""}}, (field): value});
    let secret = json!({"secretKeyRef": {"name": "registry", "key": "token"}});
    assert_refused(
        "templates",
        vec![
            ("CoderTemplate", json!({"name": "a--b"}), "name", "single hyphens"),
            ("CoderTemplate", json!({"name": "new"}), "name", "reserves"),
            ("CoderTemplate", json!({"version": {"name": "v1"}}), "source", "set source"),
            ("CoderTemplate", template("source", json!({})), "source", "exactly one of"),
            (
                "CoderTemplate",
                template("source", json!({"files": {"main.tf": ""}, "directory": "here"})),
                "source",
                "exactly one of",
            ),
            (
                "CoderTemplate",
                template("source", json!({"directory": "/etc"})),
                "source.directory",
                "relative",
            ),
            (
                "CoderTemplate",
                template("version", json!({"name": "a b"})),
                "version.name",
                "letters and digits",
            ),
            (
                "CoderTemplate",
                template("variables", json!([{"name": "a", "value": "b", "valueFrom": secret}])),
                "variables[0]",
                "exactly one of",
            ),
            (
                "CoderTemplate",
                template("acl", json!({"groups": {"a": "own"}})),
                "acl.groups.a",
                "Unsupported value",
            ),
            (
                "CoderTemplate",
                template("schedule", json!({"defaultTTL": "1 day"})),
                "schedule.defaultTTL",
                "match",
            ),
            (
                "CoderTemplate",
                template("schedule", json!({"autostop": {"days": [], "weeks": 17}})),
                "schedule.autostop.weeks",
                "16",
            ),
            ("CoderTemplate", template("provisionerTags", json!({"owner": "a"})), "provisionerTags", "owner"),
        ],
    )
    .await;
}

#[tokio::test]
async fn ai_manifests_that_coder_could_not_take_are_refused() {
    let provider = |more: Value| {
        let mut spec = json!({"type": "bedrock", "name": "bedrock"});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        spec
    };
    let one = json!([{"name": "keys"}]);
    assert_refused(
        "ai",
        vec![
            ("CoderAIProvider", provider(json!({"type": "other"})), "type", "Unsupported value"),
            ("CoderAIProvider", provider(json!({"name": "Bedrock"})), "name", "small letters"),
            ("CoderAIProvider", provider(json!({"baseURL": "bedrock"})), "baseURL", "http://"),
            (
                "CoderAIProvider",
                provider(json!({"apiKeySecretRefs": one})),
                "apiKeySecretRefs",
                "cannot be set",
            ),
            (
                "CoderAIProvider",
                provider(json!({"type": "openai", "bedrock": {"region": "eu"}})),
                "bedrock",
                "only for the type bedrock",
            ),
            (
                "CoderAIProvider",
                provider(json!({"bedrock": {"accessKeySecretRef": {"name": "aws"}}})),
                "bedrock",
                "set both, or neither",
            ),
            (
                "CoderAIProvider",
                provider(json!({"bedrock": {"protocol": "mantle"}})),
                "bedrock.region",
                "mantle",
            ),
            (
                "CoderAIProvider",
                provider(json!({"bedrock": {"roleARN": "role"}})),
                "bedrock.roleARN",
                "IAM role",
            ),
            ("CoderAIModel", json!({"provider": "a", "model": " m"}), "model", "without blanks"),
            ("CoderAIModel", json!({"provider": "a", "model": "m", "contextLimit": 0}), "contextLimit", "1"),
            (
                "CoderAIModel",
                json!({"provider": "a", "model": "m", "default": false}),
                "default",
                "true or absent",
            ),
        ],
    )
    .await;
}

#[tokio::test]
async fn accounts_that_coder_could_not_have_are_refused() {
    let user = |more: Value| {
        let mut spec = json!({"email": "alice@example.com"});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        spec
    };
    let password = json!({"name": "people"});
    assert_refused(
        "accounts",
        vec![
            ("CoderUser", json!({}), "email", "is required"),
            ("CoderUser", user(json!({"email": "alice"})), "email", "should match"),
            (
                "CoderUser",
                user(json!({"serviceAccount": true})),
                "email",
                "cannot be set for a service account",
            ),
            (
                "CoderUser",
                json!({"serviceAccount": true, "loginType": "oidc"}),
                "loginType",
                "must be `none`",
            ),
            (
                "CoderUser",
                user(json!({"loginType": "oidc", "passwordSecretRef": password})),
                "passwordSecretRef",
                "needs loginType `password`",
            ),
            ("CoderUser", user(json!({"username": "two words"})), "username", "letters and digits"),
            ("CoderUser", user(json!({"roles": ["member"]})), "roles[0]", "must not be listed"),
            ("CoderUser", user(json!({"organizations": []})), "organizations", "at least 1"),
        ],
    )
    .await;
}

#[tokio::test]
async fn mappings_and_filters_that_coder_could_not_use_are_refused() {
    assert_refused(
        "mappings",
        vec![
            ("CoderOrganizationSync", json!({"mapping": {"/a": ["a b"]}}), "mapping./a[0]", "should match"),
            ("CoderOrganizationSync", json!({"mapping": {"/a": [""]}}), "mapping./a[0]", "at least 1 char"),
            (
                "CoderGroupSync",
                json!({"regexFilter": "^(/alpha"}),
                "regexFilter",
                "must be a regular expression",
            ),
            (
                "CoderGroupSync",
                json!({"regexFilter": "(?=x)"}),
                "regexFilter",
                "must be a regular expression",
            ),
        ],
    )
    .await;
}

#[tokio::test]
async fn policies_that_do_not_exist_are_refused() {
    let supported = "Unsupported value";
    assert_refused(
        "policies",
        vec![
            ("CoderGroup", json!({"mode": "Enforced"}), "mode", supported),
            ("CoderGroup", json!({"deletionPolicy": "Orphan"}), "deletionPolicy", supported),
            ("CoderGroup", json!({"adoptionPolicy": "Always"}), "adoptionPolicy", supported),
            ("CoderGroup", json!({"approval": "Maybe"}), "approval", supported),
            ("CoderGroup", json!({"interval": "9s"}), "interval", "must be at least 10s"),
            ("CoderGroup", json!({"interval": "5 minutes"}), "interval", "should match"),
            ("CoderGroup", json!({"interval": ""}), "interval", "at least 1 char"),
            ("CoderControlPlane", json!({"interval": "1s"}), "interval", "must be at least 10s"),
            (
                "CoderControlPlane",
                json!({"licenseDeletionPolicy": "Keep"}),
                "licenseDeletionPolicy",
                supported,
            ),
        ],
    )
    .await;
}

#[tokio::test]
async fn banners_without_a_proper_colour_are_refused() {
    let colour = "six hexadecimal digits";
    let banner = |banner: Value| json!({"announcementBanners": [banner]});
    let path = "announcementBanners[0].backgroundColor";
    assert_refused(
        "banners",
        vec![
            ("CoderAppearance", banner(json!({"message": "x"})), path, "Required value"),
            ("CoderAppearance", banner(json!({"backgroundColor": "green"})), path, colour),
            ("CoderAppearance", banner(json!({"backgroundColor": "#07a"})), path, colour),
            ("CoderAppearance", banner(json!({"backgroundColor": "#00 a33"})), path, colour),
        ],
    )
    .await;
}

#[tokio::test]
async fn addresses_that_are_more_or_less_than_an_address_are_refused() {
    let alone = "must be an address alone";
    let at = |url: &str| json!({"external": {"url": url, "credentialsSecretRef": {"name": "token"}}});
    let path = "external.url";
    assert_refused(
        "addresses",
        vec![
            ("CoderControlPlane", at("coder.example.com"), path, "begins with http:// or https://"),
            ("CoderControlPlane", at("ftp://coder.example.com"), path, "begins with http:// or https://"),
            ("CoderControlPlane", at("https://"), path, "begins with http:// or https://"),
            ("CoderControlPlane", at("https://me:word@coder.example.com"), path, alone),
            ("CoderControlPlane", at("https://token@coder.example.com/x"), path, alone),
            ("CoderControlPlane", at("https://coder.example.com?a=b"), path, alone),
            ("CoderControlPlane", at("https://coder.example.com/#top"), path, alone),
            ("CoderControlPlane", at("https://coder example.com"), path, alone),
            (
                "CoderControlPlane",
                json!({"external": {"url": "https://x"}}),
                "external.credentialsSecretRef",
                "Required",
            ),
        ],
    )
    .await;
}

#[tokio::test]
async fn a_licence_that_is_named_twice_is_refused() {
    let path = "licenseSecretRefs";
    let once = "must name every licence once";
    let one = json!({"name": "one"});
    let same = json!({"name": "one", "key": "license"});
    let empty = json!({"name": "one", "key": ""});
    assert_refused(
        "licences",
        vec![
            ("CoderControlPlane", json!({"licenseSecretRef": one, "licenseSecretRefs": [same]}), path, once),
            (
                "CoderControlPlane",
                json!({"licenseSecretRef": same, "licenseSecretRefs": [empty]}),
                path,
                once,
            ),
            ("CoderControlPlane", json!({"licenseSecretRefs": [one, {"name": "two"}, same]}), path, once),
            (
                "CoderControlPlane",
                json!({"licenseSecretRef": {"name": ""}}),
                "licenseSecretRef.name",
                "at least 1 char",
            ),
            (
                "CoderControlPlane",
                json!({"licenseSecretRef": {"name": "x", "key": "a/b"}}),
                "licenseSecretRef.key",
                "should match",
            ),
        ],
    )
    .await;
    let cluster = Cluster::new("licences").await;
    let spec = json!({"licenseSecretRef": one, "licenseSecretRefs": [{"name": "one", "key": "add-on"}, {"name": "two"}]});
    cluster.apply_spec("CoderControlPlane", "main", &spec).await.unwrap();
}

#[tokio::test]
async fn what_does_not_say_where_it_belongs_is_refused() {
    let cluster = Cluster::new("nowhere").await;
    for kind in api::kinds::APP_STATE.iter().chain(&["CoderProvisioner"]) {
        let said = refusal(cluster.apply_spec(kind, "mistake", &json!({})).await);
        assert!(said.contains("spec.controlPlaneRef: Required value"), "{said}");
        let said = refusal(cluster.apply_spec(kind, "mistake", &json!({"controlPlaneRef": {}})).await);
        assert!(said.contains("spec.controlPlaneRef.name: Required value"), "{said}");
    }
}
