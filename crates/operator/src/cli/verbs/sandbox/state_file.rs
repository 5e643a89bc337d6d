//! The file that a sandbox starts from and is saved to. It holds hashes of tokens and the text of licences, so only its owner
//! may read it.

use std::{
    fs,
    io::{ErrorKind, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::{Context as _, Result};
use sim::state::State;

use crate::cli::exit::Failure;

/// Read and write for the owner, and nothing for others.
const PRIVATE: u32 = 0o600;

/// A file with a state. Clones share the right to write it.
#[derive(Debug, Clone)]
pub(super) struct StateFile {
    path: PathBuf,
    is_saved: bool,
    writing: Arc<Mutex<()>>,
}

impl StateFile {
    pub(super) fn new(path: PathBuf, is_saved: bool) -> Self {
        Self { path, is_saved, writing: Arc::default() }
    }

    /// The state of the file. `None` where there is no file yet and one will be written.
    pub(super) fn load(&self) -> Result<Option<State>, Failure> {
        let path = self.path.display();
        let text = match fs::read_to_string(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound && self.is_saved => return Ok(None),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(Failure::usage(format!(
                    "--state {path}: there is no such file: give --save to create it"
                )));
            }
            text => text.with_context(|| format!("read the state in {path}"))?,
        };
        let state = serde_json::from_str(&text).map_err(|error| {
            Failure::usage(format!("--state {path}: not a state of a sandbox: {error}: give another file"))
        })?;
        Ok(Some(state))
    }

    /// Replaces the file as a whole, where it is to be saved.
    pub(super) fn save(&self, state: impl FnOnce() -> State) -> Result<()> {
        if !self.is_saved {
            return Ok(());
        }
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        // Read only now: no earlier state replaces a later one.
        write(&self.path, &state()).with_context(|| format!("save the state in {}", self.path.display()))
    }
}

fn write(path: &Path, state: &State) -> Result<()> {
    let mut name = path.file_name().context("--state names no file")?.to_owned();
    name.push(format!(".{}", std::process::id()));
    let unfinished = path.with_file_name(name);
    match fs::remove_file(&unfinished) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    let mut options = fs::OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(PRIVATE).open(&unfinished)?;
    file.write_all(serde_json::to_string_pretty(state)?.as_bytes())?;
    file.write_all(b"\n")?;
    file.sync_all()?;
    fs::rename(&unfinished, path)?;
    Ok(())
}
