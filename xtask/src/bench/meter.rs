//! Counts what happens between two moments: requests, calls, CPU time; and reads the memory at the second.

use std::time::Duration;

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use tokio::time::{Instant, sleep};

use super::{
    audit::{AuditLog, Class, Request, count},
    figures::{Figures, Measure},
    fixture::Fixture,
    proc::{cpu_seconds, machine_cpu_seconds},
    timeline::TimeLine,
};
use crate::terminal::say;

/// How long no request may be seen before a work counts as over: what is sent behind is counted, too.
const QUIET: Duration = Duration::from_millis(1500);
/// The longest wait for that.
const LONGEST: Duration = Duration::from_mins(1);
const POLL: Duration = Duration::from_millis(250);
/// How many cores the quiet servers of a bed may need.
const BUSY: f64 = 0.3;

/// The CPU time that processes have used, in seconds.
#[derive(Debug, Clone, Copy)]
struct Cpu {
    apiserver: f64,
    etcd: f64,
    coderd: f64,
}

/// A measurement that has begun.
pub(super) struct Meter {
    began: Timestamp,
    log: AuditLog,
    requests: Vec<Request>,
    calls: usize,
    received: u64,
    cpu: Cpu,
    /// The operator that ran at the beginning, and its CPU time.
    operator: Option<(u32, f64)>,
    /// The cores that were busy before.
    busy_cores: f64,
}

/// What was measured.
pub(super) struct Measured {
    pub(super) figures: Figures,
    pub(super) line: TimeLine,
}

impl Meter {
    /// Waits until the operator is quiet, and begins.
    pub(super) async fn start(fixture: &Fixture<'_>) -> Result<Self> {
        let mut meter = Self::at_once(fixture)?;
        meter.settle(fixture).await?;
        let settled = Instant::now();
        let before = machine_cpu_seconds()?;
        sleep(QUIET).await;
        let busy_cores = (machine_cpu_seconds()? - before) / settled.elapsed().as_secs_f64();
        if busy_cores > BUSY {
            say(&format!("other programs keep {busy_cores:.1} cores busy: the seconds will be too many"));
        }
        Ok(Self { busy_cores, ..Self::at_once(fixture)? })
    }

    fn at_once(fixture: &Fixture<'_>) -> Result<Self> {
        let log = AuditLog::at_end(&fixture.bench.bed.info().audit_log, &fixture.account.user)?;
        let operator = fixture.operator.as_ref().map(|it| cpu_seconds(it.id).map(|cpu| (it.id, cpu)));
        Ok(Self {
            began: Timestamp::now(),
            log,
            requests: Vec::new(),
            calls: fixture.calls.count(),
            received: fixture.calls.received(),
            cpu: cpu_of(fixture)?,
            operator: operator.transpose()?,
            busy_cores: 0.0,
        })
    }

    /// Ends the measurement of a work that took so many seconds, once the operator is quiet.
    pub(super) async fn stop(mut self, fixture: &Fixture<'_>, seconds: f64) -> Result<Measured> {
        self.settle(fixture).await?;
        self.stop_at_once(fixture, seconds)
    }

    /// Ends the measurement now.
    pub(super) fn stop_at_once(mut self, fixture: &Fixture<'_>, seconds: f64) -> Result<Measured> {
        self.requests.extend(self.log.read()?);
        let calls = fixture.calls.since(self.calls);
        let mut figures = Figures::default();
        figures.set(Measure::Seconds, seconds);
        figures.set(Measure::BusyCores, self.busy_cores);
        set_counts(&mut figures, &self.requests);
        figures.set(Measure::Calls, number(calls.len()));
        let received = fixture.calls.received().saturating_sub(self.received);
        figures
            .set(Measure::CallMegabytes, f64::from(u32::try_from(received / 1000).unwrap_or(u32::MAX)) / 1e3);
        self.set_cpu(&mut figures, fixture)?;
        if let Some(operator) = &fixture.operator {
            let memory = operator.memory()?;
            figures.set(Measure::ResidentMegabytes, memory.resident);
            figures.set(Measure::AnonymousMegabytes, memory.anonymous);
        }
        let line = TimeLine { began: self.began, arrivals: Vec::new(), requests: self.requests, calls };
        Ok(Measured { figures, line })
    }

    fn set_cpu(&self, figures: &mut Figures, fixture: &Fixture<'_>) -> Result<()> {
        let Cpu { apiserver, etcd, coderd } = cpu_of(fixture)?;
        let before = self.cpu;
        figures.set(Measure::ApiServerCpu, apiserver - before.apiserver);
        figures.set(Measure::EtcdCpu, etcd - before.etcd);
        figures.set(Measure::CoderdCpu, coderd - before.coderd);
        let servers = [apiserver - before.apiserver, etcd - before.etcd, coderd - before.coderd];
        figures.set(Measure::ServersCpu, servers.iter().sum());
        if let Some(operator) = &fixture.operator {
            let before = self.operator.filter(|(id, _)| *id == operator.id).map_or(0.0, |(_, cpu)| cpu);
            figures.set(Measure::OperatorCpu, cpu_seconds(operator.id)? - before);
        }
        Ok(())
    }

    /// Waits until the operator sends nothing but renewals of its Lease.
    async fn settle(&mut self, fixture: &Fixture<'_>) -> Result<()> {
        let began = Instant::now();
        let mut last_seen = began;
        let mut calls = fixture.calls.count();
        while last_seen.elapsed() < QUIET {
            if began.elapsed() > LONGEST {
                say(&format!("the operator is not quiet after {} s: measuring anyway", LONGEST.as_secs()));
                break;
            }
            sleep(POLL).await;
            let requests = self.log.read()?;
            let is_work = |it: &Request| !matches!(it.class(), Class::LeaseWrite | Class::Other);
            if requests.iter().any(is_work) || fixture.calls.count() != calls {
                last_seen = Instant::now();
                calls = fixture.calls.count();
            }
            self.requests.extend(requests);
        }
        Ok(())
    }
}

fn set_counts(figures: &mut Figures, requests: &[Request]) {
    let counts = count(requests);
    figures.set(Measure::Writes, counts.writes.into());
    figures.set(Measure::Events, counts.events.into());
    figures.set(Measure::Reads, counts.reads.into());
    figures.set(Measure::FurtherReads, counts.further_reads.into());
    figures.set(Measure::Watches, counts.watches.into());
    figures.set(Measure::FurtherWatches, counts.further_watches.into());
    figures.set(Measure::LeaseWrites, counts.lease_writes.into());
}

fn cpu_of(fixture: &Fixture<'_>) -> Result<Cpu> {
    let kubernetes = fixture.bench.bed.kubernetes();
    let of =
        |process: Option<u32>, name: &str| cpu_seconds(process.with_context(|| format!("{name} has ended"))?);
    Ok(Cpu {
        apiserver: of(kubernetes.apiserver_process_id(), "kube-apiserver")?,
        etcd: of(kubernetes.etcd_process_id(), "etcd")?,
        coderd: of(fixture.coderd.process_id(), "coderd")?,
    })
}

/// Returns a count as a figure.
fn number(count: usize) -> f64 {
    u32::try_from(count).unwrap_or(u32::MAX).into()
}
