//! A template that needs nothing but a provisioner daemon.

use anyhow::{Context as _, Result, ensure};
use reqwest::Method;
use serde_json::{Value, json};

use super::Session;

/// Part of Terraform itself, so that nothing has to be fetched.
const TEMPLATE: &str = r#"resource "terraform_data" "only" { input = "built" }"#;

impl Session {
    /// Uploads the template and starts its import, for daemons with these tags. Gives back the template's version.
    pub async fn start_import(&self, organization: &str, tags: &Value) -> Result<Value> {
        let mut archive = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_size(TEMPLATE.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, "main.tf", TEMPLATE.as_bytes()).context("pack the template")?;
        let archive = archive.into_inner().context("pack the template")?;
        let upload = self.start(Method::POST, "/api/v2/files").header("Content-Type", "application/x-tar");
        let answer = upload.body(archive).send().await.context("upload the template")?;
        let file: Value = answer.json().await.context("read the answer to the upload")?;
        let body = json!({"storage_method": "file", "file_id": file["hash"], "provisioner": "terraform",
            "tags": tags});
        let path = format!("/api/v2/organizations/{organization}/templateversions");
        let (status, version) = self.request(Method::POST, &path, Some(&body)).await?;
        ensure!(status == 201, "import the template: {status}: {version}");
        Ok(version)
    }

    /// The job of an import, once it has come to its end.
    pub async fn ended_import(&self, version: &Value) -> Result<Option<Value>> {
        let path = format!("/api/v2/templateversions/{}", version["id"].as_str().unwrap_or_default());
        let (_, version) = self.request(Method::GET, &path, None).await?;
        Ok(Some(version["job"].clone()).filter(|it| it["completed_at"].is_string()))
    }
}
