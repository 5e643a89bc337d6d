//! The examples of the repository, as tests use them.

use std::{fs, path::PathBuf};

use serde_json::Value;

/// Every document of the examples, in the order of their files.
pub(crate) fn examples() -> Vec<Value> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/kinds");
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|it| it.unwrap().path()).collect();
    paths.sort();
    paths.iter().flat_map(|path| documents(&fs::read_to_string(path).unwrap())).collect()
}

fn documents(text: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(text).unwrap()
}
