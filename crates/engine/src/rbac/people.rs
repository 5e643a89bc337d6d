//! What people may do with our kinds: the `view` and `edit` roles, and which kinds `edit` leaves out.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};

/// The verbs of the `view` role.
pub const READ: [&str; 3] = ["get", "list", "watch"];
/// The verbs that the `edit` role adds.
pub const WRITE: [&str; 5] = ["create", "update", "patch", "delete", "deletecollection"];

/// A kind, as roles for people see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManagedKind {
    pub kind: String,
    pub plural: String,
    /// The fields of `spec` that refer to Secrets. Whoever may write one of them can use every Secret of the namespace.
    pub secret_fields: Vec<String>,
}

/// Every kind. Which of them refer to Secrets is read from their schemas, so that no later kind is forgotten.
pub fn kinds() -> Vec<ManagedKind> {
    api::crds().into_iter().map(managed).collect()
}

fn managed(crd: CustomResourceDefinition) -> ManagedKind {
    let schemas = crd.spec.versions.iter().filter_map(|it| it.schema.as_ref()?.open_api_v3_schema.as_ref());
    let specs = schemas.filter_map(|it| it.properties.as_ref()?.get("spec"));
    let fields = specs.flat_map(|it| it.properties.iter().flatten());
    let of_secrets = fields.filter(|(name, field)| is_secret(name) || refers_to_secrets(field));
    let secret_fields = of_secrets.map(|(name, _)| format!("spec.{name}")).collect();
    ManagedKind { kind: crd.spec.names.kind, plural: crd.spec.names.plural, secret_fields }
}

fn is_secret(name: &str) -> bool {
    name.to_lowercase().contains("secret")
}

fn refers_to_secrets(schema: &JSONSchemaProps) -> bool {
    let properties = schema.properties.iter().flatten();
    let mut inside: Vec<&JSONSchemaProps> = Vec::new();
    for (name, property) in properties {
        if is_secret(name) {
            return true;
        }
        inside.push(property);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &schema.additional_properties {
        inside.push(values);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &schema.items {
        inside.push(items);
    }
    inside.into_iter().any(refers_to_secrets)
}
