//! `diff`: the plan of one object that is in the cluster, computed now and whole.

use kube::{ResourceExt as _, api::DynamicObject};

use crate::{
    args::Diff,
    cli::{
        exit::{Exit, Failure},
        manifests::Sources,
        objects::Objects,
        verbs::{plan::plan, session::Session},
    },
};

pub(super) async fn diff(args: Diff, quiet: bool, verbose: bool) -> Result<Exit, Failure> {
    let Diff { object, namespace, exit_code, deployment } = args;
    let stored = Objects::connect().await?.get(&object, namespace.as_deref()).await?;
    Session::run_on(manifest(stored)?, deployment, quiet, verbose, async |it| {
        plan(it, exit_code, false).await
    })
    .await
}

/// The manifest of an object, without what the cluster has added to it.
fn manifest(mut object: DynamicObject) -> Result<Sources, Failure> {
    let kind = object.types.as_ref().map(|it| it.kind.clone()).unwrap_or_default();
    let name = format!("{kind} {}/{}", object.namespace().unwrap_or_default(), object.name_any());
    object.metadata.managed_fields = None;
    if let Some(fields) = object.data.as_object_mut() {
        fields.remove("status");
    }
    let text = serde_json::to_string_pretty(&object).map_err(anyhow::Error::from)?;
    Ok(Sources::Objects(vec![(name, text)]))
}
