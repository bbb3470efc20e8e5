//! Background maintenance of the memory: masks secrets in old turns, then embeds all turns with the
//! sentence model.

use std::path::PathBuf;
use std::time::Duration;

use hob_memory::Engine;
use tokio_util::sync::CancellationToken;

/// The pause between two steps, for other users of the store.
const STEP_PAUSE: Duration = Duration::from_millis(50);

/// Runs until everything is done, or until `stopping` is cancelled.
pub async fn run(engine: Engine, model: Option<PathBuf>, stopping: CancellationToken) {
    rescan(engine.clone(), stopping.clone()).await;
    if let Some(folder) = model {
        engine.run_model(folder, stopping).await;
    }
}

/// Masks secrets that earlier rules did not recognise, in small steps.
async fn rescan(engine: Engine, stopping: CancellationToken) {
    loop {
        tokio::select! {
            scanned = engine.rescan() => match scanned {
                Ok(0) => return,
                Ok(_) => tokio::time::sleep(STEP_PAUSE).await,
                Err(error) => {
                    tracing::error!(%error, "failed to scan old turns for secrets");
                    return;
                }
            },
            () = stopping.cancelled() => return,
        }
    }
}
