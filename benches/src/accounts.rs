//! What a process used: CPU by getrusage, memory as the kernel counts it.

use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage, setrlimit};
use nix::sys::time::TimeValLike;
use serde::{Deserialize, Serialize};

use crate::failure::{Failure, at};

/// What this process used up to now.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Used {
    /// CPU, user and system, all threads, in microseconds.
    pub cpu_us: f64,
    /// Memory that is resident now, in KiB.
    pub rss_kib: f64,
}

/// Reads this process's own account.
///
/// # Errors
/// The kernel does not tell.
pub fn used() -> Result<Used, Failure> {
    let usage = getrusage(UsageWho::RUSAGE_SELF).map_err(at("read this process's CPU"))?;
    let cpu_us = (usage.user_time().num_microseconds() + usage.system_time().num_microseconds()) as f64;
    Ok(Used { cpu_us, rss_kib: rss_kib("self")? })
}

/// Resident memory of a process (`self` or its id), in KiB.
///
/// # Errors
/// It is gone.
pub fn rss_kib(process: &str) -> Result<f64, Failure> {
    status_kib(process, "VmRSS:")
}

/// A line of `/proc/PID/status` in KiB.
fn status_kib(process: &str, key: &str) -> Result<f64, Failure> {
    let text = std::fs::read_to_string(format!("/proc/{process}/status")).map_err(at("read a process's memory"))?;
    let line = text.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse().map_err(at("read a process's memory"))
}

/// Lets this process open up to `wanted` files, or as many as it may; answers how many.
///
/// # Errors
/// The kernel refuses.
pub fn raise_descriptors(wanted: u64) -> Result<u64, Failure> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).map_err(at("read the limit of descriptors"))?;
    let raised = wanted.min(hard).max(soft);
    if raised > soft {
        setrlimit(Resource::RLIMIT_NOFILE, raised, hard).map_err(at("raise the limit of descriptors"))?;
    }
    Ok(raised)
}

/// How many files a process may open here at most.
///
/// # Errors
/// The kernel does not tell.
pub fn most_descriptors() -> Result<u64, Failure> {
    Ok(getrlimit(Resource::RLIMIT_NOFILE).map_err(at("read the limit of descriptors"))?.1)
}

/// Wall time and CPU of this process between two points.
pub struct Span {
    started: Instant,
    cpu_us: f64,
}

/// What a span took.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Took {
    /// Wall time in seconds.
    pub wall_s: f64,
    /// CPU of the process in microseconds.
    pub cpu_us: f64,
}

impl Span {
    /// Begins now.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub fn start() -> Result<Self, Failure> {
        Ok(Self { cpu_us: used()?.cpu_us, started: Instant::now() })
    }

    /// Ends now.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub fn end(self) -> Result<Took, Failure> {
        Ok(Took { wall_s: self.started.elapsed().as_secs_f64(), cpu_us: used()?.cpu_us - self.cpu_us })
    }
}

/// The value below which `share` (0 to 1) of the sorted times lie.
pub fn quantile(sorted: &[Duration], share: f64) -> Duration {
    let last = sorted.len().saturating_sub(1);
    sorted.get((last as f64 * share).ceil() as usize).copied().unwrap_or_default()
}

/// CPU of the threads of another process that runs, in microseconds, as exactly as the scheduler counts it.
///
/// # Errors
/// It is gone.
pub fn cpu_us_of(process: u32) -> Result<f64, Failure> {
    let what = "read a process's CPU";
    let mut nanoseconds = 0.0;
    for thread in std::fs::read_dir(format!("/proc/{process}/task")).map_err(at(what))? {
        let text = std::fs::read_to_string(thread.map_err(at(what))?.path().join("schedstat")).map_err(at(what))?;
        let ran = text.split_whitespace().next().unwrap_or_default();
        nanoseconds += ran.parse::<f64>().map_err(at(what))?;
    }
    Ok(nanoseconds / 1e3)
}

/// CPU of all children that ended, in microseconds.
///
/// # Errors
/// The kernel does not tell.
pub fn children_cpu_us() -> Result<f64, Failure> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).map_err(at("read the children's CPU"))?;
    Ok((usage.user_time().num_microseconds() + usage.system_time().num_microseconds()) as f64)
}

/// The most memory that was resident at once in this process, in MiB.
///
/// # Errors
/// The kernel does not tell.
pub fn peak_mib() -> Result<f64, Failure> {
    Ok(status_kib("self", "VmHWM:")? / 1024.0)
}
