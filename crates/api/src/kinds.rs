//! The one table of kinds. Modules, CRDs, registration, RBAC, reference pages and suites that cover every kind are derived from it.

/// Calls a macro with a row for every kind: its module here and in the engine, its name, and the engine's type that drives it.
///
/// Kinds that run pods come last, without that type: suites for state behind Coder's API alone do not cover them.
#[macro_export]
macro_rules! for_each_kind {
    ($with:ident) => {
        $with! {
            ai_model: CoderAIModel => AiModel,
            ai_provider: CoderAIProvider => AiProvider,
            appearance: CoderAppearance => Appearance,
            group: CoderGroup => Group,
            group_sync: CoderGroupSync => GroupSync,
            organization: CoderOrganization => Organization,
            organization_sync: CoderOrganizationSync => OrganizationSync,
            provisioner_key: CoderProvisionerKey => ProvisionerKey,
            role: CoderRole => Role,
            role_sync: CoderRoleSync => RoleSync,
            template: CoderTemplate => Template,
            user: CoderUser => User,
            ;
            control_plane: CoderControlPlane,
            provisioner: CoderProvisioner,
        }
    };
}

macro_rules! names {
    ($($module:ident: $kind:ident => $driver:ident),+ $(,)?; $($with_pods:ident: $other:ident),+ $(,)?) => {
        /// Kinds that declare state behind a control plane's API.
        pub const APP_STATE: &[&str] = &[$(stringify!($kind)),+];
        /// Kinds that run pods.
        pub const WITH_PODS: &[&str] = &[$(stringify!($other)),+];
        /// Every kind.
        pub const ALL: &[&str] = &[$(stringify!($kind),)+ $(stringify!($other)),+];
    };
}

for_each_kind!(names);
