//! The cases of the suite, in the order in which they run on one deployment that begins without a user.

mod accounts;
mod ai;
mod appearance;
mod audit;
mod edges;
mod first_user;
mod groups;
mod licenses;
mod members;
mod organizations;
mod people;
mod provisioner_keys;
mod requests;
mod roles;
mod site_roles;
mod sync;
mod templates;
mod texts;
mod tokens;
mod unlicensed;
mod walk;

use client::transport::BoxFuture;

use crate::side::Side;

/// Calls that are the same on both sides.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) run: for<'a> fn(&'a mut Side) -> BoxFuture<'a, ()>,
}

macro_rules! cases {
    ($($area:ident :: $name:ident;)*) => {
        &[$(Case { name: concat!(stringify!($area), " ", stringify!($name)), run: |side| Box::pin($area::$name(side)) }),*]
    };
}

/// All of them. The first ones need a deployment without users and without a licence; the last licence case leaves a
/// premium licence, and `lapsed` takes it away again.
pub(crate) const CASES: &[Case] = cases! {
    first_user::deployment_without_users;
    first_user::first_user;
    first_user::login;
    requests::signed_out;
    requests::bad_requests;
    unlicensed::gates;
    unlicensed::documents;
    ai::server_config;
    ai::providers;
    ai::keys;
    ai::bedrock;
    ai::models;
    licenses::refused_licenses;
    licenses::terms;
    licenses::premium;
    appearance::appearance;
    organizations::names;
    organizations::changes;
    organizations::deletion;
    organizations::sharing;
    groups::names;
    groups::changes;
    groups::everyone;
    members::members;
    members::roles;
    roles::names;
    roles::permissions;
    provisioner_keys::keys;
    provisioner_keys::daemons;
    sync::organization_sync;
    sync::group_sync;
    sync::role_sync;
    templates::versions;
    templates::templates;
    templates::access;
    templates::workspaces;
    accounts::accounts;
    accounts::deletion;
    accounts::service_accounts;
    audit::writes;
    people::list;
    people::profile;
    people::roles;
    people::suspension;
    people::membership;
    tokens::tokens;
    tokens::limits;
    tokens::expired;
    tokens::logout;
    site_roles::site_roles;
    site_roles::insider;
    edges::bodies;
    edges::paths;
    edges::repetitions;
    edges::statuses;
    texts::passwords;
    texts::addresses;
    texts::names;
    texts::filters;
    texts::strangers;
    walk::first_walk;
    walk::second_walk;
    unlicensed::lapsed;
};
