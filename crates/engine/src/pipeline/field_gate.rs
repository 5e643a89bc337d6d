//! Fields that only some deployments support: since a version of Coder, or with a licence.
//!
//! A kind lists them in [`Kind::FIELD_GATES`](crate::kind::Kind::FIELD_GATES), a line each. A declared field that a deployment
//! does not support is removed from the manifest before the stages see it, so that it is neither sent nor compared, and the
//! status names the field and what it needs. Everything else that is declared is kept as ever.

use api::Reason;
use client::deployment::{BuildInfo, Entitlements};
use serde_json::Value;

use crate::pipeline::{gate::Gate, outcome::Blocked, version::Version};

/// A field of a kind's spec, and what it needs of a deployment. The field has to be optional.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldGate {
    /// The field's path in the spec, as `bedrock.protocol`.
    pub field: &'static str,
    needs: Needs,
}

/// What a field needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Needs {
    /// A Coder of this major and minor version, or a later one.
    Version(u64, u64),
    License(Gate),
}

impl FieldGate {
    /// A field that Coder has since a version: `FieldGate::since("icon", 2, 36)`.
    pub const fn since(field: &'static str, major: u64, minor: u64) -> Self {
        Self { field, needs: Needs::Version(major, minor) }
    }

    /// A field that needs a licensed feature, while its kind does not.
    pub const fn licensed(field: &'static str, gate: Gate) -> Self {
        Self { field, needs: Needs::License(gate) }
    }

    /// Why a deployment does not support the field. `None` where it does. A development build has no version that means
    /// anything, and is taken to support every field.
    fn refusal(&self, build: &BuildInfo, entitlements: Option<&Entitlements>) -> Option<Blocked> {
        let field = self.field;
        let (reason, message) = match self.needs {
            Needs::Version(major, minor) => {
                let found = Version::parse(&build.version)?;
                if found.minor() >= (major, minor) {
                    return None;
                }
                let message =
                    format!("spec.{field} needs Coder >= {major}.{minor}, and this is {}", build.version);
                (Reason::VersionNotSupported, message)
            }
            Needs::License(Gate { feature, license }) => {
                if entitlements.is_some_and(|it| it.is_enabled(feature)) {
                    return None;
                }
                (Reason::NotEntitled, format!("spec.{field} needs a {license} licence: {feature}"))
            }
        };
        Some(Blocked { reason, message })
    }
}

/// The declared fields that a deployment does not support.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unsupported(Vec<(&'static str, Blocked)>);

impl Unsupported {
    /// Finds them in a manifest. A build that knows no licences has no entitlements.
    pub fn of(
        gates: &[FieldGate],
        manifest: &Value,
        build: &BuildInfo,
        entitlements: Option<&Entitlements>,
    ) -> Self {
        let declared = gates.iter().filter(|it| is_declared(&manifest["spec"], it.field));
        Self(declared.filter_map(|it| Some((it.field, it.refusal(build, entitlements)?))).collect())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes the fields from a manifest.
    pub fn remove_from(&self, manifest: &mut Value) {
        for (field, _) in &self.0 {
            remove(&mut manifest["spec"], field);
        }
    }

    /// What a condition says of the fields: the reason of the first, and all of them by name. `None` where there are none.
    pub fn blocked(&self) -> Option<Blocked> {
        let (_, Blocked { reason, .. }) = self.0.first()?;
        let each: Vec<&str> = self.0.iter().map(|(_, it)| it.message.as_str()).collect();
        let fields = if each.len() == 1 { "the field" } else { "the fields" };
        let message = format!(
            "{}. All other fields are compared and applied: remove {fields}, or give the deployment what is needed",
            each.join("; ")
        );
        Some(Blocked { reason: *reason, message })
    }
}

fn is_declared(spec: &Value, path: &str) -> bool {
    let found = path.split('.').try_fold(spec, |at, name| at.get(name));
    found.is_some_and(|it| !it.is_null())
}

fn remove(spec: &mut Value, path: &str) {
    match path.split_once('.') {
        Some((first, rest)) => {
            if let Some(inner) = spec.get_mut(first) {
                remove(inner, rest);
            }
        }
        None => {
            if let Value::Object(fields) = spec {
                fields.remove(path);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const GATE: Gate = Gate { feature: "access_control", license: "Premium" };
    const GATES: &[FieldGate] = &[
        FieldGate::since("icon", 2, 36),
        FieldGate::since("bedrock.roleARN", 2, 35),
        FieldGate::licensed("requireActiveVersion", GATE),
    ];

    fn unsupported(manifest: &Value, version: &str, is_licensed: bool) -> Unsupported {
        let build = json!({"version": version, "deployment_id": uuid::Uuid::nil()});
        let feature = json!({"entitlement": "entitled", "enabled": is_licensed});
        let entitlements = json!({"features": {"access_control": feature}, "has_license": is_licensed,
            "refreshed_at": "2026-01-01T00:00:00Z"});
        let build = serde_json::from_value(build).unwrap();
        let entitlements = serde_json::from_value(entitlements).unwrap();
        Unsupported::of(GATES, manifest, &build, Some(&entitlements))
    }

    fn manifest() -> Value {
        json!({"spec": {"icon": "/a.svg", "enabled": true, "bedrock": {"roleARN": "arn", "region": "r"},
            "requireActiveVersion": true}})
    }

    #[test]
    fn unsupported_field_is_removed_and_named_with_what_it_needs() {
        let found = unsupported(&manifest(), "v2.34.3", false);
        let mut trimmed = manifest();
        found.remove_from(&mut trimmed);
        assert_eq!(trimmed, json!({"spec": {"enabled": true, "bedrock": {"region": "r"}}}));
        let Blocked { reason, message } = found.blocked().unwrap();
        assert_eq!(reason, Reason::VersionNotSupported);
        for words in [
            "spec.icon needs Coder >= 2.36, and this is v2.34.3",
            "spec.bedrock.roleARN needs Coder >= 2.35, and this is v2.34.3",
            "spec.requireActiveVersion needs a Premium licence: access_control",
        ] {
            assert!(message.contains(words), "{message}");
        }
    }

    #[test]
    fn supported_and_undeclared_fields_are_left_alone() {
        for version in ["v2.36.1+abc", "v2.37.0", "v0.0.0-devel"] {
            assert!(unsupported(&manifest(), version, true).is_empty(), "{version}");
        }
        let other = json!({"spec": {"enabled": true, "bedrock": {"region": "r"}}});
        assert!(unsupported(&other, "v2.34.0", false).is_empty());
        let licensed = unsupported(&manifest(), "v2.36.0", false).blocked().unwrap();
        assert_eq!(licensed.reason, Reason::NotEntitled);
        let older = unsupported(&manifest(), "v2.35.2", true).blocked().unwrap();
        assert!(older.message.contains("spec.icon") && !older.message.contains("roleARN"), "{older:?}");
    }
}
