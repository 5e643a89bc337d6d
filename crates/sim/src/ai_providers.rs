//! AI providers. Keys are stored to be counted and masked, and are never shown.

use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::{
    answer::{Answer, Handled, forbidden, not_found},
    body::{Fields, not_json, uuid},
    call::Call,
    rights::Right,
    state::{AiProvider, AiProviderKey},
};

const TYPES: [&str; 9] =
    ["openai", "anthropic", "azure", "bedrock", "copilot", "google", "openai-compat", "openrouter", "vercel"];
/// The rule for names, as refusals quote it.
const NAME: &str = "^[a-z0-9]+(-[a-z0-9]+)*$";
/// The settings that come back, in the order in which Go writes a map.
const SHOWN: [&str; 6] = ["region", "model", "small_fast_model", "role_arn", "external_id", "protocol"];
const CREDENTIALS: [&str; 2] = ["access_key", "access_key_secret"];
const EXAMPLE_ROLE: &str = "arn:aws:iam::123456789012:role/BedrockRole";

pub(crate) fn list(call: &mut Call<'_>) -> Handled {
    if !call.may(Right::ManageDeployment) {
        return Err(forbidden());
    }
    let mut live: Vec<&AiProvider> = call.state.ai_providers.values().filter(|it| !it.deleted).collect();
    live.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(Answer::ok(live.into_iter().map(shown).collect()))
}

pub(crate) fn provider(call: &mut Call<'_>) -> Handled {
    Ok(Answer::ok(shown(found(call)?)))
}

pub(crate) fn create(call: &mut Call<'_>) -> Handled {
    let fields = call.fields("CreateAIProviderRequest")?;
    let settings = settings(&fields)?;
    let keys = fields.texts("api_keys", "string")?.unwrap_or_default();
    let (provider_type, name) = (fields.plain("type")?, fields.plain("name")?);
    let base_url = fields.plain("base_url")?;
    let mut complaints = Vec::new();
    if provider_type.is_empty() {
        complaints.push(("type".to_owned(), "type is required".to_owned()));
    } else if !TYPES.contains(&provider_type.as_str()) {
        complaints.push(("type".to_owned(), format!("unsupported provider type \"{provider_type}\"")));
    }
    complaints.extend(name_mistake(&name).map(|it| ("name".to_owned(), it)));
    complaints.extend(url_mistake(&base_url).map(|it| ("base_url".to_owned(), it)));
    complaints.extend(keys.iter().enumerate().filter_map(|(index, key)| {
        key_mistake(key, "api_keys entries").map(|it| (format!("api_keys[{index}]"), it))
    }));
    complaints.extend(created_settings_mistakes(&provider_type, settings.as_ref(), !keys.is_empty()));
    refuse(complaints)?;
    if settings.is_some() && !keys.is_empty() {
        return Err(bedrock_takes_no_keys());
    }
    if !call.may(Right::ManageDeployment) {
        return Err(forbidden());
    }
    if call.state.ai_providers.values().any(|it| !it.deleted && it.name == name) {
        let message = format!("AI provider \"{name}\" already exists.");
        let detail = "execute transaction: pq: duplicate key value violates unique constraint \"ai_providers_name_unique\"";
        return Err(Answer::message(409, message).detail(detail));
    }
    let mut provider = AiProvider {
        id: call.ids().uuid(),
        provider_type,
        name,
        display_name: fields.plain("display_name")?,
        icon: fields.plain("icon")?,
        enabled: fields.flag("enabled")?,
        base_url,
        api_keys: Vec::new(),
        settings,
        created_at: call.now,
        updated_at: call.now,
        deleted: false,
    };
    ensure_external_id(call, &mut provider);
    let added = keys.iter().map(|key| new_key(call, key)).collect();
    provider.api_keys = added;
    let after = shown(&provider);
    call.changed("ai_provider", (provider.id, &provider.name), Value::Null, after.clone());
    call.state.ai_providers.insert(provider.id, provider);
    Ok(Answer::created(after))
}

