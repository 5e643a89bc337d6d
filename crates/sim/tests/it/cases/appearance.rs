//! The appearance of a licensed deployment.

use serde_json::{Value, json};

use crate::side::{MEMBER, OWNER, Side};

const APPEARANCE: &str = "/api/v2/appearance";

pub(super) async fn appearance(side: &mut Side) {
    side.get(OWNER, APPEARANCE).await;
    let banners = json!([
        {"enabled": true, "message": "one", "background_color": "#AbCdEf"},
        {"enabled": false, "message": "", "background_color": "#000000"},
    ]);
    let wanted = json!({"application_name": "Payments", "logo_url": "https://logo.test/a.png",
        "announcement_banners": banners, "service_banner": {"enabled": true, "message": "ignored"}});
    side.put(OWNER, APPEARANCE, wanted.clone()).await;
    side.get(MEMBER, APPEARANCE).await;
    side.put(MEMBER, APPEARANCE, wanted).await;
    for color in ["teal", "#12345", "#1234567", "#12345g", "1234567", ""] {
        let banner = json!({"enabled": false, "message": "x", "background_color": color});
        side.put(OWNER, APPEARANCE, json!({"application_name": "x", "announcement_banners": [banner]})).await;
    }
    side.get(OWNER, APPEARANCE).await;
    side.put(OWNER, APPEARANCE, json!({"announcement_banners": null})).await;
    side.get(OWNER, APPEARANCE).await;
    side.put(OWNER, APPEARANCE, Value::Null).await;
    side.put(OWNER, APPEARANCE, json!({"application_name": "Kept"})).await;
    side.get(OWNER, APPEARANCE).await;
}
