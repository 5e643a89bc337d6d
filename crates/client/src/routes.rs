//! Every route that the client uses, each with what it sends and reads.
//!
//! The files of the areas declare them with the macro of `route`, and nothing can be asked of coderd that is not listed here;
//! `cargo xtask api-check` compares the list with Coder's own API document.

use std::sync::LazyLock;

use crate::{
    ai_providers, appearance, audit, authorization, deployment, files, groups, idp_sync, licenses, members,
    model_configs, organizations, people, provisioner_keys, roles, server_config, template_versions,
    templates, users, workspaces,
};

pub use crate::route::Route;

/// All of them.
pub static ROUTES: LazyLock<Vec<&'static Route>> = LazyLock::new(|| {
    let areas = [
        deployment::ROUTES,
        licenses::ROUTES,
        organizations::ROUTES,
        groups::ROUTES,
        members::ROUTES,
        roles::ROUTES,
        provisioner_keys::ROUTES,
        idp_sync::ROUTES,
        appearance::ROUTES,
        users::ROUTES,
        ai_providers::ROUTES,
        model_configs::ROUTES,
        server_config::ROUTES,
        people::ROUTES,
        files::ROUTES,
        templates::ROUTES,
        template_versions::ROUTES,
        workspaces::ROUTES,
        audit::ROUTES,
        authorization::ROUTES,
    ];
    areas.concat()
});