pub(crate) fn update(call: &mut Call<'_>) -> Handled {
    let fields = call.fields("UpdateAIProviderRequest")?;
    let settings = settings(&fields)?;
    let keys = key_changes(&fields)?;
    let texts = [fields.text("display_name")?, fields.text("icon")?, fields.text("base_url")?];
    let enabled = fields.has("enabled").then(|| fields.flag("enabled")).transpose()?;
    let [display_name, icon, base_url] = texts;
    if display_name.is_none()
        && icon.is_none()
        && base_url.is_none()
        && enabled.is_none()
        && keys.is_none()
        && settings.is_none()
    {
        return Err(Answer::message(400, "At least one field must be provided."));
    }
    let mut complaints = Vec::new();
    complaints.extend(base_url.as_deref().and_then(url_mistake).map(|it| ("base_url".to_owned(), it)));
    complaints.extend(keys.iter().flat_map(|it| key_change_mistakes(it)));
    complaints.extend(settings.iter().flat_map(settings_mistakes));
    refuse(complaints)?;
    let mut provider = found(call)?.clone();
    let before = shown(&provider);
    if let Some(sent) = settings {
        let stored = provider.settings.clone().unwrap_or_default();
        let claimed = sent.get("external_id").and_then(Value::as_str).unwrap_or_default();
        if !claimed.is_empty() && stored.get("external_id").and_then(Value::as_str) != Some(claimed) {
            let message = "The Bedrock external ID is server-generated and cannot be changed.";
            return Err(Answer::message(400, message));
        }
        provider.settings = Some(merged(sent, &stored));
    }
    if provider.settings.is_some() && !["anthropic", "bedrock"].contains(&provider.provider_type.as_str()) {
        let message = "Bedrock settings are only valid for type=anthropic or type=bedrock.";
        return Err(Answer::message(400, message));
    }
    ensure_external_id(call, &mut provider);
    if let Some(keys) = keys {
        if provider.settings.is_some() && !keys.is_empty() {
            return Err(bedrock_takes_no_keys());
        }
        if provider.provider_type == "copilot" && !keys.is_empty() {
            let message = "Copilot providers do not accept api_keys; they authenticate via request-time GitHub OAuth tokens.";
            return Err(Answer::message(400, message));
        }
        provider.api_keys = changed_keys(call, &provider, &keys)?;
    }
    provider.display_name = display_name.unwrap_or(provider.display_name);
    provider.icon = icon.unwrap_or(provider.icon);
    provider.base_url = base_url.unwrap_or(provider.base_url);
    provider.enabled = enabled.unwrap_or(provider.enabled);
    provider.updated_at = call.now;
    let after = shown(&provider);
    call.changed("ai_provider", (provider.id, &provider.name), before, after.clone());
    call.state.ai_providers.insert(provider.id, provider);
    Ok(Answer::ok(after))
}

pub(crate) fn delete(call: &mut Call<'_>) -> Handled {
    let provider = found(call)?.clone();
    call.changed("ai_provider", (provider.id, &provider.name), shown(&provider), Value::Null);
    call.state.ai_providers.insert(provider.id, AiProvider { deleted: true, ..provider });
    Ok(Answer::empty(204))
}

/// The provider of the path, by id or by name.
fn found<'a>(call: &'a Call<'_>) -> Result<&'a AiProvider, Answer> {
    let wanted = call.parameter("idOrName");
    let id: Option<Uuid> = wanted.parse().ok();
    if id.is_none() && !is_name(wanted) {
        let message = format!("Invalid provider id or name: must be a UUID or match {NAME}.");
        return Err(Answer::message(400, message));
    }
    if !call.may(Right::ManageDeployment) {
        return Err(forbidden());
    }
    let mut live = call.state.ai_providers.values().filter(|it| !it.deleted);
    let is_it = |it: &&AiProvider| id.map_or(it.name == wanted, |id| it.id == id);
    live.find(is_it).ok_or_else(not_found)
}

