//! Objects of ours in a cluster, as the command line names and reads them.

use anyhow::{Context as _, anyhow};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinitionNames;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams},
};

use crate::{
    cli::exit::Failure,
    cluster::{self, fence::Fence},
};

/// The cluster of the kubeconfig.
pub(crate) struct Objects {
    client: Client,
}

/// The namespaces that a verb is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Scope {
    All,
    /// `None` for the namespace of the context.
    One(Option<String>),
}

impl Objects {
    pub(crate) async fn connect() -> Result<Self, Failure> {
        Ok(Self { client: cluster::clients(Fence::open()).await?.acting })
    }

    /// Every object of ours, by kind. Fails where the cluster knows none of the kinds.
    pub(crate) async fn list(&self, scope: &Scope) -> Result<Vec<DynamicObject>, Failure> {
        let mut found = Vec::new();
        let mut is_known = false;
        for kind in api::kinds::ALL {
            let namespace = match scope {
                Scope::All => None,
                Scope::One(named) => Some(self.namespace(named.as_deref())),
            };
            match self.api(kind, namespace).list(&ListParams::default()).await {
                Ok(list) => {
                    is_known = true;
                    // A list names its kind once, and its items do not.
                    let named =
                        list.items.into_iter().map(|it| DynamicObject { types: Some(types(kind)), ..it });
                    found.extend(named);
                }
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                Err(error) => {
                    return Err(anyhow!(error).context(format!("list objects of kind {kind}")).into());
                }
            }
        }
        if is_known {
            Ok(found)
        } else {
            Err(anyhow!(
                "the cluster has no kinds of {}: install the CRDs, or choose another context",
                api::GROUP
            )
            .into())
        }
    }

    /// One object, named as `KIND/NAME`.
    pub(crate) async fn get(&self, object: &str, namespace: Option<&str>) -> Result<DynamicObject, Failure> {
        let (kind, name) = parse(object)?;
        let namespace = self.namespace(namespace);
        let found = self.api(kind, Some(namespace)).get_opt(name).await;
        let found = found.with_context(|| format!("read {kind} {namespace}/{name}"))?;
        let found = found
            .ok_or_else(|| Failure::usage(format!("there is no {kind} {name} in namespace {namespace}")))?;
        Ok(DynamicObject { types: Some(types(kind)), ..found })
    }

    /// The objects of a kind.
    pub(crate) fn api(&self, kind: &str, namespace: Option<&str>) -> Api<DynamicObject> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(api::GROUP, api::VERSION, kind));
        match namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        }
    }

    fn namespace<'a>(&'a self, named: Option<&'a str>) -> &'a str {
        named.unwrap_or_else(|| self.client.default_namespace())
    }
}

fn types(kind: &str) -> kube::core::TypeMeta {
    kube::core::TypeMeta { api_version: format!("{}/{}", api::GROUP, api::VERSION), kind: kind.to_owned() }
}

/// The kind and the name in `KIND/NAME`. The kind is written as kubectl takes it: in any case, plural, or short.
fn parse(object: &str) -> Result<(&'static str, &str), Failure> {
    let expected = || Failure::usage(format!("{object:?}: expected KIND/NAME, as in codergroup/developers"));
    let (word, name) = object.split_once('/').filter(|(_, name)| !name.is_empty()).ok_or_else(expected)?;
    let crds = api::crds();
    let names = crds.iter().map(|it| &it.spec.names).find(|it| is_called(it, word));
    let kind = names.and_then(|found| api::kinds::ALL.iter().find(|it| **it == found.kind));
    let unknown = || Failure::usage(format!("no kind {word}: there are {}", api::kinds::ALL.join(", ")));
    kind.map(|it| (*it, name)).ok_or_else(unknown)
}

fn is_called(names: &CustomResourceDefinitionNames, word: &str) -> bool {
    let short = names.short_names.iter().flatten();
    let words = short.chain([&names.kind, &names.plural]).chain(&names.singular);
    words.into_iter().any(|it| it.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kind_is_named_as_kubectl_takes_it() {
        for word in ["CoderGroup", "codergroup", "codergroups", "CODERGROUP"] {
            assert_eq!(parse(&format!("{word}/developers")).unwrap(), ("CoderGroup", "developers"), "{word}");
        }
        for crd in api::crds() {
            for short in crd.spec.names.short_names.iter().flatten() {
                assert_eq!(parse(&format!("{short}/a")).unwrap().0, crd.spec.names.kind);
            }
        }
    }

    #[test]
    fn name_without_a_known_kind_is_a_usage_error() {
        for (object, words) in [
            ("developers", "expected KIND/NAME"),
            ("codergroup/", "expected KIND/NAME"),
            ("pod/a", "no kind pod: there are Coder"),
        ] {
            let failure = parse(object).unwrap_err();
            assert!(failure.error.to_string().contains(words), "{object}: {:?}", failure.error);
        }
    }
}
