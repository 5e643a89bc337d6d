//! Plans of a control plane: what they are about, and whether they are carried out.

use api::CoderControlPlane;
use kube::ResourceExt as _;

use crate::pipeline::{
    approval::Approvals,
    held_back::{self, HeldBack},
    plan::PlanView,
};

/// What the plans of a control plane are about.
pub(super) fn target(plane: &CoderControlPlane) -> String {
    format!("control plane {}", plane.name_any())
}

/// Whether a plan of a control plane is carried out.
pub(super) fn check(plane: &CoderControlPlane, plan: &PlanView) -> Result<(), HeldBack> {
    held_back::check(&plane.spec.changes, plan, &target(plane), &Approvals::of(plane, None))
}
