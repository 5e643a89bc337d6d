//! The definitions of all kinds, as the API server takes them.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt as _;

/// Every kind's definition, in the order of their names.
pub fn crds() -> Vec<CustomResourceDefinition> {
    let mut crds = derived();
    crds.sort_by(|one, other| one.spec.names.kind.cmp(&other.spec.names.kind));
    let versions = crds.iter_mut().flat_map(|crd| &mut crd.spec.versions);
    for schema in versions.filter_map(|it| it.schema.as_mut()?.open_api_v3_schema.as_mut()) {
        tidy(schema);
    }
    crds
}

macro_rules! derived {
    ($($module:ident: $kind:ident => $driver:ident),+ $(,)?; $($with_pods:ident: $other:ident),+ $(,)?) => {
        /// The definitions as they are derived from the types.
        fn derived() -> Vec<CustomResourceDefinition> {
            vec![$(crate::$kind::crd(),)+ $(crate::$other::crd()),+]
        }
    };
}

for_each_kind!(derived);

/// Makes of a derived schema what a person would have written.
fn tidy(schema: &mut JSONSchemaProps) {
    forget_null(schema);
    shorten_quantity(schema);
    if let Some(description) = &mut schema.description {
        // Where a line of source ends means nothing to the reader of a definition.
        *description =
            description.split("\n\n").map(|it| it.replace('\n', " ")).collect::<Vec<_>>().join("\n\n");
    }
    schema.properties.iter_mut().flatten().for_each(|(_, property)| tidy(property));
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        tidy(values);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        tidy(items);
    }
}

/// Kubernetes explains quantities in forty lines wherever one may stand.
fn shorten_quantity(schema: &mut JSONSchemaProps) {
    let is_quantity =
        |it: &str| it.starts_with("Quantity is") && schema.x_kubernetes_int_or_string == Some(true);
    if schema.description.as_deref().is_some_and(is_quantity) {
        schema.description = Some("A quantity, as `2`, `500m` or `1Gi`.".to_owned());
    }
}

/// The derive lets every option be null. In a manifest null could mean absent, which leaves things as they are, or
/// empty, which removes them: it is refused, so that nobody has to guess and no rule has to know it.
fn forget_null(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    schema.enum_.iter_mut().for_each(|values| values.retain(|it| !it.0.is_null()));
}
