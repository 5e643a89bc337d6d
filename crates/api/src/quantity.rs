//! Quantities as people write them.
//!
//! `cpu: 2` and `cpu: "2"` are the same to the API server, which keeps either as it is written. The types of
//! Kubernetes read text alone, and one object that cannot be read would hide every other of its kind from us.

use serde::{Deserialize, Deserializer, de::DeserializeOwned, de::Error as _};
use serde_json::Value;

/// Where a quantity stands in the types that are read here.
const QUANTITIES: [&str; 2] = ["divisor", "sizeLimit"];
/// Maps whose values are quantities.
const MAPS: [&str; 2] = ["limits", "requests"];

/// Reads what may hold quantities.
pub(crate) fn read<'de, D: Deserializer<'de>, T: DeserializeOwned>(from: D) -> Result<T, D::Error> {
    let mut value = Value::deserialize(from)?;
    spell(&mut value);
    serde_json::from_value(value).map_err(D::Error::custom)
}

/// Makes text of every quantity that is a number.
fn spell(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                match field {
                    Value::Number(number) if QUANTITIES.contains(&name.as_str()) => {
                        *field = Value::String(number.to_string());
                    }
                    Value::Object(map) if MAPS.contains(&name.as_str()) => {
                        for quantity in map.values_mut().filter(|it| it.is_number()) {
                            *quantity = Value::String(quantity.to_string());
                        }
                    }
                    other => spell(other),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(spell),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ResourceRequirements, Volume};
    use serde_json::json;

    use super::*;

    #[test]
    fn a_quantity_may_be_a_number() {
        let resources: ResourceRequirements =
            read(json!({"limits": {"cpu": 2, "memory": "1Gi"}, "requests": {"cpu": 1}})).unwrap();
        let written = json!({"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1"}});
        assert_eq!(serde_json::to_value(resources).unwrap(), written);
    }

    #[test]
    fn a_quantity_is_found_wherever_a_volume_has_one() {
        let claim = json!({"spec": {"resources": {"requests": {"storage": 1_073_741_824}}}});
        let volumes: Vec<Volume> = read(json!([
            {"name": "a", "emptyDir": {"sizeLimit": 1000}},
            {"name": "b", "ephemeral": {"volumeClaimTemplate": claim}},
            {"name": "c", "secret": {"secretName": "c", "defaultMode": 256}},
        ]))
        .unwrap();
        let written = serde_json::to_value(volumes).unwrap();
        assert_eq!(written[0]["emptyDir"]["sizeLimit"], "1000");
        let requests = &written[1]["ephemeral"]["volumeClaimTemplate"]["spec"]["resources"]["requests"];
        assert_eq!(requests["storage"], "1073741824");
        assert_eq!(written[2]["secret"]["defaultMode"], 256);
    }
}
