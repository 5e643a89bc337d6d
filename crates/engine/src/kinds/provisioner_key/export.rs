//! Provisioner keys as manifests, without their values. Pure.

use api::{CoderProvisionerKey, CoderProvisionerKeySpec};
use client::{organizations::Organization, provisioner_keys::ProvisionerKey as Remote};

use crate::pipeline::export::{Draft, KindExport, NeededSecret, organization_word, slug, title_in};

/// Why keys are not part of an export of everything.
const ON_REQUEST: &str = "Coder does not show its value, and its manifest waits for the Secret with the value: give \
                          --all or --kind CoderProvisionerKey to export it, and supply the Secret";

pub(super) fn drafts(
    keys: impl IntoIterator<Item = Remote>,
    home: &Organization,
    is_asked_for: bool,
) -> KindExport<CoderProvisionerKey> {
    let mut export = KindExport::default();
    for key in keys {
        if is_asked_for {
            export.drafts.push(draft(key, home));
        } else {
            export.leave_out(format!("provisioner key {}/{}", home.name, key.name), ON_REQUEST);
        }
    }
    export
}

fn draft(found: Remote, home: &Organization) -> Draft<CoderProvisionerKey> {
    let title = title_in(home, &found.name);
    let secret = format!("{}-provisioner-key", slug(&title));
    let what = format!(
        "value of provisioner key {}/{}, as its daemons have it; in the cluster only",
        home.name, found.name
    );
    let needed = NeededSecret { name: secret.clone(), key: "key".to_owned(), what };
    let spec = CoderProvisionerKeySpec {
        organization: Some(organization_word(home)),
        name: Some(found.name),
        tags: (!found.tags.is_empty()).then_some(found.tags),
        secret_name: Some(secret),
        secret_key: Some("key".to_owned()),
        ..CoderProvisionerKeySpec::default()
    };
    let mut draft = Draft::new(&title, CoderProvisionerKey::new(&title, spec));
    draft.secrets.push(needed);
    draft.notes.push("until its Secret is supplied, the manifest waits with the reason NameTaken".to_owned());
    draft
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn keys_are_exported_on_request_with_the_secret_to_supply() {
        let home: Organization =
            serde_json::from_value(json!({"id": Uuid::from_u128(1), "name": "alpha"})).unwrap();
        let key: Remote =
            serde_json::from_value(json!({"id": Uuid::from_u128(9), "name": "eks", "tags": {"a": "b"},
            "organization": Uuid::from_u128(1), "created_at": "2026-01-01T00:00:00Z"}))
            .unwrap();
        let asked = drafts([key.clone()], &home, true);
        let draft = &asked.drafts[0];
        assert_eq!(draft.manifest.spec.secret_name.as_deref(), Some("alpha-eks-provisioner-key"));
        assert_eq!(draft.secrets[0].name, "alpha-eks-provisioner-key");
        assert_eq!(draft.manifest.spec.tags.as_ref().unwrap()["a"], "b");
        let unasked = drafts([key], &home, false);
        assert!(unasked.drafts.is_empty() && unasked.left_out[0].what == "provisioner key alpha/eks");
    }
}
