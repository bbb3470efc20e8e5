//! The stored responses of `/v1/responses`: reading, continuing, cancelling and deleting them.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hob_domain::{
    AppName, DocumentChange, DocumentKind, DocumentStore, StoreError, StoredDocument, Timestamp,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::error::ApiError;
use crate::event_log::EventLog;
use crate::response_items::full_items;

/// The longest chain of `previous_response_id`.
const MAX_CHAIN: usize = 1000;
/// How long the events of a response that has ended are kept, and how many bytes of them.
const MAX_FINISHED_AGE: Duration = Duration::from_secs(600);
const MAX_FINISHED_BYTES: usize = 16 << 20;
/// The largest conversation, as a multiple of the largest request body.
const MAX_CONVERSATION_BODIES: usize = 4;
/// The age at which a continued response is kept as if it were new: the age of its deletion, divided by this.
const REFRESH_AGE_DIVISOR: u32 = 4;
/// The digits of a response's identifier. An item's identifier begins with those of its response.
const ID_DIGITS: usize = 32;

/// The stored responses, and those that this process is making.
pub struct Responses {
    store: Arc<dyn DocumentStore>,
    limits: ResponseLimits,
    running: Mutex<HashMap<(AppName, String), RunningTokens>>,
    /// The events of responses that have ended in the background, the oldest first.
    finished: Mutex<VecDeque<FinishedLog>>,
}

/// The events of a response that has ended. A client that was cut off may still read them.
struct FinishedLog {
    key: (AppName, String),
    events: Arc<EventLog>,
    ended_at: Instant,
}

/// Limits of stored responses.
#[derive(Debug, Clone, Copy)]
pub struct ResponseLimits {
    /// Until this age, a response in progress may be running in another process. Zero if no other process uses the store.
    max_age_elsewhere: Duration,
    /// A response that is continued at this age is kept as if it were new.
    refresh_age: Duration,
    /// The largest conversation that is continued, in bytes of JSON.
    pub max_conversation_bytes: usize,
}

impl ResponseLimits {
    /// Derives the limits from the size of request bodies and from the age at which a response is deleted.
    pub fn new(
        max_body_bytes: usize,
        hard_ttl: Duration,
        max_age_elsewhere: Duration,
    ) -> ResponseLimits {
        ResponseLimits {
            max_age_elsewhere,
            refresh_age: hard_ttl / REFRESH_AGE_DIVISOR,
            max_conversation_bytes: max_body_bytes.saturating_mul(MAX_CONVERSATION_BODIES),
        }
    }
}

/// The tokens of a response that is being made.
#[derive(Clone, Default)]
struct RunningTokens {
    /// Ends it.
    cancel: CancellationToken,
    /// Says that it has ended and was stored.
    ended: CancellationToken,
    /// The events so far, if it is made in the background.
    events: Option<Arc<EventLog>>,
}

impl Responses {
    pub fn new(store: Arc<dyn DocumentStore>, limits: ResponseLimits) -> Responses {
        Responses { store, limits, running: Mutex::default(), finished: Mutex::default() }
    }

    /// Stores a response with the items of its request.
    pub(crate) async fn save(
        &self,
        app: &AppName,
        response: &Value,
        input: &[Value],
    ) -> Result<(), StoreError> {
        let stored = StoredDocument {
            app: app.clone(),
            kind: DocumentKind::Response,
            id: response["id"].as_str().unwrap_or_default().to_owned(),
            created_at: Timestamp::now(),
            input: Value::Array(input.to_vec()).to_string(),
            body: response.to_string(),
        };
        self.store.change_document(&DocumentChange::Save(stored)).await.map(drop)
    }

    /// Returns a response and the items of its request.
    pub(crate) async fn load(&self, app: &AppName, id: &str) -> Result<LoadedResponse, ApiError> {
        let stored = self
            .store
            .documents(app, DocumentKind::Response, Some(id))
            .await?
            .pop()
            .ok_or_else(|| no_response(id))?;
        let body = serde_json::from_str(&stored.body);
        let input = serde_json::from_str(&stored.input);
        let (Ok(body), Ok(Value::Array(input))) = (body, input) else {
            return Err(ApiError::Internal("a stored response is damaged".to_owned()));
        };
        let size = stored.body.len() + stored.input.len();
        Ok(LoadedResponse { body, input, created_at: stored.created_at, size })
    }

