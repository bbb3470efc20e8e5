//! The engine's shared state.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hob_domain::StoreError;
use hob_domain::memory::MemoryStore;
use tokio_util::sync::CancellationToken;

use crate::capture::prepare::Preparer;
use crate::capture::seal::OpeningKeys;
use crate::embed::model_embedder::{ModelEmbedder, ModelProgress};
use crate::indexer::TextIndexer;

/// The memory of one home. Clones share it.
#[derive(Clone)]
pub struct Engine {
    pub(super) inner: Arc<EngineState>,
}

pub(super) struct EngineState {
    pub(super) store: Arc<dyn MemoryStore>,
    pub(super) preparer: Preparer,
    pub(super) opening: OpeningKeys,
    pub(super) model: ModelEmbedder,
    pub(super) undo_period: Duration,
}

impl Engine {
    /// Returns the engine on a store. Forgotten records can be restored for `undo_period`.
    pub fn new(store: Arc<dyn MemoryStore>, opening: OpeningKeys, undo_period: Duration) -> Engine {
        let sealing = opening.sealing_key();
        let preparer = Preparer { indexer: TextIndexer::default(), sealing };
        let model = ModelEmbedder::default();
        Engine { inner: Arc::new(EngineState { store, preparer, opening, model, undo_period }) }
    }

    /// Loads the sentence model of a folder and embeds all turns with it in the background, until
    /// `stopping` is cancelled. If the model cannot be loaded, recall uses the built-in table
    /// alone.
    pub async fn run_model(&self, folder: PathBuf, stopping: CancellationToken) {
        self.inner.model.run(self.inner.store.as_ref(), folder, stopping).await;
    }

    /// Returns the progress of the sentence model; `None` if none is configured.
    pub async fn model_progress(&self) -> Result<Option<ModelProgress>, StoreError> {
        self.inner.model.progress(self.inner.store.as_ref()).await
    }

    pub fn opening_keys(&self) -> &OpeningKeys {
        &self.inner.opening
    }
}
