//! Files: archives that versions of templates are built from.

use schemars::JsonSchema;
use serde::Deserialize;
use uuid::Uuid;

use crate::{
    client::Client,
    error::Error,
    route::{get, post, routes},
};

/// The content type of an archive, exactly as coderd expects it.
const TAR: &str = "application/x-tar";

/// A stored file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct UploadedFile {
    /// The id of the file, whatever its name says.
    pub hash: Uuid,
}

routes! {
    // The same bytes from the same account are the same file.
    UPLOAD_FILE = post("/api/v2/files").may_be_repeated().reads::<UploadedFile>();
    DOWNLOAD_FILE = get("/api/v2/files/{fileID}");
}

impl Client {
    /// Stores a tar archive. Coder allows 12 of these calls a minute: upload no archive to find out whether it is stored.
    pub async fn upload_tar(&self, archive: Vec<u8>) -> Result<Uuid, Error> {
        let stored: UploadedFile = self.call(&UPLOAD_FILE).raw(archive, TAR).read().await?;
        Ok(stored.hash)
    }

    /// The bytes of a stored file, as they were sent. Files of others are missing, unless a template of theirs may be changed.
    pub async fn download_file(&self, file: Uuid) -> Result<Vec<u8>, Error> {
        self.call(&DOWNLOAD_FILE).parameter("fileID", &file).bytes().await
    }
}
