//! Go's nil: coderd writes `null` for some empty lists and maps, and here they are empty.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

/// Reads `null` as the empty value.
pub(crate) fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Reads `null` as the empty map, and `null` inside it as an empty list.
pub(crate) fn null_lists_as_empty<'de, D, T>(deserializer: D) -> Result<BTreeMap<String, Vec<T>>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let map: BTreeMap<String, Option<Vec<T>>> = null_as_default(deserializer)?;
    Ok(map.into_iter().map(|(key, list)| (key, list.unwrap_or_default())).collect())
}
