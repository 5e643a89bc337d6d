//! One run: a folder, a block of loopback addresses, and the reaper that ends both when their owner does.
//!
//! Every process of a run carries [`MARKER`] in its environment. The reaper, a small shell script in a process
//! group of its own, waits for the end of a pipe that only the owner holds. However the owner goes, the pipe
//! closes; then the reaper kills what carries the mark and removes the folder. An orderly end takes the same way.

use std::{
    fs,
    io::Write as _,
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::Arc,
};

use anyhow::{Context as _, Result, ensure};

use crate::loopback::Block;

/// The environment variable that marks the processes of a run.
pub const MARKER: &str = "BED_RUN";

/// What the folders of runs are called, before their identifier.
pub const FOLDER_PREFIX: &str = "coder-operator-bed-";

/// How much room the databases and logs of a whole suite take, in bytes. Without it PostgreSQL stops in the middle, and every test
/// after that fails without saying why.
const ROOM: u64 = 4_000_000_000;

/// How many failures have their logs kept.
const KEPT_LOGS: usize = 10;

const REAPER: &str = include_str!("run/reaper.sh");

/// A folder and a block of addresses with a life of their own.
#[derive(Debug)]
pub struct Run {
    id: String,
    folder: PathBuf,
    addresses: Arc<Block>,
    reaper: Child,
    lifeline: Option<ChildStdin>,
}

impl Run {
    /// Makes the folder, claims the addresses and starts the reaper.
    pub fn start() -> Result<Self> {
        let temporary = std::env::temp_dir();
        let room = rustix::fs::statvfs(&temporary).map(|it| it.f_bavail.saturating_mul(it.f_frsize));
        let room = room.with_context(|| format!("ask for the free room in {}", temporary.display()))?;
        let (gigabytes, needed) = (room / 1_000_000_000, ROOM / 1_000_000_000);
        ensure!(
            room >= ROOM,
            "a bed takes up to {needed} GB in {}, and less than {} GB are free: free some, or set TMPDIR",
            temporary.display(),
            gigabytes + 1
        );
        let id = uuid::Uuid::new_v4().simple().to_string().split_off(20);
        let folder = temporary.join(format!("{FOLDER_PREFIX}{id}"));
        let (addresses, claim) = Block::claim()?;
        // The reaper comes first: there is no moment at which the folder exists and nobody would remove it.
        let mut reaper = Command::new("/bin/sh")
            .args(["-c", REAPER, "bed-reaper", &id])
            .arg(&folder)
            // A run inside another one: the outer reaper must not take the inner one for one of its processes.
            .env_remove(MARKER)
            .stdin(Stdio::piped())
            // The script never prints. Its standard output only holds the claim, so that the addresses
            // stay taken until everything that listens on them is gone.
            .stdout(claim)
            .stderr(Stdio::null())
            .current_dir("/")
            .process_group(0)
            .spawn()
            .context("start the reaper with /bin/sh")?;
        let lifeline = reaper.stdin.take();
        let run = Self { id, folder, addresses: Arc::new(addresses), reaper, lifeline };
        // Others may pass through, not look: PostgreSQL runs as another user and reaches its own folder below.
        fs::create_dir(&run.folder)
            .and_then(|()| fs::set_permissions(&run.folder, fs::Permissions::from_mode(0o711)))
            .with_context(|| format!("create the run's folder {}", run.folder.display()))?;
        run.file("owner", &std::process::id().to_string())?;
        Ok(run)
    }

    /// What tells this run from others.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The run's loopback addresses.
    pub fn addresses(&self) -> Arc<Block> {
        Arc::clone(&self.addresses)
    }

    /// The run's folder.
    pub fn path(&self) -> &Path {
        &self.folder
    }

    /// A folder below the run's, made if need be, that only its owner may read.
    pub fn folder(&self, name: &str) -> Result<PathBuf> {
        let path = self.folder.join(name);
        fs::create_dir_all(&path).with_context(|| format!("create {}", path.display()))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700))
            .with_context(|| format!("close {} to others", path.display()))?;
        Ok(path)
    }

    /// Writes a file below the run's folder that only its owner may read.
    pub fn file(&self, name: &str, content: &str) -> Result<PathBuf> {
        use std::os::unix::fs::OpenOptionsExt as _;
        let path = self.folder.join(name);
        fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&path)
            .and_then(|mut file| file.write_all(content.as_bytes()))
            .with_context(|| format!("write {}", path.display()))?;
        Ok(path)
    }

    /// The log of the part of that name.
    pub fn log(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.log"))
    }

    /// Copies the logs, those of pods too, to where they outlive the run, and says where.
    pub fn keep_logs(&self) -> Result<PathBuf> {
        let all = crate::cache::folder()?.join("logs");
        let kept = all.join(&self.id);
        fs::create_dir_all(&kept).with_context(|| format!("create {}", kept.display()))?;
        copy_logs(&self.folder, &self.folder, &kept)?;
        forget_old_logs(&all)?;
        Ok(kept)
    }
}

/// Copies every log below a folder, each under its path in one word.
fn copy_logs(root: &Path, folder: &Path, kept: &Path) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("list {}", folder.display()))? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            // PostgreSQL's folder is not ours to read, and its log is not in there.
            copy_logs(root, &path, kept).unwrap_or_default();
        } else if path.extension().is_some_and(|it| it == "log") {
            let name = path.strip_prefix(root).unwrap_or(&path).display().to_string().replace('/', "-");
            fs::copy(&path, kept.join(name)).with_context(|| format!("keep {}", path.display()))?;
        }
    }
    Ok(())
}

/// Removes the logs of all but the newest failures.
fn forget_old_logs(all: &Path) -> Result<()> {
    let mut kept: Vec<_> = fs::read_dir(all)
        .with_context(|| format!("list {}", all.display()))?
        .filter_map(|entry| {
            Some((entry.as_ref().ok()?.metadata().ok()?.modified().ok()?, entry.ok()?.path()))
        })
        .collect();
    kept.sort();
    for (_, old) in kept.iter().rev().skip(KEPT_LOGS) {
        fs::remove_dir_all(old).with_context(|| format!("remove {}", old.display()))?;
    }
    Ok(())
}

impl Drop for Run {
    fn drop(&mut self) {
        drop(self.lifeline.take());
        // Nothing can be done about a reaper that fails, and it only fails if somebody kills it.
        self.reaper.wait().ok();
    }
}

/// A run whose owner is alive.
#[derive(Debug)]
pub struct Living {
    pub id: String,
    /// The process that owns it.
    pub owner: u32,
}

/// The runs on this machine.
pub fn living() -> Result<Vec<Living>> {
    let mut runs = Vec::new();
    for entry in fs::read_dir(std::env::temp_dir()).context("list the folder for temporary files")? {
        let path = entry?.path();
        let name = path.file_name().and_then(|it| it.to_str()).unwrap_or_default();
        let Some(id) = name.strip_prefix(FOLDER_PREFIX) else {
            continue;
        };
        // A run that has just begun, or is just ending, has no owner on file.
        let Ok(owner) = fs::read_to_string(path.join("owner")) else {
            continue;
        };
        if let Ok(owner) = owner.trim().parse() {
            runs.push(Living { id: id.to_owned(), owner });
        }
    }
    runs.sort_by(|one, other| one.id.cmp(&other.id));
    Ok(runs)
}
