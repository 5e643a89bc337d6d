//! One container's life: prepared, started, probed, ended, started again.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    os::unix::process::ExitStatusExt as _,
    path::{Path, PathBuf},
    process::ExitStatus,
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container as Spec, Pod};
use kube::ResourceExt as _;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::{
    process::Child,
    sync::watch,
    time::{Instant, sleep_until, timeout},
};

use super::{
    Node, account,
    environment::{Facts, command_line, variables},
    events::Severity,
    logs::{self, Life},
    objects::{Objects, References},
    place::Place,
    probe::{self, Target},
    rewrite::Rewrite,
    view::{Report, Termination},
    volumes::mounts_of,
};
use crate::process::group_of;

/// How often something that is missing is looked for again.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// A container that ran this long has its back-off forgotten.
const FORGIVEN_AFTER: Duration = Duration::from_mins(10);
const LONGEST_BACK_OFF: Duration = Duration::from_mins(5);
/// How much of a log a termination message may take.
const MESSAGE_LIMIT: usize = 2048;

/// A container and everything around it.
pub(super) struct Container {
    pub(super) node: Arc<Node>,
    pub(super) pod: Arc<Pod>,
    pub(super) spec: Spec,
    pub(super) restart: Restart,
    /// The pod's folder.
    pub(super) folder: PathBuf,
    pub(super) address: std::net::Ipv4Addr,
    /// Where the pod's volumes are.
    pub(super) volumes: Arc<BTreeMap<String, PathBuf>>,
    pub(super) report: Report,
    /// How long the container has, once the pod is being deleted.
    pub(super) stop: watch::Receiver<Option<Duration>>,
}

/// When a container that ended is started again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Restart {
    Always,
    OnFailure,
    Never,
}

/// A container that is ready to be started.
struct Prepared {
    place: Place,
    command: Vec<String>,
    message_file: PathBuf,
}

