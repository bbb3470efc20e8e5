//! Storing the turns of conversations.

use hob_domain::StoreError;
use hob_domain::memory::{ImportMark, NewTurn, Principal, Stored};

use super::state::Engine;
use crate::capture::batch::CaptureBatch;

/// Turns that are masked, analysed and embedded, ready to be stored.
pub struct PreparedTurns(Vec<NewTurn>);

impl Engine {
    /// Stores the turns of one session, each once, and marks imports as done in the same
    /// transaction.
    pub async fn capture(
        &self,
        principal: &Principal,
        batch: CaptureBatch,
        marks: Vec<ImportMark>,
    ) -> Result<Stored, StoreError> {
        self.capture_all(principal, vec![batch], marks).await
    }

    /// Stores the turns of several sessions in one transaction.
    pub async fn capture_all(
        &self,
        principal: &Principal,
        batches: Vec<CaptureBatch>,
        marks: Vec<ImportMark>,
    ) -> Result<Stored, StoreError> {
        let _foreground = self.inner.model.enter_foreground();
        let prepared = self.prepare(batches).await?;
        self.store(principal, prepared, marks).await
    }

    /// Masks, analyses and embeds turns: the first half of a capture, which needs no store.
    pub async fn prepare(&self, batches: Vec<CaptureBatch>) -> Result<PreparedTurns, StoreError> {
        let engine = self.clone();
        let prepare = move || {
            let prepare = |batch| engine.inner.preparer.prepare(batch);
            PreparedTurns(batches.iter().flat_map(prepare).collect())
        };
        tokio::task::spawn_blocking(prepare)
            .await
            .map_err(|error| StoreError::Failed(error.to_string()))
    }

    /// Stores prepared turns: the second half of a capture.
    pub async fn store(
        &self,
        principal: &Principal,
        turns: PreparedTurns,
        marks: Vec<ImportMark>,
    ) -> Result<Stored, StoreError> {
        let _foreground = self.inner.model.enter_foreground();
        let stored = self.inner.store.store_turns(principal, turns.0, marks).await?;
        self.inner.model.notify_new_turns();
        Ok(stored)
    }

    /// Returns those of the given marks whose imports are done.
    pub async fn imported(&self, marks: Vec<ImportMark>) -> Result<Vec<ImportMark>, StoreError> {
        self.inner.store.imported(marks).await
    }
}
