//! Time limits that the contract promises, measured so that a busy machine cannot break them.

use std::fs;
use std::time::{Duration, Instant};

/// Measures elapsed time without the time in which some process waited for a processor or a disk.
///
/// A promise such as "a hook exits within 2 s" is about Hob, not about the machine. When other programs
/// use every processor or fill the disk's queue, a correct hook takes longer. The kernel counts that
/// waiting (pressure stall information), and [`Stopwatch::elapsed`] subtracts it. Without such a count
/// it is plain elapsed time.
///
/// Use it only where the limit is part of the contract. For everything else there is `wait_until`.
#[derive(Debug, Clone, Copy)]
pub struct Stopwatch {
    started: Instant,
    stalled: Duration,
}

impl Stopwatch {
    pub fn start() -> Stopwatch {
        Stopwatch { started: Instant::now(), stalled: stall() }
    }

    /// Returns the elapsed time without the time that the machine was short of processors or disk.
    pub fn elapsed(&self) -> Duration {
        let elapsed = self.started.elapsed();
        elapsed.saturating_sub(stall().saturating_sub(self.stalled))
    }

    /// Asserts that no more than `limit` has elapsed; `promise` is the contract's sentence.
    #[track_caller]
    pub fn assert_within(&self, limit: Duration, promise: &str) {
        let elapsed = self.elapsed();
        let wall = self.started.elapsed();
        assert!(elapsed < limit, "{promise}: took {elapsed:?} ({wall:?} on the wall clock)");
    }
}

/// Returns how long, since boot, at least one process was waiting for a processor or a disk.
fn stall() -> Duration {
    ["cpu", "io"].map(stall_of).into_iter().sum()
}

fn stall_of(resource: &str) -> Duration {
    let pressure = fs::read_to_string(format!("/proc/pressure/{resource}")).unwrap_or_default();
    let total = pressure.lines().find_map(|line| {
        let fields = line.strip_prefix("some ")?;
        fields.split(' ').find_map(|field| field.strip_prefix("total=")?.parse().ok())
    });
    Duration::from_micros(total.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stopwatch_never_shows_more_than_the_wall_clock() {
        let started = Instant::now();
        let stopwatch = Stopwatch::start();
        std::thread::sleep(Duration::from_millis(20));
        assert!(stopwatch.elapsed() <= started.elapsed());
    }
}
