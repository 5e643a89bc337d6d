//! The kinds, one file each. Which kinds there are says the table of the `api` crate.

pub mod control_plane;
pub mod fingerprint;
mod mapping;
mod names;
pub mod provisioner;

use kube::Resource as _;
use serde_json::Value;

pub use self::provisioner::Provisioner;
use crate::{
    coder::Coder,
    driver::{Object, Subject},
    export::{Export, ExportScope, Exporter},
    kind::Kind,
    pipeline::outcome::Trouble,
};

/// Somebody who does the same with every kind.
pub trait Visitor {
    fn visit<K: Kind>(&mut self);
}

/// Reads a manifest of any kind that can be compared, kinds with objects of their own included. `None` for other kinds.
pub fn subject(kind: &str, manifest: &Value) -> Option<Result<Box<dyn Subject>, serde_json::Error>> {
    if kind == <Provisioner as Kind>::Manifest::kind(&()) {
        return Some(Object::<Provisioner>::parse(manifest).map(|it| Box::new(it) as Box<dyn Subject>));
    }
    parse(kind, manifest)
}

/// Registers the kinds of the table, so that every way in knows them.
macro_rules! register {
    ($($module:ident: $manifest:ident => $kind:ident),+ $(,)?; $($with_pods:ident: $other:ident),+ $(,)?) => {
        $(pub mod $module; pub use $module::$kind;)+

        /// The names of the registered kinds.
        pub fn names() -> Vec<String> {
            vec![$(<$kind as Kind>::Manifest::kind(&()).into_owned()),+]
        }

        /// Shows every registered kind to a visitor, with its type.
        pub fn visit(visitor: &mut impl Visitor) {
            $(visitor.visit::<$kind>();)+
        }

        /// Reads a deployment as manifests of every registered kind.
        pub async fn export(scope: &ExportScope, coder: &Coder) -> Result<Export, Trouble> {
            let mut exporter = Exporter::new(scope, coder).await?;
            $(exporter.add::<$kind>().await;)+
            Ok(exporter.finish())
        }

        /// Reads a manifest of a registered kind; nothing when its kind is not one.
        pub fn parse(kind: &str, manifest: &Value) -> Option<Result<Box<dyn Subject>, serde_json::Error>> {
            $(if kind == <$kind as Kind>::Manifest::kind(&()) {
                return Some(Object::<$kind>::parse(manifest).map(|it| Box::new(it) as Box<dyn Subject>));
            })+
            None
        }
    };
}

api::for_each_kind!(register);
