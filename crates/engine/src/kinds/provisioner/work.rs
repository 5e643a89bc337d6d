//! What the steps of a provisioner are carried out with.

use std::sync::{Arc, Mutex, PoisonError};

use api::{CoderControlPlane, CoderProvisioner, Reason};
use k8s_openapi::api::apps::v1::Deployment;

use super::compared::Objects;
use crate::{
    keys::Looked,
    objects::ChildEffect,
    pipeline::{outcome::Blocked, plan::Plan},
    secrets::{Pods, Record, Wanted},
};

/// What a step is carried out with. Never print an effect: the manifest has the values of variables.
#[derive(Debug)]
pub struct Effect {
    pub(super) manifest: Arc<CoderProvisioner>,
    pub(super) what: What,
}

/// What a step is about.
#[derive(Debug)]
pub(super) enum What {
    Key {
        work: Arc<Work>,
        /// Whether a key is minted or moved, and not only kept up.
        needs_approval: bool,
        /// Whether it is done also while no key is minted.
        is_independent: bool,
    },
    Object {
        work: Arc<Work>,
    },
    /// The daemons of a Deployment have no licence.
    ScaleToZero(Box<Deployment>),
}

/// What the steps of one plan are carried out with.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) manifest: Arc<CoderProvisioner>,
    pub(super) declared: CoderControlPlane,
    pub(super) wanted: Wanted,
    pub(super) recorded: Record,
    pub(super) pods: Pods,
    /// What the key is driven from.
    pub(super) looked: Mutex<Option<Looked>>,
    /// The record that names the key to be minted: it is written into the status before anything is done.
    pub(super) begins: Option<Record>,
    /// The objects as they were compared.
    pub(super) objects: Mutex<Option<Objects>>,
}

impl Work {
    /// The plan for the objects.
    pub(super) fn planned(&self) -> Plan<ChildEffect> {
        let objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        objects.as_ref().map_or_else(Plan::empty, |it| it.compared.planned.plan.clone())
    }

    /// Whether there is a Deployment, as far as the objects were compared.
    pub(super) fn has_deployment(&self) -> bool {
        let objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        objects.as_ref().is_none_or(|it| it.compared.run.deployment.is_some())
    }

    /// An object that is another's, or that the operator may not have. One of another comes first.
    pub(super) fn refused(&self) -> Option<Blocked> {
        let objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        let refused = objects.iter().flat_map(|it| &it.compared.planned.refused);
        refused.min_by_key(|it| it.reason != Reason::NotOurs).cloned()
    }
}
