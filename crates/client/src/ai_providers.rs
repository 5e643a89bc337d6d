//! AI providers: where the AI Gateway and Coder Agents send requests, and the keys that they use there. No licence is needed.
//!
//! Keys and AWS credentials are write-only: a key is shown as a mask, AWS credentials not at all.

use schemars::JsonSchema;
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::{
    client::Client,
    error::Error,
    null::null_as_default,
    route::{delete, get, patch, post, routes},
};

/// The only kind of settings that coderd knows, and its version.
const BEDROCK: (&str, u8) = ("bedrock", 1);
/// What stands between the two ends of a masked key.
const HIDDEN: &str = "...";

/// A provider, also a disabled one.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct AiProvider {
    pub id: Uuid,
    /// `openai`, `anthropic`, `bedrock` and others. Fixed for the provider's life, like its name.
    #[serde(rename = "type")]
    pub provider_type: String,
    pub name: String,
    /// The name where no other was given.
    #[serde(default)]
    pub display_name: String,
    /// Since Coder 2.36.
    #[serde(default)]
    pub icon: String,
    #[serde(default)]
    pub enabled: bool,
    /// As it was sent; empty for a provider that coderd made from its environment.
    #[serde(default)]
    pub base_url: String,
    /// Oldest first. The oldest is used.
    #[serde(default, deserialize_with = "null_as_default")]
    pub api_keys: Vec<AiProviderKey>,
    /// `None` for a provider that is not AWS Bedrock.
    #[serde(default)]
    #[schemars(with = "Value")]
    pub settings: Option<BedrockSettings>,
}

/// A key without its value.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct AiProviderKey {
    pub id: Uuid,
    /// The ends of the value; see [`mask`].
    #[serde(default)]
    pub masked: String,
}

/// How AWS Bedrock is used, without the credentials.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct BedrockSettings {
    pub region: String,
    pub model: String,
    pub small_fast_model: String,
    /// Since Coder 2.35.
    pub role_arn: String,
    /// Made by coderd with the first role, and never changed. Since Coder 2.36.
    pub external_id: String,
    /// `invoke-model` where it is empty, or `mantle`. Since Coder 2.36.
    pub protocol: String,
}

/// AWS credentials that do not change by themselves.
#[derive(Debug, Clone)]
pub struct StaticCredentials {
    pub access_key: SecretString,
    pub secret_key: SecretString,
}

/// A new provider.
#[derive(Debug, Clone)]
pub struct CreateAiProvider {
    pub provider_type: String,
    pub name: String,
    pub display_name: Option<String>,
    pub icon: Option<String>,
    pub enabled: bool,
    pub base_url: String,
    /// One at most: several keys of one request are stored in random order.
    pub api_key: Option<SecretString>,
    pub bedrock: Option<(BedrockSettings, Option<StaticCredentials>)>,
}

/// A change; what is absent stays.
#[derive(Debug, Clone, Default)]
pub struct UpdateAiProvider {
    pub display_name: Option<String>,
    pub icon: Option<String>,
    pub enabled: Option<bool>,
    pub base_url: Option<String>,
    /// All keys after the change. The others are deleted.
    pub api_keys: Option<Vec<KeyChange>>,
    /// All settings but the credentials, which stay where none are given.
    pub bedrock: Option<(BedrockSettings, Option<StaticCredentials>)>,
}

/// A key after a change.
#[derive(Debug, Clone)]
pub enum KeyChange {
    Keep(Uuid),
    Add(SecretString),
}

/// A new provider, as it is sent.
#[derive(Serialize, JsonSchema)]
pub(crate) struct CreateBody<'a> {
    #[serde(rename = "type")]
    provider_type: &'a str,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    display_name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    icon: Option<&'a str>,
    enabled: bool,
    base_url: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    api_keys: Option<[&'a str; 1]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Value")]
    settings: Option<SettingsBody<'a>>,
}

/// A change, as it is sent.
#[derive(Serialize, JsonSchema)]
pub(crate) struct UpdateBody<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    display_name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    icon: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    enabled: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    base_url: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    api_keys: Option<Vec<KeyBody<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Value")]
    settings: Option<SettingsBody<'a>>,
}

#[derive(Serialize, JsonSchema)]
struct KeyBody<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<Uuid>,
    #[serde(skip_serializing_if = "Option::is_none")]
    api_key: Option<&'a str>,
}

#[derive(Serialize)]
struct SettingsBody<'a> {
    #[serde(rename = "_type")]
    settings_type: &'a str,
    #[serde(rename = "_version")]
    version: u8,
    #[serde(skip_serializing_if = "str::is_empty")]
    region: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    model: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    small_fast_model: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    role_arn: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    protocol: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    access_key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    access_key_secret: Option<&'a str>,
}

routes! {
    LIST_AI_PROVIDERS = get("/api/v2/ai/providers").reads::<Vec<AiProvider>>();
    AI_PROVIDER = get("/api/v2/ai/providers/{idOrName}").reads::<AiProvider>();
    CREATE_AI_PROVIDER = post("/api/v2/ai/providers").sends::<CreateBody<'static>>().reads::<AiProvider>();
    // Not repeatable: a key that is added twice is there twice.
    UPDATE_AI_PROVIDER = patch("/api/v2/ai/providers/{idOrName}").sends::<UpdateBody<'static>>().reads::<AiProvider>();
    DELETE_AI_PROVIDER = delete("/api/v2/ai/providers/{idOrName}");
}

