//! Archives: stored as they were sent, and returned to those who may read them.

use std::io::Read as _;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::json;

use crate::{
    answer::{Answer, Handled, not_found},
    body,
    call::Call,
    rights::Right,
    state::File,
    workspaces,
};

pub(crate) const TAR: &str = "application/x-tar";

pub(crate) fn upload(call: &mut Call<'_>) -> Handled {
    let kind = call.headers.get("content-type").and_then(|it| it.to_str().ok()).unwrap_or_default();
    if kind != TAR {
        return Err(Answer::message(400, format!("Unsupported content type header {kind:?}.")));
    }
    let hash = crate::ids::hash_of(call.body);
    let known = call.state.files.values().find(|it| it.hash == hash && it.owner == call.caller);
    if let Some(known) = known {
        return Ok(Answer::ok(json!({"hash": known.id})));
    }
    let text = String::from_utf8_lossy(call.body);
    let is_broken = text.matches('{').count() != text.matches('}').count();
    let content = STANDARD.encode(call.body);
    let start = workspaces::start_of(&text);
    let file = File { id: call.ids().uuid(), owner: call.caller, hash, is_broken, content, start };
    let id = file.id;
    call.state.files.insert(id, file);
    Ok(Answer::created(json!({"hash": id})))
}

pub(crate) fn download(call: &mut Call<'_>) -> Handled {
    let invalid = |_| Answer::message(400, "File id must be a valid UUID.");
    let id = body::uuid(call.parameter("fileID")).map_err(invalid)?;
    let file = call.state.files.get(&id).ok_or_else(not_found)?;
    // Whoever may change a template may read the files of its versions.
    if file.owner != call.caller && !call.may(Right::ManageTemplates) {
        return Err(not_found());
    }
    Ok(Answer::bytes(TAR, file.bytes()))
}

impl File {
    /// The bytes that were sent.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        STANDARD.decode(&self.content).unwrap_or_default()
    }

    /// The Terraform files of the root module, as one text.
    pub(crate) fn source(&self) -> String {
        let bytes = self.bytes();
        let mut archive = tar::Archive::new(bytes.as_slice());
        let mut source = String::new();
        for mut entry in archive.entries().into_iter().flatten().flatten() {
            let path = entry.path().map(|it| it.display().to_string()).unwrap_or_default();
            let path = path.trim_start_matches("./");
            let mut text = String::new();
            let is_terraform = path.rsplit_once('.').is_some_and(|(_, it)| it == "tf");
            if is_terraform && !path.contains('/') && entry.read_to_string(&mut text).is_ok() {
                source.push_str(&text);
                source.push('\n');
            }
        }
        source
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn source_is_that_of_the_root_module() {
        let mut archive = tar::Builder::new(Vec::new());
        for (path, text) in [("main.tf", "a"), ("./b.tf", "b"), ("modules/c.tf", "c"), ("README.md", "d")] {
            let mut header = tar::Header::new_ustar();
            header.set_size(text.len() as u64);
            header.set_mode(0o644);
            archive.append_data(&mut header, path, text.as_bytes()).unwrap();
        }
        let content = STANDARD.encode(archive.into_inner().unwrap());
        let file = File {
            id: Uuid::nil(),
            owner: Uuid::nil(),
            hash: String::new(),
            is_broken: false,
            content,
            start: crate::state::Start::NoAgent,
        };
        assert_eq!(file.source(), "a\nb\n");
    }
}
