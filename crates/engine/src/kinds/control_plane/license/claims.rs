//! What a licence says: the payload of its JWT. The signature is coderd's business.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jiff::Timestamp;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

/// The payload of a licence.
#[derive(Debug, Clone, PartialEq)]
pub struct Claims(Map<String, Value>);

/// A text that is no licence. The words hold nothing of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotALicense(pub &'static str);

impl Claims {
    /// Reads the payload of a JWT, without its signature.
    pub fn decode(jwt: &str) -> Result<Self, NotALicense> {
        let mut parts = jwt.split('.');
        let (Some(_), Some(payload), Some(_), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(NotALicense("a licence has three parts with dots between them"));
        };
        let bytes = URL_SAFE_NO_PAD
            .decode(payload)
            .map_err(|_| NotALicense("the second of its three parts is not base64url"))?;
        let claims = serde_json::from_slice(&bytes)
            .map_err(|_| NotALicense("the second of its three parts is not a JSON object"))?;
        Ok(Self(claims))
    }

    #[cfg(test)]
    pub(super) fn map(&self) -> &Map<String, Value> {
        &self.0
    }

    /// What coderd shows of a licence that it has.
    pub fn of(live: &client::licenses::License) -> Self {
        Self(live.claims.clone())
    }

    /// The same for the same claims, whoever signed them and whatever order they were written in. A licence that was
    /// issued again with the same `jti` and other dates is another one.
    pub fn identity(&self) -> String {
        // Maps of `serde_json` are sorted by key.
        let text = Value::Object(self.0.clone()).to_string();
        base16ct::lower::encode_string(&Sha256::digest(text)[..16])
    }

    /// Its own name for itself.
    pub fn id(&self) -> Option<&str> {
        self.0.get("jti").and_then(Value::as_str)
    }

    /// From when it counts.
    pub fn not_before(&self) -> Option<Timestamp> {
        self.date("nbf")
    }

    /// The end of its term; from then on there is a grace period.
    pub fn expires(&self) -> Option<Timestamp> {
        self.date("license_expires").or_else(|| self.grace_until())
    }

    /// The end of the grace period, from when on it counts for nothing.
    pub fn grace_until(&self) -> Option<Timestamp> {
        self.date("exp")
    }

    pub fn is_trial(&self) -> bool {
        self.0.get("trial").and_then(Value::as_bool).unwrap_or_default()
    }

    /// Whether it counts only where telemetry is on. Where it is off, nothing counts while such a one is installed.
    pub fn requires_telemetry(&self) -> bool {
        self.0.get("require_telemetry").and_then(Value::as_bool).unwrap_or_default()
    }

    /// `premium` or `enterprise`; empty where it names single features only.
    pub fn feature_set(&self) -> &str {
        let is_legacy = self.0.get("all_features").and_then(Value::as_bool).unwrap_or_default();
        let named = self.0.get("feature_set").and_then(Value::as_str).filter(|it| !it.is_empty());
        named.unwrap_or(if is_legacy { "enterprise" } else { "" })
    }

    pub fn addons(&self) -> Vec<&str> {
        self.words("addons")
    }

    /// Whether it may be used on that deployment; one that names none may be used on all.
    pub fn is_for(&self, deployment: Uuid) -> bool {
        let named = self.words("deployment_ids");
        named.is_empty() || named.iter().any(|it| it.parse() == Ok(deployment))
    }

    fn words(&self, claim: &str) -> Vec<&str> {
        let list = self.0.get(claim).and_then(Value::as_array);
        list.into_iter().flatten().filter_map(Value::as_str).collect()
    }

    /// Dates are seconds, and a JWT may write them with a fraction.
    fn date(&self, claim: &str) -> Option<Timestamp> {
        let value = self.0.get(claim)?;
        #[expect(clippy::cast_possible_truncation, reason = "a date that does not fit is refused below")]
        let seconds = value.as_i64().or_else(|| value.as_f64().map(|it| it as i64))?;
        Timestamp::from_second(seconds).ok()
    }
}

/// Whether coderd complains of a licence that counts only with telemetry, where telemetry is off.
pub(super) fn is_about_telemetry(words: &str) -> bool {
    words.contains("requires telemetry")
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;

    /// A text in the form of a JWT, with a signature that nobody would take.
    pub(crate) fn jwt(claims: &Value) -> String {
        [r#"{"alg":"EdDSA"}"#, &claims.to_string(), "signature"]
            .map(|it| URL_SAFE_NO_PAD.encode(it))
            .join(".")
    }

    fn claims(claims: &Value) -> Claims {
        Claims::decode(&jwt(claims)).unwrap()
    }

    #[test]
    fn the_payload_is_read_and_the_signature_is_not_looked_at() {
        let read = claims(&json!({"jti": "x", "nbf": 1, "license_expires": 2, "exp": 3.5,
            "feature_set": "premium", "addons": ["ai_governance"], "trial": true}));
        let seconds = |it: Option<Timestamp>| it.map(Timestamp::as_second);
        assert_eq!(seconds(read.not_before()), Some(1));
        assert_eq!((seconds(read.expires()), seconds(read.grace_until())), (Some(2), Some(3)));
        assert_eq!((read.id(), read.feature_set(), read.is_trial()), (Some("x"), "premium", true));
        assert_eq!(read.addons(), ["ai_governance"]);
        assert_eq!(claims(&json!({"all_features": true, "feature_set": ""})).feature_set(), "enterprise");
    }

    #[test]
    fn what_is_no_jwt_is_refused_without_being_repeated() {
        for text in ["", "word", "a.b", "a.b.c.d", "a.!!!.c", "a.bm90IGpzb24.c", "a.WzFd.c"] {
            let NotALicense(words) = Claims::decode(text).unwrap_err();
            assert!(text.is_empty() || !words.contains(text), "{words}");
        }
    }

    #[test]
    fn the_same_claims_are_the_same_licence_and_others_with_the_same_id_are_not() {
        let first = claims(&json!({"jti": "x", "exp": 3, "features": {"a": 1, "b": 2}}));
        let written_otherwise = r#"{"features":{"b":2,"a":1},"exp":3,"jti":"x"}"#;
        let again = format!("h.{}.s", URL_SAFE_NO_PAD.encode(written_otherwise));
        assert_eq!(first.identity(), Claims::decode(&again).unwrap().identity());
        let extended = claims(&json!({"jti": "x", "exp": 4, "features": {"a": 1, "b": 2}}));
        assert_ne!(first.identity(), extended.identity());
    }

    #[test]
    fn a_licence_without_deployments_is_for_all_of_them() {
        let here = Uuid::from_u128(7);
        assert!(claims(&json!({})).is_for(here));
        assert!(claims(&json!({"deployment_ids": ["x", here.to_string()]})).is_for(here));
        assert!(!claims(&json!({"deployment_ids": ["x"]})).is_for(here));
    }
}
