//! Polling until a condition holds, with one deadline for all tests.

use std::fmt::Debug;
use std::time::{Duration, Instant};

/// Long enough for a busy machine. A test that passes never waits this long.
pub const DEADLINE: Duration = Duration::from_secs(60);

const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Polls `condition` until it returns `Some`. Panics with `what` after [`DEADLINE`].
#[track_caller]
pub fn wait_until<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(started.elapsed() < DEADLINE, "not within {DEADLINE:?}: {what}");
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Polls `condition` until it returns `Ok`. Panics with `what` and the last error after [`DEADLINE`].
#[track_caller]
pub fn wait_until_ok<T, E: Debug>(what: &str, mut condition: impl FnMut() -> Result<T, E>) -> T {
    let started = Instant::now();
    loop {
        match condition() {
            Ok(value) => return value,
            Err(error) => {
                assert!(started.elapsed() < DEADLINE, "not within {DEADLINE:?}: {what}: {error:?}");
            }
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}
