//! The kinds of `coder.com/v1alpha1`: what a manifest may say, and what a status reports.
//!
//! Owns the spec and status of every kind, the CEL rules and bounds that the API server enforces, the columns of
//! `kubectl get`, and the words that programs rely on: annotations, finalizers, conditions and reasons. The doc comments
//! of the fields are the users' reference.
//!
//! It decides nothing and reaches nobody: no client, no clock, no other crate of this workspace. Defaults are
//! methods here and never defaults in a CRD, because a GitOps tool would fight over what the API server writes into a spec.
//!
//! Entry points: [`crds`], [`AppState`], and one file per kind.

#![expect(
    unreachable_pub,
    reason = "the derive of schemas repeats every struct, `pub` and all, inside a function"
)]

mod app_state;
mod appearance;
mod control_plane;
mod crds;
mod group;
mod group_sync;
mod interval;
mod key;
mod organization;
mod organization_sync;
mod policy;
mod provisioner;
mod provisioner_key;
mod quantity;
mod reason;
pub mod reasons;
mod reference;
mod role_sync;
mod rules;
mod schema;
mod status;
mod words;

pub use app_state::AppState;
pub use appearance::{AnnouncementBanner, CoderAppearance, CoderAppearanceSpec};
pub use control_plane::{
    CertSecret, CertsSpec, CoderControlPlane, CoderControlPlaneSpec, CoderControlPlaneStatus,
    ConnectionSecretRef, CredentialStatus, DATABASE_URL, DatabaseSpec, Expose, External, FeatureStatus,
    GatewayExposure, GatewayParentRef, IngressExposure, IngressTls, LicenseDeletionPolicy, LicenseStatus,
    OperatorAccess, ProbeSpec, RbacSpec, ServiceAccountSpec, ServiceSpec, ServiceType, TemplateTests,
    TlsSpec, UserLimit, published_image,
};
pub use crds::crds;
pub use group::{CoderGroup, CoderGroupSpec, EVERYONE};
pub use group_sync::{CoderGroupSync, CoderGroupSyncSpec};
pub use interval::{Interval, InvalidInterval, parse_duration};
pub use key::{OtherKey, ProvisionerKeyState, RESERVED_KEY_NAMES};
pub use organization::{CoderOrganization, CoderOrganizationSpec};
pub use organization_sync::{CoderOrganizationSync, CoderOrganizationSyncSpec};
pub use policy::{AdoptionPolicy, Approval, ChangePolicy, DeletionPolicy, Mode, Policy};
pub use provisioner::{
    Bootstrap, CoderProvisioner, CoderProvisionerSpec, CoderProvisionerStatus, EntitlementLossPolicy,
    ProvisionerKeySpec, ProvisionerRbacSpec, ProvisionerRotation, ProvisionerServiceAccountSpec,
};
pub use provisioner_key::{
    CoderProvisionerKey, CoderProvisionerKeySpec, CoderProvisionerKeyStatus, KeyRotation,
};
pub use reason::{KeptClient, Reason};
pub use reference::{ControlPlaneRef, SecretKeyRef, SecretRef};
pub use role_sync::{CoderRoleSync, CoderRoleSyncSpec};
pub use status::{Difference, Plan, Status, Step};
pub use words::{annotation, condition, finalizer, label};

/// The API group of every kind.
pub const GROUP: &str = "coder.com";

/// The version of every kind.
pub const VERSION: &str = "v1alpha1";

/// The name that stands for the default organization, whatever that one is called.
pub const DEFAULT_ORGANIZATION: &str = "default";
