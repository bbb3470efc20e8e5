//! Whether the stores can be written, as `/readyz` reports it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;

/// How long a result counts. The probe is open to everyone, and a write costs.
const MAX_AGE: Duration = Duration::from_secs(10);
/// How long a write may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Writes into the stores of this server. Its calls block.
pub trait StoreProbe: Send + Sync {
    /// Fails with the reason in a few words, which contain no path.
    fn check(&self) -> Result<(), &'static str>;
}

/// The result of a write.
#[derive(Clone, Copy)]
struct ProbeResult {
    at: Instant,
    result: Result<(), &'static str>,
}

/// The latest result of a probe.
pub struct Readiness {
    /// `None` if the stores are not files.
    probe: Option<Arc<dyn StoreProbe>>,
    /// The probe that is running holds this lock, and leaves its result.
    latest: Arc<Mutex<Option<ProbeResult>>>,
}

impl Readiness {
    pub fn new(probe: Option<Arc<dyn StoreProbe>>) -> Readiness {
        Readiness { probe, latest: Arc::default() }
    }

    /// Returns why the stores cannot be written, if they cannot.
    pub(crate) async fn check(&self) -> Result<(), &'static str> {
        let Some(probe) = self.probe.clone() else { return Ok(()) };
        let latest = self.latest.clone();
        let check = async {
            let mut latest = latest.lock_owned().await;
            if let Some(ProbeResult { at, result }) = *latest
                && at.elapsed() < MAX_AGE
            {
                return result;
            }
            // It keeps the lock until the write ends, so that slow writes do not pile up.
            let write = tokio::task::spawn_blocking(move || {
                let result = probe.check();
                *latest = Some(ProbeResult { at: Instant::now(), result });
                result
            });
            write.await.unwrap_or(Err("the check failed; see the log"))
        };
        tokio::time::timeout(TIMEOUT, check).await.unwrap_or(Err("the disk takes too long"))
    }
}
