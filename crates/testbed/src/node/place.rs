//! Where the commands of a container run.

use std::{collections::BTreeMap, path::PathBuf, process::Stdio};

use tokio::process::Command;

use super::{image::Image, rewrite::Rewrite};

/// Where a container's commands run, its own and those of its probes.
pub(super) struct Place {
    pub(super) image: Image,
    pub(super) rewrite: Rewrite,
    pub(super) environment: BTreeMap<String, String>,
    pub(super) folder: PathBuf,
}

impl Place {
    /// A command in this place, in a process group of its own.
    pub(super) fn command(&self, words: &[String]) -> std::io::Result<Command> {
        let (program, args) = words.split_first().ok_or(std::io::ErrorKind::InvalidInput)?;
        let mut command = Command::new(self.image.program(&self.rewrite.apply(program)));
        command
            .args(args.iter().map(|word| self.rewrite.apply(word)))
            .env_clear()
            .envs(&self.environment)
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .process_group(0);
        Ok(command)
    }
}
