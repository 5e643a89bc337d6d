//! Building one Go part: keyed by everything that goes into it, under a lock, with progress.

use std::{
    fs::{self, File, TryLockError},
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow, bail};
use sha2::{Digest as _, Sha256};

use super::{
    Modules, Say,
    go::{Toolchain, Trouble, diagnose},
};

/// A line of progress comes at least this often.
const PROGRESS_EVERY: Duration = Duration::from_secs(8);
/// How long we stay away from a registry that asked us to, before each further try.
const PAUSES: [Duration; 3] = [Duration::from_secs(15), Duration::from_secs(45), Duration::from_secs(90)];

/// A part that is built with Go.
#[derive(Debug)]
pub struct GoPart {
    pub name: &'static str,
    /// The folder of the module that pins it.
    pub module: &'static str,
    pub kind: Kind,
    /// The linker flags that write its version into it.
    pub stamp: fn(module: &Path) -> Result<String>,
}

/// What kind of program a part is.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// A command of that package.
    Command(&'static str),
    /// The tests of the module itself.
    Test,
}

impl GoPart {
    /// The part's binary, built if it is not in the cache.
    pub(super) fn ensure(&self, modules: &Modules, toolchain: &Toolchain, say: Say<'_>) -> Result<PathBuf> {
        let (module, path) = (modules.folder(self.module), self.path(modules, toolchain)?);
        if path.exists() {
            return Ok(path);
        }
        // One lock for all parts: two builds at once would only take each other's memory.
        let _lock = super::lock(say)?;
        if path.exists() {
            return Ok(path);
        }
        self.build(&module, &path, say)?;
        Ok(path)
    }

    /// Where the binary is or will be.
    pub(super) fn path(&self, modules: &Modules, toolchain: &Toolchain) -> Result<PathBuf> {
        let module = modules.folder(self.module);
        let mut key = Sha256::new();
        for source in sources(&module)? {
            key.update(fs::read(&source).with_context(|| format!("read {}", source.display()))?);
        }
        key.update(&toolchain.identity);
        for argument in self.arguments(&module)? {
            key.update(argument);
        }
        let key = base16ct::lower::encode_string(&key.finalize()[..8]);
        Ok(crate::cache::folder()?.join("parts").join(format!("{}-{key}", self.name)).join(self.name))
    }

    fn arguments(&self, module: &Path) -> Result<Vec<String>> {
        let (verb, package): (&[&str], _) = match self.kind {
            Kind::Command(package) => (&["build"], package),
            Kind::Test => (&["test", "-c"], "."),
        };
        let mut arguments: Vec<String> = verb.iter().map(|&word| word.to_owned()).collect();
        arguments.extend(["-mod=readonly", "-buildvcs=false", "-trimpath", "-ldflags"].map(str::to_owned));
        arguments.push(format!("-s -w {}", (self.stamp)(module)?));
        arguments.push(package.to_owned());
        Ok(arguments)
    }

    fn build(&self, module: &Path, path: &Path, say: Say<'_>) -> Result<()> {
        let folder = path.parent().context("a part's path has a folder")?;
        fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
        // Another build of the same part may have lost its owner and not yet noticed.
        let unfinished = path.with_extension(format!("unfinished-{}", std::process::id()));
        for pause in PAUSES.iter().map(Some).chain([None]) {
            let Err(complaint) = self.compile(module, &unfinished, say)? else {
                return fs::rename(&unfinished, path)
                    .with_context(|| format!("put {} in place", path.display()));
            };
            match (diagnose(&complaint), pause) {
                (Some(Trouble::TooManyRequests), Some(pause)) => {
                    say(&format!(
                        "the Go module registry asks for a pause: trying again in {} s",
                        pause.as_secs()
                    ));
                    thread::sleep(*pause);
                }
                (Some(Trouble::TooManyRequests), None) => {
                    bail!(
                        "the Go module registry keeps answering \"too many requests\": run `cargo xtask bed build` later"
                    )
                }
                (Some(Trouble::ForAPerson(sentence)), _) => {
                    bail!(
                        "{sentence} (building {}: {})",
                        self.name,
                        complaint.lines().last().unwrap_or_default()
                    )
                }
                (None, _) => bail!("building {} failed:\n{complaint}", self.name),
            }
        }
        Ok(())
    }

