//! The licences of a deployment. Only the enterprise build has these routes.

use jiff::Timestamp;
use schemars::JsonSchema;
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::{
    client::Client,
    error::Error,
    null::null_as_default,
    route::{delete, get, post, routes},
};

/// A licence as it is listed: what it says, and never the JWT itself.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
pub struct License {
    /// What deletes it. Another upload of the same licence has another one.
    pub id: i32,
    /// The claim `jti` where that is a UUID; otherwise made at random for every upload.
    pub uuid: Uuid,
    pub uploaded_at: Timestamp,
    /// The payload of the JWT, word for word.
    #[serde(default, deserialize_with = "null_as_default")]
    #[schemars(with = "serde_json::Map<String, Value>")]
    pub claims: Map<String, Value>,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct AddLicense<'a> {
    license: &'a str,
}

routes! {
    LIST_LICENSES = get("/api/v2/licenses").reads::<Vec<License>>();
    // Not repeatable: the second one is refused with a 500, which says nothing about the first.
    ADD_LICENSE = post("/api/v2/licenses").sends::<AddLicense<'static>>().reads::<License>();
    DELETE_LICENSE = delete("/api/v2/licenses/{id}");
}

impl Client {
    /// Reads all licences, expired ones included. An account that may not read them is told that there are none.
    pub async fn list_licenses(&self) -> Result<Vec<License>, Error> {
        self.call(&LIST_LICENSES).list().await
    }

    /// Adds a licence. The text counts byte for byte, so it has to be trimmed. A server error does not mean that it
    /// was not added: look at the list.
    pub async fn add_license(&self, license: &SecretString) -> Result<License, Error> {
        let body = AddLicense { license: license.expose_secret() };
        self.call(&ADD_LICENSE).body(&body).carries(license).read().await
    }

    /// Deletes a licence by its id.
    pub async fn delete_license(&self, id: i32) -> Result<(), Error> {
        self.call(&DELETE_LICENSE).parameter("id", &id).done().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::{Script, answer};

    #[tokio::test]
    async fn a_licence_that_the_server_quotes_is_not_repeated() {
        // In pieces, so that nothing in this file looks like one.
        let license = ["eyJhbGciOiJFZERTQSJ9", "e30", "c2ln"].join(".");
        let bodies = [
            format!(r#"{{"message":"Invalid license","detail":"{license} is bad"}}"#),
            format!(
                r#"{{"message":"no","validations":[{{"field":"license","detail":"value: {license}"}}]}}"#
            ),
            license.clone(),
        ];
        for body in bodies {
            let script = Script::new([answer(400, &body)]);
            let secret = SecretString::from(license.clone());
            let error = script.client().add_license(&secret).await.unwrap_err();
            let told = format!("{error} {error:?} {:?}", error.validations());
            assert!(!told.contains(&license) && !told.contains("eyJ"), "{told}");
        }
    }

    #[tokio::test]
    async fn an_upload_is_sent_once_whatever_the_answer() {
        let script = Script::new([answer(500, "{}"), answer(201, "{}")]);
        script.client().add_license(&SecretString::from("x")).await.unwrap_err();
        assert_eq!(script.asked().len(), 1);
    }

    #[tokio::test]
    async fn no_licences_may_be_null() {
        let script = Script::new([answer(200, "null")]);
        assert_eq!(script.client().list_licenses().await.unwrap(), []);
    }
}
