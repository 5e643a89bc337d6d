//! CEL rules that several kinds share, with messages for the person who wrote the manifest.
//!
//! A rule is here when a plain bound or pattern would be refused with words that explain nothing.

use kube::core::{Message, Rule};

/// What Coder takes for most names.
pub(crate) const NAME: &str = "^[a-zA-Z0-9]+(-[a-zA-Z0-9]+)*$";

/// The control plane of an object.
pub(crate) fn immutable_control_plane() -> Rule {
    Rule::new("self == oldSelf")
        .message("cannot be changed: what belongs to another control plane is another object, so create one")
}

/// The organization of an object, for the spec as a whole: a rule of the field alone would not see it come or go.
pub(crate) fn immutable_organization() -> Rule {
    let organization = |of: &str| format!("(has({of}.organization) ? {of}.organization : 'default')");
    Rule::new(format!("{} == {}", organization("self"), organization("oldSelf")))
        .message("cannot be changed: what belongs to another organization is another object, so create one")
        .field_path(".organization")
}

pub(crate) fn interval() -> Rule {
    Rule::new("duration(self) >= duration('10s')").message("must be at least 10s")
}

/// Coder's rule for most names.
pub(crate) fn name() -> Rule {
    Rule::new(format!("self.matches('{NAME}')"))
        .message("must be letters and digits with single hyphens between them, as in `team-alpha`")
}

/// Names that Coder's dashboard needs for itself.
pub(crate) fn not_reserved() -> Rule {
    Rule::new("!(self in ['new', 'create'])").message("must not be `new` or `create`, which Coder reserves")
}

/// The object's own name, where it stands in for `spec.name`.
pub(crate) fn metadata_name(longest: usize) -> Rule {
    let fits = format!(
        "self.metadata.name.size() <= {longest} && self.metadata.name.matches('{NAME}') && \
         !(self.metadata.name in ['new', 'create'])"
    );
    Rule::new(format!("has(self.spec.name) || ({fits})")).message(Message::Message(format!(
        "metadata.name cannot be a name in Coder (letters and digits with single hyphens between them, at most \
         {longest} characters, not `new` or `create`): set spec.name"
    )))
}

/// A name for people to read. The bound is in bytes, and a schema counts characters.
pub(crate) fn display_name() -> Rule {
    Rule::new("size(bytes(self)) <= 64 && self.matches('^(\\\\S(.*\\\\S)?)?$')")
        .message("must be at most 64 bytes in one line, without blanks at its ends")
}

/// Sources of environment variables.
pub(crate) fn one_source_each() -> Rule {
    Rule::new("self.all(it, !(has(it.configMapRef) && has(it.secretRef)))")
        .message("must have configMapRef or secretRef in each entry: make two entries of one that has both")
}

/// The name of an object that we make. An empty one counts as absent.
pub(crate) fn object_name() -> Rule {
    Rule::new("self.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$')")
        .message("must be a name in the cluster: small letters, digits, hyphens and dots, as in `alpha-provisioner-key`")
}
