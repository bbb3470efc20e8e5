//! The stored batches of `/v1/messages/batches`, and which apps' batches this process works on.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hob_domain::{AppName, DocumentChange, DocumentKind, DocumentStore, StoredDocument, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::agent_catalog::now_in_ledger;
use crate::error::ApiError;

/// The most batches that an app may keep.
const MAX_BATCHES: usize = 100;
/// The most bytes that the batches of an app may have together when one is added. A list reads all of them.
const MAX_TOTAL_BYTES: usize = 32 << 20;
/// How long a batch may take.
const MAX_AGE: Duration = Duration::from_secs(24 * 3600);
/// The longest time that a batch must be unchanged before another process may continue it.
const MAX_IDLE_ELSEWHERE: Duration = Duration::from_secs(120);

/// The stored batches.
pub struct MessageBatches {
    store: Arc<dyn DocumentStore>,
    /// How long a batch must be unchanged before another process may continue it. Zero if no other process uses the store.
    max_idle_elsewhere: Duration,
    /// The apps whose batches this process works on.
    workers: Mutex<HashMap<AppName, Worker>>,
}

/// The work on an app's batches.
#[derive(Default)]
struct Worker {
    /// Cancelled when the app is removed.
    end: CancellationToken,
    /// The batch that is being worked on, and the token that cancels it.
    batch: Option<(String, CancellationToken)>,
}

/// A batch: requests, and the results of the first of them.
#[derive(Debug, Clone)]
pub(crate) struct MessageBatch {
    pub id: String,
    pub created_at: Timestamp,
    pub state: BatchState,
    /// The requests as JSON.
    requests: String,
    /// The state as it is stored.
    stored: String,
}

/// A request of a batch.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BatchRequest {
    /// The caller's name for the request.
    pub custom_id: String,
    pub params: Value,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct BatchState {
    pub request_count: usize,
    pub changed_at: Timestamp,
    pub cancel_initiated_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    /// Results in the order of the requests.
    pub results: Vec<Value>,
}

/// The right to work on an app's batches in this process. Dropping it lets others do it.
pub(crate) struct BatchWork {
    batches: Arc<MessageBatches>,
    app: AppName,
    /// Cancelled when the app is removed.
    pub end: CancellationToken,
}

impl MessageBatch {
    pub fn expires_at(&self) -> Timestamp {
        self.created_at.saturating_add(MAX_AGE).unwrap_or(Timestamp::MAX)
    }

    pub fn has_ended(&self) -> bool {
        self.state.ended_at.is_some()
    }

    pub fn requests(&self) -> Result<Vec<BatchRequest>, ApiError> {
        serde_json::from_str(&self.requests).map_err(|_| damaged())
    }

    /// Takes over that the caller has cancelled the stored batch, so that the state can replace it. Returns `false` if
    /// another process has changed the batch.
    pub fn adopt(&mut self, stored: MessageBatch) -> bool {
        // A cancel does not change the time. Nor does a change whose answer was lost.
        let old: Option<BatchState> = serde_json::from_str(&self.stored).ok();
        let is_known = old.is_some_and(|old| old.changed_at == stored.state.changed_at)
            || stored.state.changed_at == self.state.changed_at;
        if !is_known || stored.has_ended() {
            return false;
        }
        self.state.cancel_initiated_at = stored.state.cancel_initiated_at;
        self.stored = stored.stored;
        true
    }
}

impl MessageBatches {
    /// Takes the age until which another process may be working on a batch; zero if no other process uses the store.
    pub fn new(store: Arc<dyn DocumentStore>, max_age_elsewhere: Duration) -> MessageBatches {
        let max_idle_elsewhere = max_age_elsewhere.min(MAX_IDLE_ELSEWHERE);
        MessageBatches { store, max_idle_elsewhere, workers: Mutex::default() }
    }

    /// Returns how often a batch must be stored so that no other process continues it; nothing if there is none.
    pub(crate) fn heartbeat(&self) -> Option<Duration> {
        (!self.max_idle_elsewhere.is_zero()).then(|| self.max_idle_elsewhere / 4)
    }

    /// Stores a new batch.
    pub(crate) async fn create(
        &self,
        app: &AppName,
        requests: &[BatchRequest],
    ) -> Result<MessageBatch, ApiError> {
        let state = BatchState {
            request_count: requests.len(),
            // Nobody works on it yet.
            changed_at: Timestamp::UNIX_EPOCH,
            cancel_initiated_at: None,
            ended_at: None,
            results: Vec::new(),
        };
        let id = format!("msgbatch_{}", Uuid::new_v4().simple());
        let (stored, requests) = (text(&state)?, text(&requests)?);
        let batch = MessageBatch { id, created_at: now_in_ledger(), requests, state, stored };
        let all = self.store.documents(app, DocumentKind::MessageBatch, None).await?;
        let bytes: usize = all.iter().map(|one| one.input.len() + one.body.len()).sum();
        if all.len() >= MAX_BATCHES || bytes + batch.requests.len() > MAX_TOTAL_BYTES {
            let message = format!(
                "an app may keep {MAX_BATCHES} batches and {MAX_TOTAL_BYTES} bytes of them; delete one first"
            );
            return Err(ApiError::bad_request(message));
        }
        self.store.change_document(&DocumentChange::Save(document(app, &batch))).await?;
        Ok(batch)
    }

