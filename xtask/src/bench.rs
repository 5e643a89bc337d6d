//! `cargo xtask bench`: what the operator costs, measured from outside on a bed of real programs.
//!
//! Requests are counted from the API server's audit log and by a proxy in front of coderd; CPU time and memory are read from
//! `/proc`. Works that share a coderd and an operator are a [`Chain`]; every chain has a fixture of its own in every round.

mod account;
mod audit;
mod burst;
mod calls;
mod cluster;
mod figures;
mod fixture;
mod goals;
mod groups;
mod meter;
mod mixed;
mod operator;
mod planes;
mod proc;
mod provisioners;
mod table;
mod timeline;
mod works;

use std::{
    collections::BTreeMap,
    num::{NonZeroU32, NonZeroUsize},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context as _, Result};
use testbed::Options;

use crate::{
    bed::with_whole_bed,
    image::build_binary,
    terminal::{print, say},
};
use fixture::Bench;
use meter::Measured;
use table::Results;
use timeline::TimeLine;
use works::{Chain, Work};

/// The interval of periodic reconciles when a manifest names none, and its jitter.
const WHOLE_INTERVAL: Duration = Duration::from_secs(330);

const METHOD: &str = "\
Counts come from the audit log (requests of the operator's ServiceAccount, which has the shipped Role and no other rights) and from a \
proxy in front of coderd. Writes include Events; reads are get and list; watches and leases are counted apart. CPU time and RSS are \
those of /proc. A work is over when the last object has converged; requests and CPU time are counted until the operator has sent \
nothing for 1.5 s. Where other programs keep cores busy, the seconds are too many and the counts still hold. coderd is the licensed one of the bed, without a rate limiter of its own. It sends no rate-limit headers, so the \
client assumes 512 requests a minute per path and uses half of it, as for every supplied token: 256 requests a minute per path.";

const HELP: &str = "\
A provisioner has converged when a status of its generation reports key, Secret and Deployment, and the Deployment's pods are stamped \
with the checksum of that key. Every key is then proved valid at coderd. Real daemons need 200 MB each: the first two provisioners of \
a burst have one, the others have `replicas: 0`; nothing waits for the daemons.

The operator is built with the profile dist and runs as a process with leader election, as the chart starts it. A work that continues \
from another one runs after it in the same round. Leave the machine alone while it measures.";

#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    /// Works to measure; without any, all of them
    #[arg(value_enum, value_name = "WORK")]
    works: Vec<Work>,
    /// How often each work is measured; the median is shown
    #[arg(long, value_name = "N", default_value = "3")]
    rounds: NonZeroU32,
    /// How long `idle` is measured, before it is scaled to 10 minutes; periodic reconciles need 330 and more
    #[arg(long, value_name = "SECONDS", default_value = "60")]
    idle_seconds: NonZeroU32,
    /// How many provisioners of a burst run a daemon
    #[arg(long, value_name = "N", default_value = "2")]
    daemons: u32,
    /// Print every round as JSON instead of tables
    #[arg(long)]
    json: bool,
    /// Also print the time line of the object of median time of each burst, and what each kind of request costs
    #[arg(long)]
    timeline: bool,
    /// Measure this program instead of building it with the profile dist
    #[arg(long, value_name = "PATH")]
    binary: Option<PathBuf>,
}

/// What has been measured so far.
#[derive(Default)]
struct Outcome {
    results: Results,
    /// The time line of each work in the last round.
    lines: BTreeMap<Work, TimeLine>,
}

impl Outcome {
    fn add(&mut self, work: Work, measured: Measured) {
        self.results.entry(work).or_default().push(measured.figures);
        self.lines.insert(work, measured.line);
    }
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let binary = match &args.binary {
        Some(binary) => binary.canonicalize().with_context(|| format!("find {}", binary.display()))?,
        None => build_binary()?,
    };
    with_whole_bed(None, Options { coderds: false }, async |bed| {
        let bench = Bench {
            bed,
            client: bed.info().client().await?,
            binary,
            idle: Duration::from_secs(args.idle_seconds.get().into()),
            daemons: args.daemons,
        };
        let mut outcome = Outcome::default();
        let measured = measure(&bench, args, &mut outcome).await;
        show(args, &bench, &outcome)?;
        measured.map(|()| ExitCode::SUCCESS)
    })
}

async fn measure(bench: &Bench<'_>, args: &Args, outcome: &mut Outcome) -> Result<()> {
    cluster::install(&bench.client).await?;
    for round in 1..=args.rounds.get() {
        say(&format!("round {round} of {}", args.rounds));
        for chain in Chain::ALL {
            let works = chain.chosen(&args.works);
            if let Some(first) = works.first() {
                let measured = measure_chain(bench, chain, &works, outcome).await;
                measured.with_context(|| format!("measure {} and what continues from it", first.name()))?;
            }
        }
        // An interrupted bench prints no result; what it has measured by then is here.
        say(&format!("after round {round}:\n{}", table::goals(&outcome.results)));
    }
    Ok(())
}

async fn measure_chain(bench: &Bench<'_>, chain: Chain, works: &[Work], outcome: &mut Outcome) -> Result<()> {
    match chain {
        Chain::Empty => planes::empty(bench, outcome).await,
        Chain::PlaneAndLicense => planes::plane_and_license(bench, outcome).await,
        Chain::OneProvisioner | Chain::FiftyProvisioners | Chain::Provisioners => {
            provisioners::run(bench, works, outcome).await
        }
        Chain::Groups => groups::run(bench, works, outcome).await,
        Chain::CommandLine => groups::run_command_line(bench, works, outcome).await,
        Chain::Mixed => mixed::run(bench, works, outcome).await,
    }
}

/// Prints what has been measured, also where a later work failed.
fn show(args: &Args, bench: &Bench<'_>, outcome: &Outcome) -> Result<()> {
    let Outcome { results, lines } = outcome;
    if args.json {
        return Ok(print(&table::json(results).to_string())?);
    }
    let cores = std::thread::available_parallelism().map_or(0, NonZeroUsize::get);
    let coder = &bench.bed.info().coder_version;
    print(&format!("{METHOD}\n\nMedians, rounds: {}, cores: {cores}, Coder {coder}.\n", args.rounds))?;
    if results.contains_key(&Work::Idle) {
        print(&idle_note(bench.idle))?;
    }
    print(&table::goals(results))?;
    print(&table::all(results))?;
    for (work, line) in lines.iter().filter(|_| args.timeline) {
        print(&line.text(&work.name()))?;
    }
    Ok(())
}

fn idle_note(idle: Duration) -> String {
    let seconds = idle.as_secs();
    let mut note = format!("`idle` was measured for {seconds} s and is scaled to 10 minutes.");
    if idle < WHOLE_INTERVAL {
        note += " That is shorter than the default interval of 5 minutes: periodic reconciles are not in it. Use `--idle-seconds 600` for all of it.";
    }
    note + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_that_is_too_short_for_an_interval_is_noted() {
        assert!(idle_note(Duration::from_mins(1)).contains("periodic reconciles are not in it"));
        assert!(!idle_note(Duration::from_mins(10)).contains("periodic"));
    }
}
