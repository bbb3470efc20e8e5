//! Forgetting: turns are hidden at once, can be restored for a while, and are erased then.

use std::time::Duration;

use hob_domain::memory::{Forget, Forgetting, PageFilter, Principal, RecordId};
use hob_domain::{StoreError, Timestamp};
use serde_json::{Value, json};

use super::state::Engine;

impl Engine {
    /// Hides a record or a session at once. They are erased after [`Engine::undo_period`]. Returns
    /// the number of hidden records.
    pub async fn forget(
        &self,
        principal: &Principal,
        turns: &Forget,
        now: Timestamp,
    ) -> Result<usize, StoreError> {
        let count = self.inner.store.forget(Forgetting::hide(principal, turns, now)).await?;
        if self.inner.undo_period.is_zero() {
            self.erase_forgotten(now).await?;
        }
        Ok(count)
    }

    /// Restores a record or a session that was forgotten less than [`Engine::undo_period`] ago.
    /// Returns the number of restored records.
    pub async fn undo_forget(
        &self,
        principal: &Principal,
        turns: &Forget,
        now: Timestamp,
    ) -> Result<usize, StoreError> {
        let hidden_since = now.saturating_sub(self.undo_period()).unwrap_or(now);
        let step = Forgetting::restore(principal, turns, hidden_since);
        let count = self.inner.store.forget(step).await?;
        // Restored turns have no terms yet. If this fails, the next start of the server does it: the turns are restored.
        if count > 0
            && let Err(error) = self.rescan_all().await
        {
            tracing::error!(%error, "cannot index restored turns");
        }
        self.inner.model.notify_new_turns();
        Ok(count)
    }

    /// Returns the ids and the sessions of forgotten turns that are not erased yet.
    pub async fn forgotten(
        &self,
        principal: &Principal,
    ) -> Result<Vec<(RecordId, String)>, StoreError> {
        let filter = PageFilter::Hidden { principal: principal.clone() };
        let hidden = self.inner.store.page(&filter, usize::MAX).await?;
        Ok(hidden.into_iter().map(|record| (record.id, record.session)).collect())
    }

    /// Masks and indexes all turns that older rules have masked, and those without terms.
    async fn rescan_all(&self) -> Result<(), StoreError> {
        let mut skipped = Vec::new();
        while self.rescan(&mut skipped).await? > 0 {}
        Ok(())
    }

    /// Erases what was forgotten [`Engine::undo_period`] ago or earlier. Returns the number of
    /// records.
    pub async fn erase_forgotten(&self, now: Timestamp) -> Result<usize, StoreError> {
        // One moment later than the last that can be restored.
        let hidden_before = match self.undo_period() {
            period if period.is_zero() => now + Duration::from_micros(1),
            period => now.saturating_sub(period).unwrap_or(now),
        };
        self.inner.store.forget(Forgetting::Erase { hidden_before }).await
    }

    /// Returns the answer to a request to forget or to restore: how many records, and until when they can be restored.
    pub fn forget_answer(&self, count: usize, is_undo: bool, now: Timestamp) -> Value {
        let can_undo = count > 0 && !is_undo && !self.undo_period().is_zero();
        let until = can_undo.then(|| now.saturating_add(self.undo_period()).ok()).flatten();
        // Rounded down to a second.
        let until = until.and_then(|until| Timestamp::from_second(until.as_second()).ok());
        json!({"count": count, "undo_until": until.map(|until| until.to_string())})
    }

    /// How long a forgotten record can be restored.
    pub fn undo_period(&self) -> Duration {
        self.inner.undo_period
    }

    /// Removes everything that belongs to a principal.
    pub async fn forget_principal(&self, principal: &Principal) -> Result<usize, StoreError> {
        self.inner.store.forget(Forgetting::RemovePrincipal(principal.clone())).await
    }
}