    /// Stores the state of a batch. Returns `false` if the batch was changed or deleted since it was read.
    pub(crate) async fn save(
        &self,
        app: &AppName,
        batch: &mut MessageBatch,
    ) -> Result<bool, ApiError> {
        let state = text(&batch.state)?;
        let new = MessageBatch { stored: state.clone(), ..batch.clone() };
        let expected_body = batch.stored.clone();
        let change = DocumentChange::Replace { document: document(app, &new), expected_body };
        let is_saved = self.store.change_document(&change).await?;
        if is_saved {
            batch.stored = state;
        }
        Ok(is_saved)
    }

    pub(crate) async fn find(&self, app: &AppName, id: &str) -> Result<MessageBatch, ApiError> {
        let found = self.store.documents(app, DocumentKind::MessageBatch, Some(id)).await?.pop();
        batch(found.ok_or_else(|| ApiError::NotFound(format!("no batch {id:?}")))?)
    }

    /// Returns the batches of an app, oldest first.
    pub(crate) async fn list(&self, app: &AppName) -> Result<Vec<MessageBatch>, ApiError> {
        let all = self.store.documents(app, DocumentKind::MessageBatch, None).await?;
        all.into_iter().map(batch).collect()
    }

    /// Returns the oldest batch that has not ended and that no other process works on.
    pub(crate) async fn next(&self, app: &AppName) -> Result<Option<MessageBatch>, ApiError> {
        let is_idle = |batch: &MessageBatch| {
            let idle = Timestamp::now().duration_since(batch.state.changed_at);
            idle.unsigned_abs() >= self.max_idle_elsewhere
        };
        let all = self.list(app).await?;
        Ok(all.into_iter().find(|batch| !batch.has_ended() && is_idle(batch)))
    }

    pub(crate) async fn delete(&self, app: &AppName, id: &str) -> Result<(), ApiError> {
        let kind = DocumentKind::MessageBatch;
        let change = DocumentChange::Delete { app: app.clone(), kind, id: id.to_owned() };
        self.store.change_document(&change).await?;
        Ok(())
    }

    /// Begins the work on an app's batches; nothing if this process does it already.
    pub(crate) fn begin_work(self: &Arc<Self>, app: &AppName) -> Option<BatchWork> {
        let mut workers = self.workers();
        if workers.contains_key(app) {
            return None;
        }
        let worker = Worker::default();
        let end = worker.end.clone();
        workers.insert(app.clone(), worker);
        Some(BatchWork { batches: self.clone(), app: app.clone(), end })
    }

    /// Ends the request of a batch that is running, if this process works on it.
    pub(crate) fn cancel(&self, app: &AppName, id: &str) {
        let workers = self.workers();
        let batch = workers.get(app).and_then(|worker| worker.batch.as_ref());
        if let Some((_, token)) = batch.filter(|(batch, _)| batch == id) {
            token.cancel();
        }
    }

    /// Ends the work for an app that is removed.
    pub(crate) fn forget_app(&self, app: &AppName) {
        if let Some(worker) = self.workers().get(app) {
            worker.end.cancel();
        }
    }

    fn workers(&self) -> MutexGuard<'_, HashMap<AppName, Worker>> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BatchWork {
    /// Says which batch is worked on. The token is cancelled when its caller cancels it.
    pub(crate) fn begin_batch(&self, id: &str) -> CancellationToken {
        let token = CancellationToken::new();
        if let Some(worker) = self.batches.workers().get_mut(&self.app) {
            worker.batch = Some((id.to_owned(), token.clone()));
        }
        token
    }
}

impl Drop for BatchWork {
    fn drop(&mut self) {
        self.batches.workers().remove(&self.app);
    }
}

fn document(app: &AppName, batch: &MessageBatch) -> StoredDocument {
    StoredDocument {
        app: app.clone(),
        kind: DocumentKind::MessageBatch,
        id: batch.id.clone(),
        created_at: batch.created_at,
        input: batch.requests.clone(),
        body: batch.stored.clone(),
    }
}

fn text(value: &impl Serialize) -> Result<String, ApiError> {
    serde_json::to_string(value).map_err(|error| ApiError::Internal(error.to_string()))
}

fn batch(stored: StoredDocument) -> Result<MessageBatch, ApiError> {
    let state = serde_json::from_str(&stored.body).map_err(|_| damaged())?;
    let StoredDocument { id, created_at, input: requests, body, .. } = stored;
    Ok(MessageBatch { id, created_at, state, requests, stored: body })
}

fn damaged() -> ApiError {
    ApiError::Internal("a stored batch is damaged".to_owned())
}
