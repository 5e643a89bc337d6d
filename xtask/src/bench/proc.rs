//! CPU time and memory of a process, as `/proc` has them.

use std::fs;

use anyhow::{Context as _, Result};

/// Clock ticks a second in `/proc/PID/stat`: a constant of Linux' interface to programs.
const TICKS: f64 = 100.0;

/// The memory of a process, in megabytes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Memory {
    pub(super) resident: f64,
    /// The part of it that is no page of a file.
    pub(super) anonymous: f64,
}

/// Returns the CPU time that a process has used, in seconds.
pub(super) fn cpu_seconds(process: u32) -> Result<f64> {
    let path = format!("/proc/{process}/stat");
    let text = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    cpu_of(&text).with_context(|| format!("understand {path}"))
}

/// Returns the memory of a process.
pub(super) fn memory(process: u32) -> Result<Memory> {
    let path = format!("/proc/{process}/status");
    let text = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    memory_of(&text).with_context(|| format!("understand {path}"))
}

/// Returns the CPU time that all processes of the machine have used, in seconds.
pub(super) fn machine_cpu_seconds() -> Result<f64> {
    let text = fs::read_to_string("/proc/stat").context("read /proc/stat")?;
    machine_cpu_of(&text).context("understand /proc/stat")
}

fn machine_cpu_of(stat: &str) -> Option<f64> {
    let times = stat.lines().find_map(|it| it.strip_prefix("cpu "))?;
    let times: Vec<f64> = times.split_whitespace().filter_map(|it| it.parse().ok()).collect();
    // user, nice, system, idle, iowait, irq, softirq
    let [user, nice, system, _, _, irq, softirq, ..] = times.as_slice() else { return None };
    Some((user + nice + system + irq + softirq) / TICKS)
}

fn cpu_of(stat: &str) -> Option<f64> {
    // The name of the program is in brackets and may contain spaces.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut times = fields.split_whitespace().skip(11);
    let user: u32 = times.next()?.parse().ok()?;
    let system: u32 = times.next()?.parse().ok()?;
    Some((f64::from(user) + f64::from(system)) / TICKS)
}

fn memory_of(status: &str) -> Option<Memory> {
    Some(Memory { resident: megabytes_of(status, "VmRSS:")?, anonymous: megabytes_of(status, "RssAnon:")? })
}

fn megabytes_of(status: &str, field: &str) -> Option<f64> {
    let line = status.lines().find_map(|it| it.strip_prefix(field))?;
    let kibibytes: u32 = line.split_whitespace().next()?.parse().ok()?;
    Some(f64::from(kibibytes) * 1024.0 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_that_of_user_and_system() {
        let stat = "42 (a (strange) name) S 1 42 42 0 -1 4194560 9 0 0 0 150 50 7 8 20 0 9 0 100 1 2";
        assert_eq!(cpu_of(stat), Some(2.0));
        assert_eq!(cpu_of("42 (short) S"), None);
    }

    #[test]
    fn cpu_time_of_the_machine_has_no_idle_time() {
        let stat = "cpu  100 200 300 99999 9999 50 50 0 0 0\ncpu0 1 2 3\n";
        assert_eq!(machine_cpu_of(stat), Some(7.0));
        assert_eq!(machine_cpu_of("intr 1"), None);
    }

    #[test]
    fn memory_is_in_megabytes() {
        let status = "Name:\tx\nVmRSS:\t   20000 kB\nRssAnon:\t    1000 kB\n";
        assert_eq!(memory_of(status), Some(Memory { resident: 20.48, anonymous: 1.024 }));
        assert_eq!(memory_of("Name:\tx\n"), None);
    }

    #[test]
    fn this_process_has_cpu_time_and_memory() {
        assert!(cpu_seconds(std::process::id()).unwrap() >= 0.0);
        assert!(memory(std::process::id()).unwrap().resident > 0.0);
    }
}
