//! Licences: JWTs whose claims are read, listed without their text, and refused when uploaded twice.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::{
    answer::{Answer, Handled, forbidden},
    body::Validations,
    call::Call,
    features::{self, date},
    ids::hashed,
    rights::Right,
    settings::LicenseCheck,
    state::{License, State},
};

const VERSION: i64 = 3;
const LONGEST_TERM: SignedDuration = SignedDuration::from_hours(5 * 365 * 24);
const DAY: i64 = 24 * 3600;

/// Signs a licence for one deployment: claims of a premium licence for 60 days with these over them.
pub(crate) fn sign(state: &State, claims: &Map<String, Value>, id: Uuid, now: Timestamp) -> String {
    let second = now.as_second();
    let mut whole = json!({
        "jti": id,
        "iss": "coder-operator-sim",
        "iat": second - 60,
        "nbf": second - 60,
        "exp": second + 60 * DAY,
        "license_expires": second + 53 * DAY,
        "account_type": "salesforce",
        "account_id": "sim",
        "version": VERSION,
        "trial": false,
        "feature_set": "premium",
        "features": null,
    });
    for (name, value) in claims {
        whole[name] = value.clone();
    }
    let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let signed =
        format!("{}.{}", encode(&json!({"alg": "EdDSA", "kid": "sim", "typ": "JWT"})), encode(&whole));
    format!("{signed}.{}", signature(state, &signed))
}

fn signature(state: &State, signed: &str) -> String {
    URL_SAFE_NO_PAD.encode(hashed(&format!("{}:{signed}", state.deployment_id)))
}

pub(crate) fn list(call: &mut Call<'_>) -> Handled {
    let is_readable = call.may(Right::ManageLicenses);
    let listed = call.state.licenses.values().filter(|_| is_readable);
    Ok(Answer::ok(listed.map(shown).collect()))
}

pub(crate) fn add(call: &mut Call<'_>) -> Handled {
    if !call.may(Right::ManageLicenses) {
        return Err(forbidden());
    }
    let jwt = call.fields("AddLicenseRequest")?.plain("license")?;
    let mut validations = Validations::default();
    validations.required("license", &jwt, None);
    validations.done()?;
    let invalid = |detail: &str| Answer::message(400, "Invalid license").detail(detail);
    let claims = claims(call, &jwt).ok_or_else(|| invalid("license has multiple issues; contact support"))?;
    if let Some(mistake) = mistake(&claims, call.now) {
        return Err(invalid(mistake));
    }
    check_deployment(call.state, &claims)?;
    call.state.last_license += 1;
    if call.state.licenses.values().any(|it| it.jwt == jwt) {
        let detail = "pq: duplicate key value violates unique constraint \"licenses_jwt_key\"";
        return Err(Answer::message(500, "Unable to add license to database").detail(detail));
    }
    let own = claims.get("jti").and_then(Value::as_str).and_then(|it| it.parse().ok());
    let uuid = own.unwrap_or_else(|| call.ids().uuid());
    let license = License { id: call.state.last_license, uuid, uploaded_at: call.now, jwt, claims };
    let shown = shown(&license);
    call.changed("license", (uuid, ""), Value::Null, shown.clone());
    call.state.licenses.insert(license.id, license);
    features::recompute(call.state, call.now);
    Ok(Answer::created(shown))
}

/// The claims of a licence that is signed and not expired.
fn claims(call: &Call<'_>, jwt: &str) -> Option<Map<String, Value>> {
    let jwt = jwt.replace(['\r', '\n'], "");
    let (signed, signature) = jwt.rsplit_once('.')?;
    let (_, payload) = signed.split_once('.')?;
    let is_signed = match call.settings.license_check {
        LicenseCheck::Signature => signature == self::signature(call.state, signed),
        LicenseCheck::ClaimsOnly => true,
    };
    let payload = URL_SAFE_NO_PAD.decode(payload).ok()?;
    let claims: Map<String, Value> = serde_json::from_slice(&payload).ok()?;
    let is_expired = date(&claims, "exp").is_some_and(|it| it <= call.now);
    (is_signed && !is_expired).then_some(claims)
}