/// The settings that were sent. Only those of Bedrock are known.
fn settings(fields: &Fields) -> Result<Option<Map<String, Value>>, Answer> {
    if !fields.has("settings") {
        return Ok(None);
    }
    let sent = fields.object("settings");
    match sent.get("_type").and_then(Value::as_str).unwrap_or_default() {
        "" => return Err(not_json("settings missing _type discriminator")),
        "bedrock" => {}
        other => return Err(not_json(&format!("unknown settings type \"{other}\""))),
    }
    let version = sent.get("_version").and_then(Value::as_i64).unwrap_or_default();
    if version != 1 {
        let detail = format!("unsupported \"bedrock\" settings version {version} (expected 1)");
        return Err(not_json(&detail));
    }
    let known = |(key, value): &(String, Value)| {
        !value.is_null() && (SHOWN.contains(&key.as_str()) || CREDENTIALS.contains(&key.as_str()))
    };
    Ok(Some(sent.into_iter().filter(known).collect()))
}

fn text<'a>(settings: &'a Map<String, Value>, field: &str) -> &'a str {
    settings.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// What is wrong with settings, whatever the provider.
fn settings_mistakes(settings: &Map<String, Value>) -> Vec<(String, String)> {
    let mut complaints = Vec::new();
    let role = text(settings, "role_arn");
    if let Some(detail) = role_mistake(role) {
        complaints.push(("settings.role_arn".to_owned(), detail));
    }
    let protocol = text(settings, "protocol");
    if !["", "invoke-model", "mantle"].contains(&protocol) {
        let detail = format!(
            "unsupported bedrock protocol \"{protocol}\", must be one of \"invoke-model\" or \"mantle\""
        );
        complaints.push(("settings.protocol".to_owned(), detail));
    }
    if protocol == "mantle" && text(settings, "region").is_empty() {
        complaints
            .push(("settings.region".to_owned(), "region is required for the mantle protocol".to_owned()));
    }
    complaints
}

/// What is wrong with the settings of a new provider.
fn created_settings_mistakes(
    provider_type: &str,
    settings: Option<&Map<String, Value>>,
    has_keys: bool,
) -> Vec<(String, String)> {
    let mut complaints = Vec::new();
    let mut complain = |field: &str, detail: &str| complaints.push((field.to_owned(), detail.to_owned()));
    if settings.is_some() && !["anthropic", "bedrock"].contains(&provider_type) {
        complain("settings", "bedrock settings are only valid for type=anthropic or type=bedrock");
    }
    let decisive = ["region", "role_arn", "access_key", "access_key_secret"];
    let is_configured = |it: &Map<String, Value>| decisive.iter().any(|field| !text(it, field).is_empty());
    if provider_type == "bedrock" && !settings.is_some_and(is_configured) {
        complain("settings", "type=bedrock requires bedrock settings");
    }
    if provider_type == "bedrock" && has_keys {
        complain("api_keys", "type=bedrock does not accept api_keys");
    }
    if let Some(settings) = settings {
        let mut mistakes = settings_mistakes(settings);
        // The complaint about a region comes last.
        let region =
            mistakes.iter().position(|(field, _)| field == "settings.region").map(|it| mistakes.remove(it));
        complaints.extend(mistakes);
        if !text(settings, "external_id").is_empty() {
            let detail = "external_id is server-generated and cannot be set";
            complaints.push(("settings.external_id".to_owned(), detail.to_owned()));
        }
        complaints.extend(region);
    }
    if provider_type == "copilot" && has_keys {
        complaints.push(("api_keys".to_owned(), "type=copilot does not accept api_keys".to_owned()));
    }
    complaints
}

