//! Waiting for something to become true, with one deadline and a word for what it is.

use std::time::{Duration, Instant};

/// Long enough for a loaded machine; nothing waits this long when all is well.
const DEADLINE: Duration = Duration::from_secs(30);

/// Asks again and again until there is an answer. Panics with `what` when there is none in time.
#[track_caller]
pub fn wait_until<T>(what: &str, mut answer: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(answer) = answer() {
            return answer;
        }
        assert!(start.elapsed() < DEADLINE, "waited {DEADLINE:?} in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
