//! How the dashboard presents itself. Without the licensed feature writes are stored and reads show the defaults.

use serde_json::{Map, Value, json};

use crate::{
    answer::{Answer, Handled},
    call::Call,
    rights::Right,
    state::Appearance,
};

pub(crate) fn appearance(call: &mut Call<'_>) -> Handled {
    let stored = match call.licensed("appearance") {
        Ok(()) => call.state.appearance.clone(),
        Err(_) => Appearance::default(),
    };
    let Appearance { application_name, logo_url, announcement_banners } = stored;
    let version = &call.settings.version;
    let docs = format!("https://coder.com/docs/@{version}");
    let repository = "https://github.com/coder/coder";
    let bug =
        format!("{repository}/issues/new?labels=needs+triage&body=Version: [`{version}`]({repository})");
    let link = |name: &str, target: &str, icon: &str| json!({"name": name, "target": target, "icon": icon});
    Ok(Answer::ok(json!({
        "application_name": application_name,
        "logo_url": logo_url,
        "docs_url": docs,
        "service_banner": announcement_banners.first().cloned().unwrap_or_else(|| json!({"enabled": false})),
        "announcement_banners": announcement_banners,
        "support_links": [
            link("Documentation", &docs, "docs"),
            link("Report a bug", &bug, "bug"),
            link("Join the Coder Discord", "https://discord.gg/coder", "chat"),
            link("Star the Repo", repository, "star"),
        ],
    })))
}

pub(crate) fn put_appearance(call: &mut Call<'_>) -> Handled {
    if !call.may(Right::ManageAppearance) {
        return Err(Answer::message(403, "Insufficient permissions to update appearance"));
    }
    let fields = call.fields("UpdateAppearanceConfig")?;
    let banners = fields.objects("announcement_banners", "codersdk.BannerConfig")?;
    for banner in &banners {
        let color = banner.get("background_color").and_then(Value::as_str).unwrap_or_default();
        if let Some(why) = color_mistake(color) {
            return Err(Answer::message(400, format!("Invalid color format: \"{color}\"")).detail(why));
        }
    }
    let appearance = Appearance {
        application_name: fields.plain("application_name")?,
        logo_url: fields.plain("logo_url")?,
        announcement_banners: banners.iter().map(shown_banner).collect(),
    };
    let after = json!({
        "application_name": appearance.application_name,
        "logo_url": appearance.logo_url,
        "service_banner": shown_banner(&fields.object("service_banner")),
        "announcement_banners": appearance.announcement_banners,
    });
    let before = json!(std::mem::replace(&mut call.state.appearance, appearance));
    call.changed("appearance", ("", ""), before, after.clone());
    Ok(Answer::ok(after))
}

/// A banner without what is empty.
fn shown_banner(banner: &Map<String, Value>) -> Value {
    let enabled = banner.get("enabled").and_then(Value::as_bool).unwrap_or_default();
    let mut shown = json!({"enabled": enabled});
    for key in ["message", "background_color"] {
        if let Some(text) = banner.get(key).and_then(Value::as_str).filter(|it| !it.is_empty()) {
            shown[key] = json!(text);
        }
    }
    shown
}

/// Returns why a text is not `#` and six hexadecimal digits.
fn color_mistake(color: &str) -> Option<String> {
    if color.len() != 7 {
        return Some("expected # prefix and 6 characters".to_owned());
    }
    let Some(digits) = color.strip_prefix('#') else { return Some("no # prefix".to_owned()) };
    let other = digits.chars().find(|it| !it.is_ascii_hexdigit())?;
    Some(format!("encoding/hex: invalid byte: U+{:04X} '{other}'", u32::from(other)))
}