fn role_mistake(role: &str) -> Option<String> {
    if role.is_empty() {
        return None;
    }
    let parts: Vec<&str> = role.splitn(6, ':').collect();
    let [prefix, _, service, _, _, resource] = parts[..] else {
        return Some(format!("role_arn \"{role}\" is not a valid ARN, e.g. {EXAMPLE_ROLE}"));
    };
    if prefix != "arn" {
        return Some(format!("role_arn \"{role}\" is not a valid ARN, e.g. {EXAMPLE_ROLE}"));
    }
    if service != "iam" {
        return Some(format!(
            "role_arn must be an IAM ARN, but resolved to service \"{service}\", e.g. {EXAMPLE_ROLE}"
        ));
    }
    (!resource.starts_with("role/")).then(|| {
        format!("role_arn must reference an IAM role, but resolved to resource \"{resource}\", e.g. {EXAMPLE_ROLE}")
    })
}

/// The stored settings after a change: credentials and the external id stay where none are sent.
fn merged(mut sent: Map<String, Value>, stored: &Map<String, Value>) -> Map<String, Value> {
    for field in CREDENTIALS {
        if let Some(kept) = stored.get(field).filter(|_| !sent.contains_key(field)) {
            sent.insert(field.to_owned(), kept.clone());
        }
    }
    sent.remove("external_id");
    sent.extend(stored.get("external_id").map(|it| ("external_id".to_owned(), it.clone())));
    sent
}

fn ensure_external_id(call: &mut Call<'_>, provider: &mut AiProvider) {
    let Some(settings) = &mut provider.settings else { return };
    if !text(settings, "role_arn").is_empty() && text(settings, "external_id").is_empty() {
        settings.insert("external_id".to_owned(), json!(call.ids().letters(26)));
    }
}

fn new_key(call: &mut Call<'_>, value: &str) -> AiProviderKey {
    AiProviderKey { id: call.ids().uuid(), masked: masked(value), created_at: call.now }
}

/// A key that is kept, by its id, or a new one.
type KeyChange = (Option<String>, Option<String>);

fn key_changes(fields: &Fields) -> Result<Option<Vec<KeyChange>>, Answer> {
    if !fields.has("api_keys") {
        return Ok(None);
    }
    let text =
        |it: &Map<String, Value>, field: &str| it.get(field).and_then(Value::as_str).map(str::to_owned);
    let entries = fields.objects("api_keys", "codersdk.AIProviderKeyMutation")?;
    let changes: Vec<KeyChange> = entries.iter().map(|it| (text(it, "id"), text(it, "api_key"))).collect();
    for id in changes.iter().filter_map(|(id, _)| id.as_ref()) {
        uuid(id).map_err(|why| not_json(&why))?;
    }
    Ok(Some(changes))
}

fn key_change_mistakes(changes: &[KeyChange]) -> Vec<(String, String)> {
    let mut complaints = Vec::new();
    for (index, (id, key)) in changes.iter().enumerate() {
        if id.is_some() == key.is_some() {
            let detail = "exactly one of id or api_key must be set";
            complaints.push((format!("api_keys[{index}]"), detail.to_owned()));
        } else if let Some(detail) = key.as_deref().and_then(|it| key_mistake(it, "api_key")) {
            complaints.push((format!("api_keys[{index}].api_key"), detail));
        }
        let first = changes.iter().position(|(it, _)| it == id);
        if let Some(id) = id.as_ref().filter(|_| key.is_none() && first != Some(index)) {
            let first = first.unwrap_or_default();
            let detail = format!("id {id} already referenced at api_keys[{first}]");
            complaints.push((format!("api_keys[{index}].id"), detail));
        }
    }
    complaints
}

