//! A server of the bed as a child process: started in a group of its own, logged to a file, awaited by asking.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::{process::Child, time::Instant};

use crate::run::{MARKER, Run};

/// How often a server that is starting is asked whether it is ready.
const ASK_EVERY: Duration = Duration::from_millis(20);
/// How long a server may take to become ready: far more than it needs on a busy machine.
pub(crate) const READY_WITHIN: Duration = Duration::from_mins(5);

/// What to start.
#[derive(Debug)]
pub struct Launch<'a> {
    /// The part's name: of its log, and in messages.
    pub name: &'a str,
    pub binary: &'a Path,
    pub args: Vec<String>,
    /// The whole environment, but for the run's mark.
    pub env: Vec<(String, String)>,
    /// The user to run as, where it is not our own.
    pub user: Option<(u32, u32)>,
    /// Whether standard output is read by us instead of logged.
    pub read_output: bool,
}

/// A running server. Dropping it kills its group.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    group: Option<Pid>,
    log: PathBuf,
}

impl Process {
    /// Starts the server; it may not be ready yet.
    pub fn start(run: &Run, launch: Launch<'_>) -> Result<Self> {
        let Launch { name, binary, args, env, user, read_output } = launch;
        let log = run.log(name);
        let file = fs::OpenOptions::new().create(true).append(true).open(&log);
        let file = file.with_context(|| format!("create the log {}", log.display()))?;
        let output = if read_output { Stdio::piped() } else { file.try_clone()?.into() };
        let mut command = tokio::process::Command::new(binary);
        command
            .args(args)
            .env_clear()
            .envs(env)
            .env(MARKER, run.id())
            .current_dir(run.path())
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(file)
            .process_group(0);
        if let Some((uid, gid)) = user {
            command.uid(uid).gid(gid);
        }
        let child = command.spawn().with_context(|| format!("start {name} ({})", binary.display()))?;
        let group = group_of(&child);
        Ok(Self { name: name.to_owned(), child, group, log })
    }

    /// Asks until the answer is yes. Fails at once when the process ends, and with its last words.
    pub async fn ready<F>(&mut self, ask: impl Fn() -> F) -> Result<()>
    where
        F: Future<Output = bool>,
    {
        let deadline = Instant::now() + READY_WITHIN;
        while !ask().await {
            if let Some(status) = self.child.try_wait()? {
                bail!("{} ended while it started ({status}):\n{}", self.name, self.last_words());
            }
            if Instant::now() > deadline {
                let waited = READY_WITHIN.as_secs();
                bail!("{} was not ready after {waited} s; its log ends:\n{}", self.name, self.last_words());
            }
            tokio::time::sleep(ASK_EVERY).await;
        }
        Ok(())
    }

    /// The process's standard output, once, where it was asked for.
    pub fn take_output(&mut self) -> Option<tokio::process::ChildStdout> {
        self.child.stdout.take()
    }

    /// The process's log, to add to.
    pub fn open_log(&self) -> Result<fs::File> {
        fs::OpenOptions::new()
            .append(true)
            .open(&self.log)
            .with_context(|| format!("open the log {}", self.log.display()))
    }

    /// The process's id.
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Waits for the process to end by itself.
    pub async fn wait(&mut self) -> Result<ExitStatus> {
        self.child.wait().await.with_context(|| format!("wait for {}", self.name))
    }

    /// The lines of the log that matter.
    pub fn last_words(&self) -> String {
        last_words(&fs::read(&self.log).unwrap_or_default())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let (Some(group), Ok(None)) = (self.group, self.child.try_wait()) {
            kill_process_group(group, Signal::KILL).ok();
        }
    }
}

/// The group that a child leads, which has its own number.
pub fn group_of(child: &Child) -> Option<Pid> {
    child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw)
}

/// The lines of a log that tell why a process failed: the last errors if there are any, else the end.
pub fn last_words(log: &[u8]) -> String {
    const KEPT: usize = 12;
    let log = String::from_utf8_lossy(log);
    let telling = ["error", "fatal", "panic", "failed", "cannot", "refused"];
    let is_telling = |line: &&str| {
        let line = line.to_lowercase();
        telling.iter().any(|word| line.contains(word)) || line.starts_with('f') && line.contains("] ")
    };
    let lines: Vec<&str> = log.lines().filter(|line| !line.trim().is_empty()).collect();
    let mut kept: Vec<&str> = lines.iter().copied().filter(is_telling).collect();
    if kept.is_empty() {
        kept = lines;
    }
    let start = kept.len().saturating_sub(KEPT);
    kept.get(start..).unwrap_or_default().iter().fold(String::new(), |words, line| {
        words
            + "  "
            + line
            + "
"
    })
}

#[cfg(test)]
mod tests {
    use super::last_words;

    #[test]
    fn last_words_are_the_errors_where_there_are_any() {
        let log = b"starting\nlistening\nerror: no such database\nshutting down\n";
        assert_eq!(last_words(log), "  error: no such database\n");
    }

    #[test]
    fn last_words_are_the_end_of_a_log_without_errors() {
        assert_eq!(last_words(b"one\n\ntwo\n"), "  one\n  two\n");
    }
}
