//! What is done to the memory in the background: old turns are scanned again, then all get the vectors of
//! the chosen model.

use std::path::PathBuf;
use std::time::Duration;

use hob_memory::Engine;
use tokio_util::sync::CancellationToken;

/// Goes on until there is nothing left to do, or until told to stop.
pub async fn run(engine: Engine, model: Option<PathBuf>, stopping: CancellationToken) {
    rescan(engine.clone(), stopping.clone()).await;
    if let Some(folder) = model {
        engine.upgrade(folder, stopping).await;
    }
}

/// Masks again, in small steps, what older rules have let through.
async fn rescan(engine: Engine, stopping: CancellationToken) {
    loop {
        tokio::select! {
            looked = engine.rescan() => match looked {
                Ok(0) => return,
                Ok(_) => tokio::time::sleep(Duration::from_millis(50)).await,
                Err(error) => {
                    tracing::error!(%error, "old turns could not be scanned for secrets");
                    return;
                }
            },
            () = stopping.cancelled() => return,
        }
    }
}