fn changed_keys(
    call: &mut Call<'_>,
    provider: &AiProvider,
    changes: &[KeyChange],
) -> Result<Vec<AiProviderKey>, Answer> {
    let mut kept = Vec::new();
    for id in changes.iter().filter_map(|(id, _)| id.as_ref()) {
        let message = "api_keys references an unknown id for this provider";
        let is_known = provider.api_keys.iter().any(|it| it.id.to_string() == *id);
        if !is_known {
            let detail = format!("execute transaction: {message}: {id}: {message}");
            return Err(Answer::message(400, message).detail(detail));
        }
        kept.push(id.clone());
    }
    let mut keys = provider.api_keys.clone();
    keys.retain(|it| kept.contains(&it.id.to_string()));
    let mut added: Vec<AiProviderKey> =
        changes.iter().filter_map(|(_, key)| key.as_ref()).map(|it| new_key(call, it)).collect();
    // Keys of one request have the same time, and are then in the order of their random ids.
    added.sort_by_key(|it| it.id);
    keys.extend(added);
    Ok(keys)
}

/// The ends of a key.
fn masked(key: &str) -> String {
    let letters: Vec<char> = key.chars().collect();
    let shown = match letters.len() {
        20.. => 4,
        10.. => 2,
        5.. => 1,
        _ => return "...".to_owned(),
    };
    let text = |part: &[char]| part.iter().collect::<String>();
    format!("{}...{}", text(&letters[..shown]), text(&letters[letters.len() - shown..]))
}

fn is_name(name: &str) -> bool {
    let is_word =
        |it: &str| !it.is_empty() && it.bytes().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit());
    name.split('-').all(is_word)
}

fn name_mistake(name: &str) -> Option<String> {
    if name.is_empty() {
        return Some("name is required".to_owned());
    }
    (!is_name(name))
        .then(|| format!("name must match {NAME} (lowercase alphanumeric, hyphens between words)"))
}

fn url_mistake(url: &str) -> Option<String> {
    if url.is_empty() {
        return Some("base_url is required".to_owned());
    }
    match url::Url::parse(url) {
        Ok(parsed) if !parsed.has_host() => Some(not_absolute()),
        Ok(parsed) if !["http", "https"].contains(&parsed.scheme()) => {
            Some(format!("base_url scheme must be http or https, got \"{}\"", parsed.scheme()))
        }
        Ok(_) => None,
        Err(_) => Some(not_absolute()),
    }
}

fn not_absolute() -> String {
    "base_url must be an absolute URL (e.g. https://api.example.com/)".to_owned()
}

fn key_mistake(key: &str, what: &str) -> Option<String> {
    if key.is_empty() {
        return Some(format!("{what} must not be empty"));
    }
    (key.trim() != key).then(|| format!("{what} must not contain leading or trailing whitespace"))
}

fn refuse(complaints: Vec<(String, String)>) -> Result<(), Answer> {
    if complaints.is_empty() {
        return Ok(());
    }
    let refusal = Answer::message(400, "Invalid AI provider request.");
    Err(complaints.into_iter().fold(refusal, |refusal, (field, detail)| refusal.field(&field, detail)))
}

fn bedrock_takes_no_keys() -> Answer {
    let message = "Bedrock providers do not accept api_keys; configure access credentials via settings.";
    Answer::message(400, message)
}

/// A provider without the values of its keys and credentials.
fn shown(provider: &AiProvider) -> Value {
    let keys = provider.api_keys.iter();
    let keys: Vec<Value> =
        keys.map(|it| json!({"id": it.id, "masked": it.masked, "created_at": it.created_at})).collect();
    let settings = provider.settings.as_ref().map(|settings| {
        let mut shown = json!({"_type": "bedrock", "_version": 1});
        for field in SHOWN.iter().filter(|it| !text(settings, it).is_empty()) {
            shown[field] = json!(text(settings, field));
        }
        shown
    });
    let name = &provider.name;
    let display_name = if provider.display_name.is_empty() { name } else { &provider.display_name };
    json!({
        "id": provider.id,
        "type": provider.provider_type,
        "name": name,
        "display_name": display_name,
        "icon": provider.icon,
        "enabled": provider.enabled,
        "base_url": provider.base_url,
        "api_keys": keys,
        "settings": settings,
        "created_at": provider.created_at,
        "updated_at": provider.updated_at,
    })
}