    /// Returns a response. One that nobody is making any more has failed.
    pub(crate) async fn current(
        &self,
        app: &AppName,
        id: &str,
    ) -> Result<LoadedResponse, ApiError> {
        let loaded = self.load(app, id).await?;
        let is_here = || self.running().contains_key(&(app.clone(), id.to_owned()));
        if !loaded.is_running()
            || is_here()
            || age(loaded.created_at) < self.limits.max_age_elsewhere
        {
            return Ok(loaded);
        }
        // It may have ended between the two reads.
        let mut loaded = self.load(app, id).await?;
        if loaded.is_running() {
            loaded.body["status"] = json!("failed");
            let text = "the response was abandoned, or the server was stopped while it was made";
            loaded.body["error"] = json!({"code": "server_error", "message": text});
            self.save(app, &loaded.body, &loaded.input).await?;
        }
        Ok(loaded)
    }

    /// Deletes a response. One that is being made is not stored when it ends.
    pub(crate) async fn delete(&self, app: &AppName, id: &str) -> Result<(), ApiError> {
        let key = (app.clone(), id.to_owned());
        self.finished().retain(|log| log.key != key);
        let tokens = self.running().remove(&key);
        if let Some(tokens) = tokens {
            tokens.cancel.cancel();
        }
        match self.remove(app, id).await? {
            true => Ok(()),
            false => Err(no_response(id)),
        }
    }

    async fn remove(&self, app: &AppName, id: &str) -> Result<bool, StoreError> {
        let change = DocumentChange::Delete {
            app: app.clone(),
            kind: DocumentKind::Response,
            id: id.to_owned(),
        };
        self.store.change_document(&change).await
    }

    /// Returns the items of the conversation that ends with a response, the oldest first. Its responses are kept as long
    /// as it is continued.
    pub(crate) async fn conversation(
        &self,
        app: &AppName,
        id: &str,
    ) -> Result<Vec<Value>, ApiError> {
        let wrong = |text: String| ApiError::bad_request(format!("previous_response_id: {text}"));
        let mut newest_first: Vec<Vec<Value>> = Vec::new();
        let mut bytes = 0;
        let mut next = Some(id.to_owned());
        while let Some(this) = next {
            if newest_first.len() >= MAX_CHAIN {
                return Err(wrong(format!("the conversation has more than {MAX_CHAIN} responses")));
            }
            let LoadedResponse { body, mut input, created_at, size } =
                match self.load(app, &this).await {
                    Err(ApiError::NotFound(_)) if this != id => {
                        let text =
                            format!("an earlier response ({this}) was deleted or has expired");
                        return Err(wrong(text));
                    }
                    loaded => loaded?,
                };
            if body["conversation"].is_object() {
                let text = format!(
                    "the response {this} belongs to a conversation; send `conversation` instead of `previous_response_id`"
                );
                return Err(wrong(text));
            }
            if !matches!(body["status"].as_str(), Some("completed" | "incomplete")) {
                return Err(wrong(format!("the response {this} is not complete")));
            }
            bytes += size;
            if bytes > self.limits.max_conversation_bytes {
                return Err(too_large(self.limits.max_conversation_bytes));
            }
            if age(created_at) > self.limits.refresh_age {
                self.save(app, &body, &input).await?;
            }
            input.extend(body["output"].as_array().cloned().unwrap_or_default());
            newest_first.push(input);
            next = body["previous_response_id"].as_str().map(str::to_owned);
        }
        Ok(newest_first.into_iter().rev().flatten().collect())
    }

    /// Puts the items in place of references to them.
    pub(crate) async fn resolve(&self, app: &AppName, items: &mut [Value]) -> Result<(), ApiError> {
        let mut loaded: HashMap<String, Vec<Value>> = HashMap::new();
        let mut bytes = 0;
        for (index, item) in items.iter_mut().enumerate() {
            let is_bare =
                item["type"].is_null() && item["role"].is_null() && item["id"].is_string();
            if item["type"] != "item_reference" && !is_bare {
                continue;
            }
            let id = item["id"].as_str().unwrap_or_default().to_owned();
            let unknown = || {
                ApiError::bad_request(format!(
                    "input[{index}].id: no stored response has the item {id:?}"
                ))
            };
            let digits = id.split_once('_').and_then(|(_, digits)| digits.get(..ID_DIGITS));
            let response = format!("resp_{}", digits.ok_or_else(unknown)?);
            if !loaded.contains_key(&response) {
                let found = self.load(app, &response).await.map_err(|error| match error {
                    ApiError::NotFound(_) => unknown(),
                    error => error,
                })?;
                bytes += found.size;
                let mut known = found.input_items();
                known.extend(found.body["output"].as_array().cloned().unwrap_or_default());
                loaded.insert(response.clone(), known);
            }
            let found = loaded[&response].iter().find(|known| known["id"] == *id);
            let found = found.ok_or_else(unknown)?;
            bytes += found.to_string().len();
            if bytes > self.limits.max_conversation_bytes {
                return Err(too_large(self.limits.max_conversation_bytes));
            }
            *item = found.clone();
        }
        Ok(())
    }

