//! The time that Hob went by last, kept over restarts. A machine may start with a wrong clock, and what is deleted by it is
//! lost.

use std::time::{Duration, Instant};

use hob_domain::Timestamp;
use hob_files::owned;
use hob_sessions::{ClockState, SteadyClock};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::home::Home;

/// The pause between two records.
const RECORD_INTERVAL: Duration = Duration::from_secs(60);

/// The time as it was recorded last.
#[derive(Debug, Serialize, Deserialize)]
struct ClockRecord {
    time: Timestamp,
    /// For how long the system's clock had been ahead of it.
    ahead_secs: Option<u64>,
    /// When it was recorded by a clock that nobody can set; `None` if the system has none.
    uptime: Option<Uptime>,
}

/// How long the machine had been running.
#[derive(Debug, Serialize, Deserialize)]
struct Uptime {
    /// The kernel's name for this run of the machine.
    boot: String,
    secs: u64,
}

impl Uptime {
    fn now() -> Option<Uptime> {
        let boot = owned::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let uptime = owned::read_to_string("/proc/uptime").ok()?;
        let secs = uptime.split('.').next()?.parse().ok()?;
        Some(Uptime { boot: boot.trim().to_owned(), secs })
    }

    /// Returns how much time has passed since; `None` if the machine was started again.
    fn elapsed(&self, now: Option<&Uptime>) -> Option<Duration> {
        let now = now.filter(|now| now.boot == self.boot)?;
        Some(Duration::from_secs(now.secs.checked_sub(self.secs)?))
    }
}

impl ClockRecord {
    fn read(home: &Home) -> Option<ClockRecord> {
        serde_json::from_slice(&owned::read(home.clock_record()).ok()?).ok()
    }

    /// Returns what is known of the time, given the uptime. Without one, no time has passed since.
    fn state(&self, uptime: Option<&Uptime>) -> ClockState {
        let passed = self.uptime.as_ref().and_then(|then| then.elapsed(uptime));
        let time = self.time.saturating_add(passed.unwrap_or_default()).unwrap_or(self.time);
        // A machine may never run for as long as a jump ahead has to last, so what it lasted before counts.
        let ahead = self.ahead_secs.map(Duration::from_secs);
        let ahead_for = ahead.map(|ahead| ahead.saturating_add(passed.unwrap_or_default()));
        ClockState { time, ahead_for }
    }

    fn write(home: &Home, clock: &mut SteadyClock) -> anyhow::Result<()> {
        let at = Instant::now();
        clock.now(Timestamp::now(), at);
        let ClockState { time, ahead_for } = clock.state(at);
        let ahead_secs = ahead_for.map(|ahead| ahead.as_secs());
        let record = ClockRecord { time, ahead_secs, uptime: Uptime::now() };
        Ok(hob_files::write_over(&home.clock_record(), &serde_json::to_vec(&record)?, 0o600)?)
    }
}

/// Returns the clock that goes on from the last record.
pub fn resume(home: &Home) -> SteadyClock {
    let at = Instant::now();
    match ClockRecord::read(home) {
        Some(record) => SteadyClock::resume(record.state(Uptime::now().as_ref()), at),
        None => SteadyClock::new(Timestamp::now(), at),
    }
}

/// Records the time until `stopping` is cancelled.
pub async fn keep(home: Home, mut clock: SteadyClock, stopping: CancellationToken) {
    loop {
        let home = home.clone();
        let record = tokio::task::spawn_blocking(move || {
            let recorded = ClockRecord::write(&home, &mut clock);
            (clock, recorded)
        });
        let Ok((returned, recorded)) = record.await else { return };
        clock = returned;
        if let Err(error) = recorded {
            tracing::debug!(%error, "cannot record the time");
        }
        if stopping.run_until_cancelled(tokio::time::sleep(RECORD_INTERVAL)).await.is_none() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_passes_while_hob_is_stopped_but_not_while_the_machine_is() {
        let uptime = |boot: &str, secs: u64| Some(Uptime { boot: boot.to_owned(), secs });
        let record = |ahead_secs: Option<u64>| ClockRecord {
            time: Timestamp::from_second(1_000_000).unwrap(),
            ahead_secs,
            uptime: uptime("a", 50),
        };
        let check = |ahead: Option<u64>, now: Option<Uptime>, time: i64, ahead_for: Option<u64>| {
            let state = record(ahead).state(now.as_ref());
            assert_eq!(state.time, Timestamp::from_second(time).unwrap());
            assert_eq!(state.ahead_for, ahead_for.map(Duration::from_secs));
        };
        check(None, uptime("a", 80), 1_000_030, None);
        check(Some(7), uptime("a", 80), 1_000_030, Some(37));
        check(Some(7), uptime("b", 80), 1_000_000, Some(7));
        check(Some(7), uptime("a", 40), 1_000_000, Some(7));
        check(Some(7), None, 1_000_000, Some(7));
    }
}
