//! Schemas that a derive cannot say: bounds of what is inside lists and maps.

use schemars::{Schema, SchemaGenerator, json_schema};

use crate::{interval::PATTERN as DURATION, reference::SecretKeyRef, rules::NAME};

/// Claim values of the identity provider, each with names of Coder objects. The whole map has one owner: what a manifest
/// gives is all of it, so an entry that somebody else applied must not stay beside it.
pub(crate) fn mapping(_: &mut SchemaGenerator) -> Schema {
    let name = json_schema!({"type": "string", "minLength": 1, "maxLength": 255,
        "pattern": NAME});
    let names = json_schema!({"type": "array", "x-kubernetes-list-type": "atomic", "items": name});
    json_schema!({"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": names})
}

/// User names or e-mail addresses, also with one owner.
pub(crate) fn users(_: &mut SchemaGenerator) -> Schema {
    let user = json_schema!({"type": "string", "minLength": 1, "maxLength": 320});
    json_schema!({"type": "array", "x-kubernetes-list-type": "atomic", "items": user})
}

/// Roles in the whole deployment, with one owner. `member` is implied, and Coder would store it.
pub(crate) fn site_roles(_: &mut SchemaGenerator) -> Schema {
    let role = json_schema!({"type": "string", "minLength": 1, "maxLength": 64, "pattern": NAME,
        "x-kubernetes-validations": [{"rule": "self != 'member'", "message": "must not be listed: every user has it"}]});
    json_schema!({"type": "array", "x-kubernetes-list-type": "atomic", "maxItems": 16, "items": role})
}

/// Organizations of a user, with one owner. Coder creates users only in an organization.
pub(crate) fn organizations(_: &mut SchemaGenerator) -> Schema {
    let organization = json_schema!({"type": "string", "minLength": 1, "maxLength": 32, "pattern": NAME});
    json_schema!({"type": "array", "x-kubernetes-list-type": "atomic", "minItems": 1, "maxItems": 256,
        "items": organization})
}

/// Tags of a provisioner key: all of them, so also with one owner.
pub(crate) fn tags(_: &mut SchemaGenerator) -> Schema {
    let value = json_schema!({"type": "string", "maxLength": 1024});
    json_schema!({"type": "object", "x-kubernetes-map-type": "atomic", "maxProperties": 64,
        "additionalProperties": value})
}

/// Permissions of a role: all of them, so also with one owner. Coder refuses `*` in custom roles.
pub(crate) fn permissions(_: &mut SchemaGenerator) -> Schema {
    let word = json_schema!({"type": "string", "minLength": 1, "maxLength": 64, "pattern": "^[a-z0-9]+(_[a-z0-9]+)*$"});
    let actions = json_schema!({"type": "array", "x-kubernetes-list-type": "atomic", "minItems": 1, "maxItems": 32,
        "description": "The actions, as `read` and `view_insights`.", "items": word});
    let mut resource = word;
    resource.insert("description".to_owned(), "The type of resource, as `template`.".into());
    let permission = json_schema!({"type": "object", "required": ["resource", "actions"],
        "properties": {"resource": resource, "actions": actions}});
    json_schema!({"type": "array", "x-kubernetes-list-type": "atomic", "maxItems": 128, "items": permission})
}

/// References to keys of Secrets: all of them, so also with one owner.
pub(crate) fn secret_keys(generator: &mut SchemaGenerator) -> Schema {
    let reference = generator.subschema_for::<SecretKeyRef>();
    json_schema!({"type": "array", "x-kubernetes-list-type": "atomic", "maxItems": 8, "items": reference})
}

/// An object of somebody else's form, with one owner.
pub(crate) fn free_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-map-type": "atomic", "x-kubernetes-preserve-unknown-fields": true})
}

/// Files by their paths: all of them, so with one owner.
pub(crate) fn files(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-map-type": "atomic", "minProperties": 1, "maxProperties": 1000,
        "additionalProperties": {"type": "string"}})
}

/// Roles on a template by the names of those who have them.
pub(crate) fn template_roles(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-map-type": "atomic", "maxProperties": 1000,
        "additionalProperties": {"type": "string", "enum": ["use", "admin"]}})
}

/// Values of a workspace's parameters: all of them, so with one owner.
pub(crate) fn parameters(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-map-type": "atomic", "maxProperties": 256,
        "additionalProperties": {"type": "string"}})
}

/// A duration that may be zero.
pub(crate) fn duration(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "minLength": 1, "maxLength": 18, "pattern": DURATION})
}
