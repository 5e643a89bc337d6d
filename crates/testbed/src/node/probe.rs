//! Probes of a running container, with the kubelet's defaults.

use std::{net::Ipv4Addr, process::Stdio, time::Duration};

use k8s_openapi::{
    api::core::v1::{Container, HTTPGetAction, Probe},
    apimachinery::pkg::util::intstr::IntOrString,
};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::{net::TcpStream, time::timeout};

use super::{place::Place, view::Report};
use crate::process::group_of;

/// Where a container's probes go.
pub(super) struct Target<'a> {
    pub(super) container: &'a Container,
    pub(super) address: Ipv4Addr,
    /// Where probes run that are commands.
    pub(super) place: &'a Place,
}

/// Keeps asking, and reports what changes. Ends, with the reason, only when the container has to be restarted.
pub(super) async fn keep(target: &Target<'_>, report: &Report) -> String {
    if let Some(probe) = &target.container.startup_probe
        && let Err(reason) = until_started(target, probe, report).await
    {
        return reason;
    }
    report.started();
    let ready = async {
        if let Some(probe) = &target.container.readiness_probe {
            return keep_ready(target, probe, report).await;
        }
        report.ready(true);
        std::future::pending().await
    };
    let alive = async {
        match &target.container.liveness_probe {
            Some(probe) => until_dead(target, probe, report).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        never = ready => never,
        reason = alive => reason,
    }
}

async fn until_started(target: &Target<'_>, probe: &Probe, report: &Report) -> Result<(), String> {
    let mut failures = 0;
    pause(probe.initial_delay_seconds).await;
    loop {
        match ask(target, probe).await {
            Ok(()) => return Ok(()),
            Err(reason) => {
                failures += 1;
                report.unhealthy("Startup", &reason).await;
                if failures >= probe.failure_threshold.unwrap_or(3) {
                    return Err(format!("failed startup probe: {reason}"));
                }
            }
        }
        pause(Some(probe.period_seconds.unwrap_or(10))).await;
    }
}

async fn keep_ready(target: &Target<'_>, probe: &Probe, report: &Report) -> String {
    let (mut successes, mut failures) = (0, 0);
    pause(probe.initial_delay_seconds).await;
    loop {
        match ask(target, probe).await {
            Ok(()) => (successes, failures) = (successes + 1, 0),
            Err(reason) => {
                (successes, failures) = (0, failures + 1);
                report.unhealthy("Readiness", &reason).await;
            }
        }
        if successes >= probe.success_threshold.unwrap_or(1) {
            report.ready(true);
        } else if failures >= probe.failure_threshold.unwrap_or(3) {
            report.ready(false);
        }
        pause(Some(probe.period_seconds.unwrap_or(10))).await;
    }
}

async fn until_dead(target: &Target<'_>, probe: &Probe, report: &Report) -> String {
    let mut failures = 0;
    pause(probe.initial_delay_seconds).await;
    loop {
        match ask(target, probe).await {
            Ok(()) => failures = 0,
            Err(reason) => {
                failures += 1;
                report.unhealthy("Liveness", &reason).await;
                if failures >= probe.failure_threshold.unwrap_or(3) {
                    return format!("failed liveness probe: {reason}");
                }
            }
        }
        pause(Some(probe.period_seconds.unwrap_or(10))).await;
    }
}

async fn pause(seconds: Option<i32>) {
    let seconds = u64::try_from(seconds.unwrap_or(0)).unwrap_or(0);
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

/// Asks once.
async fn ask(target: &Target<'_>, probe: &Probe) -> Result<(), String> {
    let limit = Duration::from_secs(u64::try_from(probe.timeout_seconds.unwrap_or(1)).unwrap_or(1));
    let asked = async {
        if let Some(action) = &probe.http_get {
            ask_http(target, action).await
        } else if let Some(action) = &probe.tcp_socket {
            let port = port(target.container, &action.port)?;
            TcpStream::connect((target.address, port))
                .await
                .map(drop)
                .map_err(|error| format!("dial tcp: {error}"))
        } else if let Some(action) = &probe.exec {
            ask_command(target, action.command.as_deref().unwrap_or_default()).await
        } else {
            Err("a probe of a kind that this node does not know".to_owned())
        }
    };
    timeout(limit, asked).await.unwrap_or_else(|_| Err("context deadline exceeded".to_owned()))
}

async fn ask_http(target: &Target<'_>, action: &HTTPGetAction) -> Result<(), String> {
    let scheme = action.scheme.as_deref().unwrap_or("HTTP").to_lowercase();
    let host = action.host.clone().unwrap_or_else(|| target.address.to_string());
    let port = port(target.container, &action.port)?;
    let path = action.path.as_deref().unwrap_or("/").trim_start_matches('/');
    let client = reqwest::Client::builder()
        .no_proxy()
        // As the kubelet does: it asks whether the server answers, not who it is.
        .danger_accept_invalid_certs(true)
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .map_err(|error| error.to_string())?;
    let mut request = client.get(format!("{scheme}://{host}:{port}/{path}"));
    for header in action.http_headers.iter().flatten() {
        request = request.header(&header.name, &header.value);
    }
    let answer = request.send().await.map_err(|error| format!("Get {error}"))?;
    match answer.status().as_u16() {
        200..400 => Ok(()),
        status => Err(format!("HTTP probe failed with statuscode: {status}")),
    }
}

async fn ask_command(target: &Target<'_>, words: &[String]) -> Result<(), String> {
    let run = async {
        let child = target.place.command(words)?.stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        // A probe that is given up takes with it whatever it started.
        let _group = KillOnDrop(group_of(&child));
        child.wait_with_output().await
    };
    let output = run.await.map_err(|error| format!("run {words:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
}

struct KillOnDrop(Option<Pid>);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            kill_process_group(group, Signal::KILL).ok();
        }
    }
}

/// A port by number, or by the name that the container gives it.
fn port(container: &Container, port: &IntOrString) -> Result<u16, String> {
    let number = match port {
        IntOrString::Int(number) => Some(*number),
        IntOrString::String(name) => container
            .ports
            .iter()
            .flatten()
            .find(|port| port.name.as_deref() == Some(name))
            .map(|port| port.container_port),
    };
    number.and_then(|it| u16::try_from(it).ok()).ok_or_else(|| format!("couldn't find port {port:?}"))
}
