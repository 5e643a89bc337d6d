//! Works on groups: through the controllers, and through the command line.

use std::{fs, path::Path};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use testbed::process::Launch;
use tokio::time::{Duration, Instant, sleep};

use super::{
    Outcome, burst,
    cluster::is_ready,
    figures::Measure,
    fixture::{Bench, Fixture},
    meter::{Measured, Meter},
    operator::unique_name,
    proc::{Memory, cpu_seconds, memory},
    provisioners::restart,
    works::Work,
};
use crate::terminal::say;

const KIND: &str = "CoderGroup";
const ORGANIZATIONS: u32 = 5;
/// How often the memory of a command is read.
const POLL: Duration = Duration::from_millis(20);

/// Creates the groups through `run`, and restarts the operator.
pub(super) async fn run(bench: &Bench<'_>, works: &[Work], outcome: &mut Outcome) -> Result<()> {
    let mut fixture = Fixture::connected(bench).await?;
    create_organizations(&fixture).await?;
    for work in works {
        say(&format!("measuring {}", work.name()));
        let measured = if *work == Work::RestartGroups {
            restart(&mut fixture, KIND, work.objects()).await?
        } else {
            burst(&fixture, work.objects()).await?
        };
        outcome.add(*work, measured);
    }
    fixture.end().await
}

/// Creates the groups through `apply`, and plans them again.
pub(super) async fn run_command_line(bench: &Bench<'_>, works: &[Work], outcome: &mut Outcome) -> Result<()> {
    let fixture = Fixture::licensed(bench).await?;
    create_organizations(&fixture).await?;
    let file = bench.bed.folder().join(format!("{}.yaml", fixture.cluster.namespace));
    let documents: Vec<String> =
        manifests(Work::Groups1000Cli.objects()).iter().map(ToString::to_string).collect();
    fs::write(&file, documents.join("\n---\n")).with_context(|| format!("write {}", file.display()))?;
    for work in works {
        say(&format!("measuring {}", work.name()));
        let verb: &[&str] =
            if *work == Work::Plan1000 { &["plan", "--exit-code"] } else { &["apply", "--yes"] };
        outcome.add(*work, command(&fixture, verb, &file).await?);
    }
    check_groups(&fixture, Work::Groups1000Cli.objects()).await?;
    fixture.end().await
}

async fn create_organizations(fixture: &Fixture<'_>) -> Result<()> {
    for number in 0..ORGANIZATIONS {
        fixture.post("/api/v2/organizations", &json!({"name": organization(number)})).await?;
    }
    Ok(())
}

fn organization(number: u32) -> String {
    format!("bench-{}", number % ORGANIZATIONS)
}

fn manifests(count: u32) -> Vec<Value> {
    let manifest = |number: u32| {
        let spec = json!({"controlPlaneRef": {"name": "main"}, "organization": organization(number),
            "displayName": format!("Group {number}"), "quotaAllowance": 5});
        json!({"apiVersion": "coder.com/v1alpha1", "kind": KIND,
            "metadata": {"name": format!("group-{number:04}")}, "spec": spec})
    };
    (0..count).map(manifest).collect()
}

async fn burst(fixture: &Fixture<'_>, count: u32) -> Result<Measured> {
    let manifests = manifests(count);
    let waiting = fixture.cluster.wait_for(KIND, manifests.len(), "Ready", is_ready);
    let measured = burst::measure(fixture, &manifests, waiting).await?;
    check_groups(fixture, count).await?;
    Ok(measured)
}

/// Checks that coderd has the groups. Every organization has one more, of everybody.
async fn check_groups(fixture: &Fixture<'_>, count: u32) -> Result<()> {
    let mut found = 0;
    for number in 0..ORGANIZATIONS {
        let groups = fixture.get(&format!("/api/v2/organizations/{}/groups", organization(number))).await?;
        found += groups.as_array().map_or(0, Vec::len).saturating_sub(1);
    }
    ensure!(u32::try_from(found) == Ok(count), "coderd has {found} of {count} groups");
    Ok(())
}

/// Runs a verb of the command line on a file, and measures it. The memory is the most that was seen.
pub(super) async fn command(fixture: &Fixture<'_>, verb: &[&str], file: &Path) -> Result<Measured> {
    let meter = Meter::start(fixture).await?;
    let mut args: Vec<String> = verb.iter().map(|it| (*it).to_owned()).collect();
    args.extend(["--url".to_owned(), fixture.calls.url.clone()]);
    args.extend(["-f".to_owned(), file.display().to_string()]);
    let env = [
        ("CODER_SESSION_TOKEN".to_owned(), fixture.coderd.owner.token.clone()),
        ("HOME".to_owned(), fixture.bench.bed.folder().display().to_string()),
    ];
    let name = unique_name();
    let began = Instant::now();
    let launch = Launch {
        name: &name,
        binary: &fixture.bench.binary,
        args,
        env: env.to_vec(),
        user: None,
        read_output: false,
    };
    let mut process = fixture.bench.bed.spawn(launch)?;
    let id = process.id().context("the command ended at once")?;
    let (mut cpu, mut most) = (0.0, Memory::default());
    let status = loop {
        tokio::select! {
            status = process.wait() => break status?,
            () = sleep(POLL) => {}
        }
        cpu = cpu_seconds(id).unwrap_or(cpu);
        most = memory(id).ok().filter(|it| it.resident > most.resident).unwrap_or(most);
    };
    let seconds = began.elapsed().as_secs_f64();
    ensure!(
        status.success(),
        "coder-operator {} ended with {status}:\n{}",
        verb.join(" "),
        process.last_words()
    );
    let mut measured = meter.stop_at_once(fixture, seconds)?;
    let figures = &mut measured.figures;
    figures.set(Measure::OperatorCpu, cpu);
    figures.set(Measure::ResidentMegabytes, most.resident);
    figures.set(Measure::AnonymousMegabytes, most.anonymous);
    Ok(measured)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_spread_over_the_organizations() {
        let manifests = manifests(10);
        let in_first = manifests.iter().filter(|it| it["spec"]["organization"] == "bench-0");
        assert_eq!(in_first.count(), 2);
    }
}