    /// Notes that a response is being made. One in the background has a log of its events.
    pub(crate) fn begin(self: &Arc<Self>, app: &AppName, id: &str, is_background: bool) -> Running {
        let events = is_background.then(Arc::default);
        let tokens = RunningTokens { events, ..RunningTokens::default() };
        let key = (app.clone(), id.to_owned());
        self.running().insert(key.clone(), tokens.clone());
        Running { responses: self.clone(), key, tokens }
    }

    /// Returns the events of a response that this process makes, or has made not long ago, in the background.
    pub(crate) fn events(&self, app: &AppName, id: &str) -> Option<Arc<EventLog>> {
        let key = (app.clone(), id.to_owned());
        if let Some(tokens) = self.running().get(&key) {
            return tokens.events.clone();
        }
        let finished = self.finished();
        finished.iter().find(|log| log.key == key).map(|log| log.events.clone())
    }

    fn finished(&self) -> MutexGuard<'_, VecDeque<FinishedLog>> {
        let mut finished = self.finished.lock().unwrap_or_else(PoisonError::into_inner);
        while finished.front().is_some_and(|log| log.ended_at.elapsed() > MAX_FINISHED_AGE) {
            finished.pop_front();
        }
        finished
    }

    /// Keeps the events of a response that has ended for a while.
    fn keep_events(&self, key: (AppName, String), events: Arc<EventLog>) {
        let mut finished = self.finished();
        finished.push_back(FinishedLog { key, events, ended_at: Instant::now() });
        let mut bytes: usize = finished.iter().map(|log| log.events.bytes()).sum();
        while bytes > MAX_FINISHED_BYTES {
            bytes -= finished.pop_front().map_or(bytes, |log| log.events.bytes());
        }
    }

    /// Cancels a response that runs in the background of this process, and waits for its end. Returns whether there is
    /// one.
    pub(crate) async fn cancel(&self, app: &AppName, id: &str) -> bool {
        let tokens = self.running().get(&(app.clone(), id.to_owned())).cloned();
        let Some(tokens) = tokens else { return false };
        tokens.cancel.cancel();
        tokens.ended.cancelled().await;
        true
    }

    fn running(&self) -> MutexGuard<'_, HashMap<(AppName, String), RunningTokens>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A response that is being made, until this is dropped.
pub(crate) struct Running {
    responses: Arc<Responses>,
    key: (AppName, String),
    tokens: RunningTokens,
}

impl Running {
    /// Waits until the response is cancelled or deleted.
    pub async fn cancelled(&self) {
        self.tokens.cancel.cancelled().await;
    }

    /// Returns the events, if the response is made in the background.
    pub fn events(&self) -> Option<Arc<EventLog>> {
        self.tokens.events.clone()
    }

    /// Stores the response, unless it was deleted.
    pub async fn save(&self, response: &Value, input: &[Value]) -> Result<(), StoreError> {
        let (app, id) = &self.key;
        if self.is_deleted() {
            return Ok(());
        }
        self.responses.save(app, response, input).await?;
        // It may have been deleted in this moment.
        if self.is_deleted() {
            self.responses.remove(app, id).await?;
        }
        Ok(())
    }

    fn is_deleted(&self) -> bool {
        !self.responses.running().contains_key(&self.key)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let was_deleted = self.responses.running().remove(&self.key).is_none();
        if let Some(events) = &self.tokens.events {
            events.end();
            if !was_deleted {
                self.responses.keep_events(self.key.clone(), events.clone());
            }
        }
        self.tokens.ended.cancel();
    }
}

pub(crate) struct LoadedResponse {
    pub body: Value,
    /// The items of its request.
    pub input: Vec<Value>,
    pub created_at: Timestamp,
    /// The size of both, in bytes of JSON.
    pub size: usize,
}

impl LoadedResponse {
    /// Returns whether it has not ended.
    pub fn is_running(&self) -> bool {
        matches!(self.body["status"].as_str(), Some("queued" | "in_progress"))
    }

    /// Returns the items of the request in their full form, each with an identifier of its own.
    pub fn input_items(&self) -> Vec<Value> {
        let digits = self.body["id"].as_str().and_then(|id| id.strip_prefix("resp_"));
        full_items(&self.input, digits.unwrap_or_default(), &mut HashSet::new())
    }
}

fn age(created_at: Timestamp) -> Duration {
    Timestamp::now().duration_since(created_at).unsigned_abs()
}

fn too_large(limit: usize) -> ApiError {
    ApiError::TooLarge(format!("the conversation is larger than {limit} bytes"))
}

fn no_response(id: &str) -> ApiError {
    ApiError::NotFound(format!("no response has the ID {id:?}"))
}
