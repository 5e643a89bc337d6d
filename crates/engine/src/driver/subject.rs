//! A manifest of any kind, for whoever has a set of them.

use std::pin::Pin;

use api::AppState as _;
use kube::{Resource as _, ResourceExt as _};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::{Assessment, Object, Report};
use crate::{
    coder::{Coder, Promises},
    kind::{Kind, Runner},
    pipeline::{decide::Door, outcome::Invalid, reference::Ref, remote_name::RemoteName},
    ports::object::Live,
    secrets::Holder,
};

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A manifest of any kind.
pub trait Subject: Send + Sync {
    /// The kind, namespace and name of the manifest.
    fn reference(&self) -> Reference;
    /// The remote object in words.
    fn target(&self) -> String;
    fn control_plane(&self) -> &str;
    /// What only one manifest of the kind may declare in a deployment.
    fn exclusive(&self) -> Option<&'static str> {
        None
    }
    fn rank(&self) -> u8;
    fn is_suspended(&self) -> bool;
    fn runner(&self) -> Runner {
        Runner::Any
    }
    /// Whether the manifest keeps something in a cluster, so that one is needed.
    fn needs_cluster(&self) -> bool {
        false
    }
    /// Whether the manifest is compared with a deployment. Without that need it is assessed also while its control plane cannot be
    /// reached, with a [`Coder`] that has no credentials.
    fn needs_deployment(&self) -> bool {
        true
    }
    /// Makes the manifest of a file that of the object `stored` in a cluster, or of one that is in no cluster yet. `namespace`
    /// is that of manifests which name none.
    fn settle_in(&mut self, _namespace: &str, _stored: Option<&Live>) {}
    /// The object that other manifests may refer to once this one is applied.
    fn provides(&self) -> Option<RemoteName> {
        None
    }
    /// What the manifest refers to.
    fn refs(&self) -> Vec<Ref> {
        Vec::new()
    }
    fn promise(&self, promises: &mut Promises) {
        if let Some(name) = self.provides() {
            promises.add(&name);
        }
    }
    /// Finds every mistake that can be found without asking anybody.
    fn check(&self) -> Result<(), Invalid> {
        Ok(())
    }
    fn assess<'a>(&'a mut self, coder: &'a Coder, door: Door) -> BoxFuture<'a, Assessment>;
    /// Plans the deletion. Empty where only the controllers delete.
    fn assess_deletion<'a>(&'a mut self, _coder: &'a Coder) -> BoxFuture<'a, Assessment> {
        Box::pin(async { Assessment::nothing(&self.target(), None) })
    }
    /// Carries out the plan. Nothing is done where only the controllers do: see [`Runner::Controller`].
    fn carry_out<'a>(&'a self, assessment: &'a Assessment, _coder: &'a Coder) -> BoxFuture<'a, Report> {
        Box::pin(async { assessment.not_carried_out() })
    }
}

/// Which manifest.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reference {
    pub kind: String,
    pub namespace: Option<String>,
    pub name: String,
}

impl std::fmt::Display for Reference {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(formatter, "{} {namespace}/{}", self.kind, self.name),
            None => write!(formatter, "{} {}", self.kind, self.name),
        }
    }
}

impl<K: Kind> Subject for Object<K> {
    fn reference(&self) -> Reference {
        Reference {
            kind: K::Manifest::kind(&()).into_owned(),
            namespace: self.manifest.namespace(),
            name: self.manifest.name_any(),
        }
    }

    fn target(&self) -> String {
        K::target(&self.manifest)
    }

    fn control_plane(&self) -> &str {
        self.manifest.control_plane()
    }

    fn exclusive(&self) -> Option<&'static str> {
        K::exclusive(&self.manifest)
    }

    fn rank(&self) -> u8 {
        K::RANK
    }

    fn is_suspended(&self) -> bool {
        self.manifest.policy().is_suspended()
    }

    fn runner(&self) -> Runner {
        K::RUNNER
    }

    fn needs_cluster(&self) -> bool {
        K::HAS_SECRETS
    }

    fn needs_deployment(&self) -> bool {
        K::NEEDS_DEPLOYMENT
    }

    fn settle_in(&mut self, namespace: &str, stored: Option<&Live>) {
        settle_in(&mut self.manifest, namespace, stored);
        if let Some(stored) = stored {
            K::take_over(&mut self.manifest, stored);
        }
    }

    fn provides(&self) -> Option<RemoteName> {
        K::provides(&self.manifest)
    }

    fn refs(&self) -> Vec<Ref> {
        K::refs(&self.manifest)
    }

    fn check(&self) -> Result<(), Invalid> {
        K::desire(&self.manifest).map(drop)
    }

    fn assess<'a>(&'a mut self, coder: &'a Coder, door: Door) -> BoxFuture<'a, Assessment> {
        Box::pin(Self::assess(self, coder, door))
    }

    fn assess_deletion<'a>(&'a mut self, coder: &'a Coder) -> BoxFuture<'a, Assessment> {
        Box::pin(async {
            match K::RUNNER {
                Runner::Any => Self::assess_deletion(self, coder).await,
                Runner::Controller => Assessment::nothing(&K::target(&self.manifest), None),
            }
        })
    }

    fn carry_out<'a>(&'a self, assessment: &'a Assessment, coder: &'a Coder) -> BoxFuture<'a, Report> {
        Box::pin(async {
            match K::RUNNER {
                Runner::Any => Self::carry_out(self, assessment, coder).await,
                Runner::Controller => assessment.not_carried_out(),
            }
        })
    }
}

/// Gives a manifest of a file the namespace, the uid and the status of the object `stored` in a cluster, or those of an object that
/// is in no cluster yet.
fn settle_in<M>(manifest: &mut M, namespace: &str, stored: Option<&Live>)
where
    M: kube::Resource<DynamicType = ()> + Serialize + DeserializeOwned,
{
    let name = manifest.name_any();
    let meta = manifest.meta_mut();
    let namespace = meta.namespace.get_or_insert_with(|| namespace.to_owned());
    let uid = stored.and_then(|it| it.metadata().uid.clone());
    meta.uid = Some(uid.unwrap_or_else(|| Holder::uid_of_file(&M::kind(&()), namespace, &name)));
    let Ok(mut json) = serde_json::to_value(&*manifest) else { return };
    json["status"] = stored.map_or(Value::Null, |it| it.object["status"].clone());
    if let Ok(settled) = serde_json::from_value(json) {
        *manifest = settled;
    }
}
