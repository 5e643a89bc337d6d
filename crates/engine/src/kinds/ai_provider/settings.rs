//! The declared settings of AWS Bedrock, compared with those that Coder has. Pure.

use api::{AIProviderBedrock, BedrockProtocol};
use client::ai_providers::{BedrockSettings, StaticCredentials};
use secrecy::SecretString;
use serde_json::Value;

use super::{Observed, keys::shown};
use crate::{
    pipeline::{diff::Diff, plan::Change},
    secrets::{SecretPlace, SecretValues},
};

/// The field of the manifest that stands for both parts of the credentials.
const CREDENTIALS: &str = "bedrock.secretKeySecretRef";

/// Everything that is sent of AWS Bedrock: the credentials stay where none are given.
type Sent = (BedrockSettings, Option<StaticCredentials>);

/// The declared settings. `Debug` shows no value of a Secret.
#[derive(Debug)]
pub(super) struct Bedrock {
    declared: AIProviderBedrock,
    /// `None` until the Secrets are read, and where none are declared.
    credentials: Option<StaticCredentials>,
}

impl Bedrock {
    pub(super) fn of(declared: &AIProviderBedrock) -> Self {
        Self { declared: declared.clone(), credentials: None }
    }

    pub(super) fn with_values(self, values: &SecretValues) -> Self {
        let text = |(name, key): (&str, &str)| {
            values.text(&SecretPlace { name: name.to_owned(), key: key.to_owned() })
        };
        let credentials = self.declared.credentials().and_then(|[access, secret]| {
            Some(StaticCredentials { access_key: text(access)?, secret_key: text(secret)? })
        });
        Self { credentials, ..self }
    }

    /// The access key id and the secret access key.
    pub(super) fn credentials(&self) -> Option<[&SecretString; 2]> {
        self.credentials.as_ref().map(|it| [&it.access_key, &it.secret_key])
    }

    /// What has to be sent. A change replaces all settings, so those that are not declared are sent as they were found.
    pub(super) fn change(
        &self,
        found: &BedrockSettings,
        diff: &mut Diff,
        observed: &Observed,
    ) -> Option<Sent> {
        let before = diff.changes.len();
        let mut wanted = found.clone();
        let declared = &self.declared;
        let fields = [
            ("bedrock.region", &declared.region, &mut wanted.region),
            ("bedrock.model", &declared.model, &mut wanted.model),
            ("bedrock.smallFastModel", &declared.small_fast_model, &mut wanted.small_fast_model),
            ("bedrock.roleARN", &declared.role_arn, &mut wanted.role_arn),
        ];
        for (field, declared, wanted) in fields {
            if let Some(picked) = diff.pick(field, declared.as_ref(), wanted) {
                *wanted = picked;
            }
        }
        let found =
            if found.protocol.is_empty() { BedrockProtocol::InvokeModel.as_str() } else { &found.protocol };
        let protocol = declared.protocol.map(|it| it.as_str().to_owned());
        if let Some(picked) = diff.pick("bedrock.protocol", protocol.as_ref(), &found.to_owned()) {
            wanted.protocol = picked;
        }
        if !observed.has_credentials {
            let known = observed.sent.credentials_fingerprint.as_ref();
            let before =
                if known.is_some() { shown(1, known) } else { "unknown: Coder does not show it".to_owned() };
            diff.changes.push(Change::new(CREDENTIALS, before, shown(1, observed.credentials.as_ref())));
        }
        (diff.changes.len() > before).then(|| (wanted, self.credentials.clone()))
    }

    /// The settings of a provider that does not exist.
    pub(super) fn declared(&self, diff: &mut Diff, observed: &Observed) -> Sent {
        let AIProviderBedrock { region, protocol, model, small_fast_model, role_arn, .. } = &self.declared;
        diff.declare("bedrock.region", region.as_ref());
        diff.declare("bedrock.protocol", protocol.as_ref());
        diff.declare("bedrock.model", model.as_ref());
        diff.declare("bedrock.smallFastModel", small_fast_model.as_ref());
        diff.declare("bedrock.roleARN", role_arn.as_ref());
        if self.credentials.is_some() {
            let after = shown(1, observed.credentials.as_ref());
            diff.changes.push(Change::new(CREDENTIALS, Value::Null, after));
        }
        let wanted = BedrockSettings {
            region: region.clone().unwrap_or_default(),
            model: model.clone().unwrap_or_default(),
            small_fast_model: small_fast_model.clone().unwrap_or_default(),
            role_arn: role_arn.clone().unwrap_or_default(),
            external_id: String::new(),
            protocol: protocol.map(|it| it.as_str().to_owned()).unwrap_or_default(),
        };
        (wanted, self.credentials.clone())
    }
}