/// Why a container cannot be started: the reason in its state, and the words.
type Obstacle = (&'static str, String);

impl Container {
    /// Runs the container until it is not to be started again, and returns its exit code; none when it was stopped.
    pub(super) async fn live(mut self) -> Option<i32> {
        let mut crashes = 0;
        loop {
            let prepared = match self.prepare().await {
                Ok(prepared) => prepared,
                Err((reason, message)) => {
                    self.report.waiting(reason, &message);
                    self.report.events.tell(&self.pod, Severity::Warning, "Failed", &message).await;
                    if self.stopped_within(LOOK_AGAIN).await {
                        return None;
                    }
                    continue;
                }
            };
            let began = Instant::now();
            let (code, stopped) = self.run(&prepared).await;
            if stopped {
                return None;
            }
            if !self.restart.applies(code) {
                return Some(code);
            }
            crashes = if began.elapsed() > FORGIVEN_AFTER { 0 } else { crashes };
            let delay = back_off(self.node.options.restart_delay, crashes);
            crashes += 1;
            if !delay.is_zero() {
                let (name, pod) = (&self.spec.name, self.pod.name_any());
                let message = format!("back-off {delay:?} restarting failed container={name} pod={pod}");
                self.report.waiting("CrashLoopBackOff", &message);
                self.report.events.tell(&self.pod, Severity::Warning, "BackOff", &message).await;
            }
            if self.stopped_within(delay).await {
                return None;
            }
        }
    }

    async fn prepare(&self) -> Result<Prepared, Obstacle> {
        let reference = self.spec.image.as_deref().unwrap_or_default();
        let image = self.node.options.images.find(reference).ok_or_else(|| {
            ("ImagePullBackOff", format!("Back-off pulling image \"{reference}\": not an image of this bed"))
        })?;
        let obstacle = |message: String| ("CreateContainerConfigError", message);
        let namespace = self.pod.namespace().unwrap_or_default();
        let objects =
            Objects::fetch(&self.node.options.client, &namespace, &References::of_container(&self.spec))
                .await
                .map_err(|error| obstacle(format!("{error:#}")))?;
        let facts = Facts {
            pod: &self.pod,
            address: self.address,
            node: &self.node.options.name,
            node_address: self.node.address(),
        };
        let folder = self.folder.join("containers").join(&self.spec.name);
        let home = folder.join("home");
        fs::create_dir_all(&home).map_err(|error| obstacle(format!("create {}: {error}", home.display())))?;
        let message_file = folder.join("termination-log");
        fs::write(&message_file, "")
            .map_err(|error| obstacle(format!("clear the termination message: {error}")))?;

        let mut mounts = mounts_of(&self.spec, &self.volumes);
        let message_path = self.spec.termination_message_path.as_deref().unwrap_or("/dev/termination-log");
        mounts.push((message_path.to_owned(), message_file.clone()));
        let kubeconfig = account::kubeconfig(&mounts, self.node.options.api_server, &namespace, &folder)
            .map_err(|error| obstacle(format!("{error:#}")))?;
        let rewrite = Rewrite::new(self.address, mounts);
        let mut given = self.node.variables(&self.pod, &home);
        given.extend(kubeconfig.map(|path| ("KUBECONFIG".to_owned(), path.display().to_string())));
        let environment = variables(&self.spec, &objects, &facts, &given).map_err(obstacle)?;
        let words = command_line(&self.spec, &image.entrypoint, &environment);
        let (program, args) =
            words.split_first().ok_or_else(|| obstacle("no command specified".to_owned()))?;
        // What the node gave is right as it is; a mount over `/tmp` must not move the container's home.
        let here = |name: &String, value: &String| given.get(name) == Some(value);
        let mut environment: BTreeMap<String, String> = environment
            .into_iter()
            .map(
                |(name, value)| {
                    if here(&name, &value) { (name, value) } else { (name, rewrite.apply(&value)) }
                },
            )
            .collect();
        environment.insert(crate::run::MARKER.to_owned(), self.node.options.run.clone());
        let folder = self.spec.working_dir.as_deref().and_then(|it| rewrite.place(it)).unwrap_or(home);
        let place = Place { image, rewrite, environment, folder };
        let mut command = vec![program.clone()];
        command.extend(args.iter().cloned());
        Ok(Prepared { place, command, message_file })
    }

    /// Starts the process and stays with it to its end. Says its exit code, and whether the pod is being deleted.
    async fn run(&mut self, prepared: &Prepared) -> (i32, bool) {
        let started = Timestamp::now();
        let log = self.log();
        fs::rename(&log, logs::file(&self.folder, &self.spec.name, Life::Before)).ok();
        let mut child = match spawn(prepared, &log) {
            Ok(child) => child,
            Err(error) => {
                let message =
                    format!("failed to create containerd task: exec {:?}: {error}", prepared.command);
                let (signal, process) = (None, 0);
                self.report.ended(Termination {
                    exit_code: 128,
                    signal,
                    message,
                    started,
                    finished: started,
                    process,
                });
                return (128, false);
            }
        };
        let process = child.id().unwrap_or_default();
        let group = group_of(&child);
        self.report.running(started, process);
        let target = Target { container: &self.spec, address: self.address, place: &prepared.place };
        let mut stop = self.stop.clone();
        let grace = Duration::from_secs(self.grace_seconds());
        let status = tokio::select! {
            status = child.wait() => status,
            grace = stopped(&mut stop) => terminate(&mut child, group, grace, &mut stop).await,
            reason = probe::keep(&target, &self.report) => {
                let note = format!("Container {} {reason}, will be restarted", self.spec.name);
                self.report.events.tell(&self.pod, Severity::Normal, "Killing", &note).await;
                terminate(&mut child, group, grace, &mut stop).await
            }
        };
        let stopped = stop.borrow().is_some();
        // What the process left in its group goes with it, as it would with its container.
        if let Some(group) = group {
            kill_process_group(group, Signal::KILL).ok();
        }
        let status = status.unwrap_or_default();
        let exit_code = exit_code(status);
        let message = self.message(prepared, &log, exit_code);
        let finished = Timestamp::now();
        let signal = status.signal();
        self.report.ended(Termination { exit_code, signal, message, started, finished, process });
        (exit_code, stopped)
    }

    fn grace_seconds(&self) -> u64 {
        let grace = self.pod.spec.as_ref().and_then(|it| it.termination_grace_period_seconds).unwrap_or(30);
        u64::try_from(grace).unwrap_or(0)
    }

    fn log(&self) -> PathBuf {
        logs::file(&self.folder, &self.spec.name, Life::Last)
    }

    /// The termination message: what the process wrote to its file, else, where the pod asks for it, the log's end.
    fn message(&self, prepared: &Prepared, log: &Path, exit_code: i32) -> String {
        let written = fs::read(&prepared.message_file).unwrap_or_default();
        let falls_back = self.spec.termination_message_policy.as_deref() == Some("FallbackToLogsOnError");
        if written.is_empty() && falls_back && exit_code != 0 {
            return end_of(&fs::read(log).unwrap_or_default());
        }
        end_of(&written)
    }

    async fn stopped_within(&mut self, time: Duration) -> bool {
        timeout(time, stopped(&mut self.stop)).await.is_ok()
    }
}

impl Restart {
    pub(super) fn of(policy: Option<&str>) -> Self {
        match policy {
            Some("Never") => Self::Never,
            Some("OnFailure") => Self::OnFailure,
            _ => Self::Always,
        }
    }

    fn applies(self, exit_code: i32) -> bool {
        match self {
            Self::Always => true,
            Self::OnFailure => exit_code != 0,
            Self::Never => false,
        }
    }
}

/// The first restart comes at once, each further one twice as late as the one before.
fn back_off(first: Duration, crashes: u32) -> Duration {
    match crashes.checked_sub(1) {
        None => Duration::ZERO,
        Some(doublings) => first.saturating_mul(2_u32.saturating_pow(doublings)).min(LONGEST_BACK_OFF),
    }
}

fn spawn(prepared: &Prepared, log: &Path) -> std::io::Result<Child> {
    let output = File::create(log)?;
    prepared.place.command(&prepared.command)?.stdout(output.try_clone()?).stderr(output).spawn()
}

/// Ends when the pod is being deleted, with the time that is left.
pub(super) async fn stopped(stop: &mut watch::Receiver<Option<Duration>>) -> Duration {
    let grace = stop.wait_for(Option::is_some).await.map(|it| it.unwrap_or_default());
    match grace {
        Ok(grace) => grace,
        // The pod's worker is gone, and with it whoever could ask for an end.
        Err(_) => std::future::pending().await,
    }
}

/// Asks the process to end, and makes it end when the time is over. The time may be shortened meanwhile.
async fn terminate(
    child: &mut Child,
    group: Option<Pid>,
    grace: Duration,
    stop: &mut watch::Receiver<Option<Duration>>,
) -> std::io::Result<ExitStatus> {
    let signal = |signal| group.and_then(|group| kill_process_group(group, signal).ok());
    signal(Signal::TERM);
    let mut deadline = Instant::now() + grace;
    loop {
        tokio::select! {
            status = child.wait() => return status,
            () = sleep_until(deadline) => {
                signal(Signal::KILL);
                return child.wait().await;
            }
            Ok(()) = stop.changed() => {
                let left = stop.borrow_and_update().unwrap_or(grace);
                deadline = deadline.min(Instant::now() + left);
            }
        }
    }
}

fn exit_code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

fn end_of(text: &[u8]) -> String {
    let start = text.len().saturating_sub(MESSAGE_LIMIT);
    String::from_utf8_lossy(text.get(start..).unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_restart_is_immediate_and_later_ones_back_off_to_a_limit() {
        let delays: Vec<u64> =
            (0..5).map(|crashes| back_off(Duration::from_secs(10), crashes).as_secs()).collect();
        assert_eq!(delays, [0, 10, 20, 40, 80]);
        assert_eq!(back_off(Duration::from_secs(10), 40), LONGEST_BACK_OFF);
    }

    #[test]
    fn restart_policies_look_at_the_exit_code() {
        assert!(Restart::of(None).applies(0));
        assert!(!Restart::of(Some("OnFailure")).applies(0));
        assert!(Restart::of(Some("OnFailure")).applies(1));
        assert!(!Restart::of(Some("Never")).applies(1));
    }
}