impl Client {
    /// Reads every provider, disabled ones included.
    pub async fn list_ai_providers(&self) -> Result<Vec<AiProvider>, Error> {
        self.call(&LIST_AI_PROVIDERS).list().await
    }

    pub async fn ai_provider(&self, provider: Uuid) -> Result<AiProvider, Error> {
        self.call(&AI_PROVIDER).parameter("idOrName", &provider).read().await
    }

    pub async fn create_ai_provider(&self, wanted: &CreateAiProvider) -> Result<AiProvider, Error> {
        let body = CreateBody {
            provider_type: &wanted.provider_type,
            name: &wanted.name,
            display_name: wanted.display_name.as_deref(),
            icon: wanted.icon.as_deref(),
            enabled: wanted.enabled,
            base_url: &wanted.base_url,
            api_keys: wanted.api_key.as_ref().map(|it| [it.expose_secret()]),
            settings: wanted.bedrock.as_ref().map(settings),
        };
        let mut call = self.call(&CREATE_AI_PROVIDER).body(&body);
        for secret in wanted.api_key.iter().chain(credentials(wanted.bedrock.as_ref())) {
            call = call.carries(secret);
        }
        call.read().await
    }

    pub async fn update_ai_provider(
        &self,
        provider: Uuid,
        change: &UpdateAiProvider,
    ) -> Result<AiProvider, Error> {
        let body = UpdateBody {
            display_name: change.display_name.as_deref(),
            icon: change.icon.as_deref(),
            enabled: change.enabled,
            base_url: change.base_url.as_deref(),
            api_keys: change.api_keys.as_ref().map(|it| it.iter().map(key).collect()),
            settings: change.bedrock.as_ref().map(settings),
        };
        let added = change.api_keys.iter().flatten().filter_map(|it| match it {
            KeyChange::Add(secret) => Some(secret),
            KeyChange::Keep(_) => None,
        });
        let mut call = self.call(&UPDATE_AI_PROVIDER).parameter("idOrName", &provider).body(&body);
        for secret in added.chain(credentials(change.bedrock.as_ref())) {
            call = call.carries(secret);
        }
        call.read().await
    }

    pub async fn delete_ai_provider(&self, provider: Uuid) -> Result<(), Error> {
        self.call(&DELETE_AI_PROVIDER).parameter("idOrName", &provider).done().await
    }
}

fn key(change: &KeyChange) -> KeyBody<'_> {
    match change {
        KeyChange::Keep(id) => KeyBody { id: Some(*id), api_key: None },
        KeyChange::Add(secret) => KeyBody { id: None, api_key: Some(secret.expose_secret()) },
    }
}

/// The external id is coderd's own and stays.
fn settings((settings, credentials): &(BedrockSettings, Option<StaticCredentials>)) -> SettingsBody<'_> {
    let (settings_type, version) = BEDROCK;
    SettingsBody {
        settings_type,
        version,
        region: &settings.region,
        model: &settings.model,
        small_fast_model: &settings.small_fast_model,
        role_arn: &settings.role_arn,
        protocol: &settings.protocol,
        access_key: credentials.as_ref().map(|it| it.access_key.expose_secret()),
        access_key_secret: credentials.as_ref().map(|it| it.secret_key.expose_secret()),
    }
}

fn credentials(
    bedrock: Option<&(BedrockSettings, Option<StaticCredentials>)>,
) -> impl Iterator<Item = &SecretString> {
    let credentials = bedrock.and_then(|(_, credentials)| credentials.as_ref());
    credentials.into_iter().flat_map(|it| [&it.access_key, &it.secret_key])
}

/// The mask that coderd shows of a key: more of a long key than of a short one.
pub fn mask(key: &SecretString) -> String {
    let letters: Vec<char> = key.expose_secret().chars().collect();
    let shown = match letters.len() {
        20.. => 4,
        10.. => 2,
        5.. => 1,
        _ => return HIDDEN.to_owned(),
    };
    let (head, tail) = (&letters[..shown], &letters[letters.len() - shown..]);
    head.iter().chain(HIDDEN.chars().collect::<Vec<_>>().iter()).chain(tail).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mask_shows_more_of_a_long_key() {
        let of = |key: &str| mask(&SecretString::from(key));
        assert_eq!(of("sk-ant-0123456789abcdef"), "sk-a...cdef");
        assert_eq!(of("0123456789abcdefghij"), "0123...ghij");
        assert_eq!(of("0123456789abcdefghi"), "01...hi");
        assert_eq!(of("0123456789"), "01...89");
        assert_eq!(of("012345678"), "0...8");
        assert_eq!(of("01234"), "0...4");
        assert_eq!(of("0123"), "...");
    }

    #[test]
    fn values_of_keys_are_not_printed() {
        let secret = || SecretString::from("hunter2");
        let credentials = StaticCredentials { access_key: secret(), secret_key: secret() };
        let change = UpdateAiProvider {
            api_keys: Some(vec![KeyChange::Add(secret())]),
            bedrock: Some((BedrockSettings::default(), Some(credentials))),
            ..UpdateAiProvider::default()
        };
        assert!(!format!("{change:?}").contains("hunter2"));
    }
}
