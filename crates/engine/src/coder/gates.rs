//! Which deployment answers, and what it is licensed for.

use std::sync::Arc;

use api::Reason;
use client::{
    Error,
    deployment::{BuildInfo, Entitlements},
};
use serde_json::Value;
use uuid::Uuid;

use super::Coder;
use crate::pipeline::{
    field_gate::{FieldGate, Unsupported},
    gate::{self, Gate},
    outcome::{Blocked, Trouble},
};

impl Coder {
    /// Whether a kind can be kept on this deployment now. A kind without a gate needs no licence.
    pub async fn pass(&self, gate: Option<Gate>) -> Result<(), Trouble> {
        match self.deployment().await {
            Ok(known) => {
                self.check_expected(&known.0)?;
                Ok(gate::check(gate, &known.0, &known.1)?)
            }
            Err(error) if error.route_missing() => {
                if let Some(gate) = gate {
                    return Err(gate::without_licences(gate).into());
                }
                let build = self.client.build_info().await?;
                self.check_expected(&build)?;
                Ok(gate::check_version(&build)?)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The fields of a manifest that this deployment does not support.
    pub(crate) async fn unsupported(
        &self,
        gates: &[FieldGate],
        manifest: &Value,
    ) -> Result<Unsupported, Error> {
        if gates.is_empty() {
            return Ok(Unsupported::default());
        }
        match self.deployment().await {
            Ok(known) => Ok(Unsupported::of(gates, manifest, &known.0, Some(&known.1))),
            // A build without licences.
            Err(error) if error.route_missing() => {
                Ok(Unsupported::of(gates, manifest, &self.client.build_info().await?, None))
            }
            Err(error) => Err(error),
        }
    }

    fn check_expected(&self, build: &BuildInfo) -> Result<(), Blocked> {
        let found = build.deployment_id;
        if self.expected.is_none_or(|it| it == found) {
            return Ok(());
        }
        let message = format!("another deployment answers: {found}");
        Err(Blocked { reason: Reason::DeploymentChanged, message })
    }

    /// What tells this deployment from others.
    pub async fn deployment_id(&self) -> Result<Uuid, Error> {
        Ok(self.deployment().await?.0.deployment_id)
    }

    /// Whether the deployment that answers is still the expected one.
    pub async fn same_deployment(&self) -> Result<(), Trouble> {
        match self.deployment().await {
            Ok(known) => Ok(self.check_expected(&known.0)?),
            // A build without licences; whatever is asked of it says so.
            Err(error) if error.route_missing() => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// The id of the deployment, checked against the expected one. A controller has checked it before, so no request is sent.
    pub(crate) async fn identified(&self) -> Result<Uuid, Trouble> {
        if let Some(expected) = self.expected.filter(|_| self.cluster().is_some_and(|it| it.writes_status)) {
            return Ok(expected);
        }
        self.same_deployment().await?;
        Ok(self.client.build_info().await?.deployment_id)
    }

    /// What answers, and what it is licensed for.
    pub async fn licensed(&self) -> Result<Arc<(BuildInfo, Entitlements)>, Error> {
        self.deployment().await
    }

    async fn deployment(&self) -> Result<Arc<(BuildInfo, Entitlements)>, Error> {
        // One after the other: after an outage the first is the only one that is let through, and must come to its end.
        let read = async || Ok((self.client.build_info().await?, self.client.entitlements().await?));
        Ok(self.used(self.reads.deployment.get(self.need, read).await?))
    }
}
