//! Reading the memory without searching it.

use hob_domain::StoreError;
use hob_domain::memory::{
    Counts, Facets, MaintenanceEvent, PageFilter, Principal, Record, RecordId, TurnSelection,
    Window,
};

use super::state::Engine;

impl Engine {
    pub async fn record(
        &self,
        principal: &Principal,
        id: &RecordId,
    ) -> Result<Option<Record>, StoreError> {
        let selection = TurnSelection::Id(id.clone());
        Ok(self.inner.store.turns(principal, selection).await?.pop())
    }

    /// Returns turns in the order of the conversation.
    pub async fn timeline(
        &self,
        principal: &Principal,
        window: &Window,
    ) -> Result<Vec<Record>, StoreError> {
        self.inner.store.turns(principal, TurnSelection::Window(window.clone())).await
    }

    pub async fn counts(&self, principal: &Principal) -> Result<Counts, StoreError> {
        self.inner.store.counts(principal).await
    }

    pub async fn facets(&self, principal: &Principal) -> Result<Facets, StoreError> {
        self.inner.store.facets(principal).await
    }

    pub async fn projects_named(
        &self,
        principal: &Principal,
        name: &str,
    ) -> Result<Vec<String>, StoreError> {
        self.inner.store.projects_named(principal, name).await
    }

    /// Returns the records after a sequence number, in the order they were stored.
    pub async fn page(
        &self,
        principal: &Principal,
        after: i64,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        let filter = PageFilter::Of { principal: principal.clone(), after };
        self.inner.store.page(&filter, limit).await
    }

    /// Records something that the owner should know about the memory.
    pub async fn note_event(&self, event: MaintenanceEvent) -> Result<(), StoreError> {
        self.inner.store.note_event(event).await
    }

    /// Returns the latest maintenance events.
    pub async fn events(&self, limit: usize) -> Result<Vec<MaintenanceEvent>, StoreError> {
        self.inner.store.events(limit).await
    }
}