    /// Runs the compiler once; a failed build is its complaint.
    fn compile(&self, module: &Path, output: &Path, say: Say<'_>) -> Result<Result<(), String>> {
        let mut arguments = self.arguments(module)?;
        let package = arguments.pop().unwrap_or_default();
        let mut child = Command::new("go")
            .args(arguments)
            .arg("-v")
            .arg("-o")
            .arg(output)
            .arg(package)
            .current_dir(module)
            .env("CGO_ENABLED", "0")
            .env("GOTOOLCHAIN", "local")
            .env("GOWORK", "off")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("run the Go compiler")?;
        let stderr = child.stderr.take().ok_or_else(|| anyhow!("the compiler's messages are piped"))?;
        let (sender, lines) = mpsc::channel();
        let reader = thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let mut progress = Progress::new(self.name);
        loop {
            match lines.recv_timeout(PROGRESS_EVERY) {
                Ok(line) => progress.read(&line),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            progress.report(say);
        }
        reader.join().map_err(|_| anyhow!("the reader of the compiler's messages failed"))?;
        let status = child.wait().context("wait for the Go compiler")?;
        if status.success() {
            say(&format!("{}: built in {} s", self.name, progress.started.elapsed().as_secs()));
            return Ok(Ok(()));
        }
        Ok(Err(progress.complaint()))
    }
}

/// What the compiler has said so far.
struct Progress {
    name: &'static str,
    started: Instant,
    reported: Option<Instant>,
    modules: usize,
    packages: usize,
    other: Vec<String>,
}

impl Progress {
    fn new(name: &'static str) -> Self {
        Self { name, started: Instant::now(), reported: None, modules: 0, packages: 0, other: Vec::new() }
    }

    fn read(&mut self, line: &str) {
        if line.starts_with("go: downloading ") {
            self.modules += 1;
        } else if line.contains(['/', '.']) && !line.contains([' ', ':']) || is_std_package(line) {
            self.packages += 1;
        } else {
            self.other.push(line.to_owned());
        }
    }

    fn report(&mut self, say: Say<'_>) {
        if self.reported.is_none_or(|last| last.elapsed() >= PROGRESS_EVERY) {
            self.reported = Some(Instant::now());
            say(&format!(
                "building {}: {} modules fetched, {} packages compiled, {} s",
                self.name,
                self.modules,
                self.packages,
                self.started.elapsed().as_secs()
            ));
        }
    }

    fn complaint(&self) -> String {
        let start = self.other.len().saturating_sub(20);
        self.other.get(start..).unwrap_or_default().join("\n")
    }
}

/// `-v` names each package that is compiled; those of the standard library may be one word.
fn is_std_package(line: &str) -> bool {
    !line.is_empty() && line.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}

/// The files that a module's binaries depend on and that are ours; `go.sum` stands for the rest.
pub(super) fn sources(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut sources: Vec<PathBuf> = fs::read_dir(folder)
        .with_context(|| format!("list {}", folder.display()))?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    sources.retain(|path| path.extension().is_some_and(|it| it == "go" || it == "mod" || it == "sum"));
    sources.sort();
    Ok(sources)
}

/// Takes a file lock, and says so when it has to wait for somebody else.
pub(super) fn lock(folder: &Path, name: &str, say: Say<'_>) -> Result<File> {
    fs::create_dir_all(folder).with_context(|| format!("create the cache {}", folder.display()))?;
    let path = folder.join(name);
    let file = File::create(&path).with_context(|| format!("open {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => return Ok(file),
        Err(TryLockError::WouldBlock) => say("another process is building the bed's parts: waiting for it"),
        Err(TryLockError::Error(error)) => {
            return Err(error).with_context(|| format!("lock {}", path.display()));
        }
    }
    file.lock().with_context(|| format!("lock {}", path.display()))?;
    Ok(file)
}