/// Returns why claims are not those of a licence.
fn mistake(claims: &Map<String, Value>, now: Timestamp) -> Option<&'static str> {
    let is_empty = |name: &str| claims.get(name).and_then(Value::as_str).is_none_or(str::is_empty);
    let longest = now.checked_add(LONGEST_TERM).unwrap_or(Timestamp::MAX);
    if claims.get("version").and_then(Value::as_i64) != Some(VERSION) {
        Some("license must be version 3")
    } else if date(claims, "iat").is_none() {
        Some("license has invalid or missing iat (issued at) claim")
    } else if date(claims, "nbf").is_none() {
        Some("license has invalid or missing nbf (not before) claim")
    } else if date(claims, "license_expires").is_none_or(|it| it > longest) {
        Some("license has invalid or missing license_expires claim")
    } else if date(claims, "exp").is_none() {
        Some("license has invalid or missing exp (expires at) claim")
    } else if is_empty("account_type") {
        Some("license must contain valid account type")
    } else if is_empty("account_id") {
        Some("license must contain valid account ID")
    } else {
        None
    }
}

fn check_deployment(state: &State, claims: &Map<String, Value>) -> Result<(), Answer> {
    let deployments = claims.get("deployment_ids").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let own = state.deployment_id.to_string();
    if deployments.is_empty() || deployments.iter().any(|it| *it == own) {
        return Ok(());
    }
    let quoted: Vec<String> = deployments.iter().map(Value::to_string).collect();
    Err(Answer::message(400, "License cannot be used on this deployment!").detail(format!(
        "The provided license is locked to the following deployments: [{}]. Your deployment identifier is \"{own}\". \
         Please contact sales.",
        quoted.join(" ")
    )))
}

pub(crate) fn delete(call: &mut Call<'_>) -> Handled {
    let id: i32 =
        call.parameter("id").parse().map_err(|_| Answer::message(404, "License ID must be an integer"))?;
    if !call.may(Right::ManageLicenses) {
        return Err(forbidden());
    }
    let license =
        call.state.licenses.remove(&id).ok_or_else(|| Answer::message(404, "Unknown license ID"))?;
    features::recompute(call.state, call.now);
    call.changed("license", (license.uuid, ""), shown(&license), Value::Null);
    Ok(Answer::empty(200))
}

fn shown(license: &License) -> Value {
    json!({
        "id": license.id,
        "uuid": license.uuid,
        "uploaded_at": license.uploaded_at,
        "claims": license.claims,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims(change: &Value) -> Map<String, Value> {
        let mut claims = json!({"version": 3, "iat": 1, "nbf": 1, "license_expires": 2, "exp": 3,
            "account_type": "salesforce", "account_id": "a"});
        for (name, value) in change.as_object().unwrap() {
            claims[name] = value.clone();
        }
        claims.as_object().unwrap().clone()
    }

    #[test]
    fn each_required_claim_has_its_own_refusal() {
        let now = Timestamp::UNIX_EPOCH;
        assert_eq!(mistake(&claims(&json!({})), now), None);
        let expected = [
            (json!({"version": 2}), "license must be version 3"),
            (json!({"iat": null}), "license has invalid or missing iat (issued at) claim"),
            (json!({"nbf": "x"}), "license has invalid or missing nbf (not before) claim"),
            (json!({"license_expires": null}), "license has invalid or missing license_expires claim"),
            (json!({"license_expires": 200_000_000}), "license has invalid or missing license_expires claim"),
            (json!({"exp": null}), "license has invalid or missing exp (expires at) claim"),
            (json!({"account_type": ""}), "license must contain valid account type"),
            (json!({"account_id": null}), "license must contain valid account ID"),
        ];
        for (change, words) in expected {
            assert_eq!(mistake(&claims(&change), now), Some(words), "{change}");
        }
    }

    #[test]
    fn date_may_have_a_fraction() {
        let claims = claims(&json!({"exp": 1_800_000_000.75}));
        assert_eq!(date(&claims, "exp").map(Timestamp::as_second), Some(1_800_000_000));
    }
}
