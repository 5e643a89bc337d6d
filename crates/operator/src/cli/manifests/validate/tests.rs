//! Tests of placeholders, secret values and references.

use super::*;

fn validated(text: &str) -> Result<Validated> {
    validate(&Sources::Objects(vec![("a.yaml".to_owned(), text.to_owned())]))
}

/// The findings about these documents: mistakes and warnings, each as `line: message`.
fn findings(text: &str) -> (Vec<String>, Vec<String>) {
    let Validated { mistakes, warnings, .. } = validated(text).unwrap();
    let lines = |found: Vec<Mistake>| {
        found.into_iter().map(|it| format!("{}: {}", it.place.line, it.message)).collect()
    };
    (lines(mistakes), lines(warnings))
}

fn group(fields: &str) -> String {
    format!(
        "apiVersion: coder.com/v1alpha1\nkind: CoderGroup\nmetadata: {{name: developers}}\nspec:\n  controlPlaneRef: {{name: main}}\n{fields}"
    )
}

#[test]
fn placeholder_is_found_with_its_field() {
    for (fields, expected) in [
        ("  displayName: REPLACE_ME\n", "spec.displayName: has the placeholder REPLACE_ME; replace it"),
        (
            "  avatarURL: https://<your-host>/a.png\n",
            "spec.avatarURL: has the placeholder <your-host>; replace it",
        ),
        ("  members: [changeme]\n", "spec.members[0]: has the placeholder changeme; replace it"),
    ] {
        let (mistakes, _) = findings(&group(fields));
        assert_eq!(mistakes, [format!("6: {expected}")]);
    }
}

#[test]
fn prose_and_regular_expressions_are_not_placeholders() {
    let (mistakes, _) = findings(&group("  displayName: Developers <core team>\n"));
    assert_eq!(mistakes, [""; 0]);
    let sync = "apiVersion: coder.com/v1alpha1\nkind: CoderGroupSync\nmetadata: {name: alpha}\nspec:\n  controlPlaneRef: {name: main}\n  regexFilter: '^(?P<team>/alpha/.*)$'\n";
    assert_eq!(findings(sync).0, [""; 0]);
}

#[test]
fn secret_value_is_found_and_not_shown() {
    let jwt = format!("eyJ{}.{}.{}", "a".repeat(30), "b".repeat(30), "c".repeat(30));
    let token = format!("{}-{}", "a".repeat(10), "B".repeat(22));
    let key = format!("sk-ant-{}", "x".repeat(20));
    for (value, what) in [
        (jwt.as_str(), "a signed token (JWT)"),
        (&token, "a Coder session token"),
        (&key, "an API key"),
        ("https://admin:hunter2@example.com/a.png", "a password in an address"),
    ] {
        let manifest = group(&format!("  avatarURL: \"{value}\"\n"));
        let mistakes = validated(&manifest).unwrap().mistakes;
        let [mistake] = &mistakes[..] else { panic!("{value}: {mistakes:?}") };
        assert!(mistake.message.contains(what), "{mistake:?}");
        assert!(!format!("{mistake:?}").contains(value), "{mistake:?}");
    }
}

#[test]
fn exported_text_with_credentials_is_found_by_its_name_or_address() {
    for (path, text) in [
        (".spec.config.provider_options.openrouter.extra_body.api_key", "abc"),
        (".spec.logoURL", "https://token@example.com/logo.svg"),
        (".spec.logoURL", "https://example.com/logo.svg?X-Amz-Signature=abc"),
        (".spec.baseURL", "https://example.com/v1?a=b&key=abc"),
    ] {
        assert!(named_as_secret(path, text).is_some(), "{path}: {text}");
    }
    for (path, text) in [
        (".spec.config.provider_options.openai.prompt_cache_key", "team"),
        (".spec.apiKeySecretRefs.0.key", "token"),
        (".spec.secretKey", "key"),
        (".spec.logoURL", "https://example.com/keys/logo.svg?size=3"),
        (".spec.email", "alice@example.com"),
    ] {
        assert!(named_as_secret(path, text).is_none(), "{path}: {text}");
    }
}

#[test]
fn secret_in_the_open_is_a_mistake_and_an_encrypted_one_is_not() {
    let secret = |rest: &str| {
        format!(
            "{}---\napiVersion: v1\nkind: Secret\nmetadata: {{name: coder}}\nstringData: {{token: hunter2}}\n{rest}",
            group("")
        )
    };
    let (mistakes, _) = findings(&secret(""));
    assert!(
        matches!(&mistakes[..], [one] if one.starts_with("10: stringData.token: holds a secret value") && !one.contains("hunter2")),
        "{mistakes:?}"
    );
    assert_eq!(findings(&secret("sops: {version: 3.9.0}\n")).0, [""; 0]);
}

#[test]
fn reference_that_no_file_declares_is_a_warning() {
    let (mistakes, warnings) = findings(&group("  organization: alpha\n"));
    assert_eq!(mistakes, [""; 0]);
    assert_eq!(
        warnings,
        ["1: refers to organization alpha, which these files do not declare; it has to exist in Coder"]
    );
    let organization = "---\napiVersion: coder.com/v1alpha1\nkind: CoderOrganization\nmetadata: {name: alpha}\nspec: {controlPlaneRef: {name: main}}\n";
    let (_, warnings) = findings(&format!("{}{organization}", group("  organization: alpha\n")));
    assert_eq!(warnings, [""; 0]);
}

#[test]
fn control_plane_that_the_other_planes_of_the_files_lack_is_a_warning() {
    let plane = "---\napiVersion: coder.com/v1alpha1\nkind: CoderControlPlane\nmetadata: {name: other}\nspec: {external: {url: https://coder.example.com, credentialsSecretRef: {name: a}}}\n";
    let (mistakes, warnings) = findings(&format!("{}{plane}", group("")));
    assert_eq!(mistakes, [""; 0]);
    assert!(
        matches!(&warnings[..], [one] if one.contains("CoderControlPlane main is not declared")),
        "{warnings:?}"
    );
}

#[test]
fn files_without_a_manifest_of_ours_fail() {
    let error =
        validated("kind: ConfigMap\napiVersion: v1\nmetadata: {name: a}\n").err().unwrap().to_string();
    assert!(error.starts_with("no manifest of coder.com/v1alpha1"), "{error}");
}
