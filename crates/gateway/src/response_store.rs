//! The stored responses of `/v1/responses`: reading, continuing, cancelling and deleting them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hob_domain::{AppName, ResponseChange, ResponseStore, StoreError, StoredResponse, Timestamp};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::error::ApiError;

/// The longest chain of `previous_response_id`.
const MAX_CHAIN: usize = 1000;
/// The digits of a response's identifier. An item's identifier begins with those of its response.
const ID_DIGITS: usize = 32;

/// The stored responses, and those that run in the background of this process.
pub struct Responses {
    store: Arc<dyn ResponseStore>,
    /// Until this age, a response in progress may be running in another process.
    max_age_elsewhere: Duration,
    running: Mutex<HashMap<(AppName, String), CancellationToken>>,
}

impl Responses {
    /// Returns the responses of a store. If no other process uses it, `max_age_elsewhere` is zero.
    pub fn new(store: Arc<dyn ResponseStore>, max_age_elsewhere: Duration) -> Responses {
        Responses { store, max_age_elsewhere, running: Mutex::default() }
    }

    /// Stores a response with the items of its request.
    pub(crate) async fn save(
        &self,
        app: &AppName,
        response: &Value,
        input: &[Value],
    ) -> Result<(), StoreError> {
        let stored = StoredResponse {
            app: app.clone(),
            id: response["id"].as_str().unwrap_or_default().to_owned(),
            created_at: Timestamp::now(),
            input: Value::Array(input.to_vec()).to_string(),
            body: response.to_string(),
        };
        self.store.change_response(&ResponseChange::Save(stored)).await.map(drop)
    }

    /// Returns a response and the items of its request.
    pub(crate) async fn load(&self, app: &AppName, id: &str) -> Result<LoadedResponse, ApiError> {
        let stored = self.store.response(app, id).await?.ok_or_else(|| no_response(id))?;
        let body = serde_json::from_str(&stored.body);
        let input = serde_json::from_str(&stored.input);
        let (Ok(body), Ok(Value::Array(input))) = (body, input) else {
            return Err(ApiError::Internal("a stored response is damaged".to_owned()));
        };
        Ok(LoadedResponse { body, input, created_at: stored.created_at })
    }

    /// Returns a response. One that ran in the background of a process which has ended has failed.
    pub(crate) async fn current(
        &self,
        app: &AppName,
        id: &str,
    ) -> Result<LoadedResponse, ApiError> {
        let loaded = self.load(app, id).await?;
        let is_here = || self.running().contains_key(&(app.clone(), id.to_owned()));
        let age = Timestamp::now().duration_since(loaded.created_at).unsigned_abs();
        if !loaded.is_running() || is_here() || age < self.max_age_elsewhere {
            return Ok(loaded);
        }
        // It may have ended between the two looks.
        let mut loaded = self.load(app, id).await?;
        if loaded.is_running() {
            loaded.body["status"] = json!("failed");
            let text = "the server was stopped while the response was made";
            loaded.body["error"] = json!({"code": "server_error", "message": text});
            self.save(app, &loaded.body, &loaded.input).await?;
        }
        Ok(loaded)
    }

    /// Deletes a response.
    pub(crate) async fn delete(&self, app: &AppName, id: &str) -> Result<(), ApiError> {
        self.cancel(app, id);
        let change = ResponseChange::Delete { app: app.clone(), id: id.to_owned() };
        match self.store.change_response(&change).await? {
            true => Ok(()),
            false => Err(no_response(id)),
        }
    }

    /// Returns the items of the conversation that ends with a response, the oldest first.
    pub(crate) async fn conversation(
        &self,
        app: &AppName,
        id: &str,
    ) -> Result<Vec<Value>, ApiError> {
        let mut newest_first: Vec<Vec<Value>> = Vec::new();
        let mut next = Some(id.to_owned());
        while let Some(id) = next {
            if newest_first.len() >= MAX_CHAIN {
                let text =
                    format!("previous_response_id: the chain has more than {MAX_CHAIN} responses");
                return Err(ApiError::bad_request(text));
            }
            let LoadedResponse { body, mut input, .. } = self.load(app, &id).await?;
            if !matches!(body["status"].as_str(), Some("completed" | "incomplete")) {
                let text = format!("previous_response_id: the response {id} is not complete");
                return Err(ApiError::bad_request(text));
            }
            input.extend(body["output"].as_array().cloned().unwrap_or_default());
            newest_first.push(input);
            next = body["previous_response_id"].as_str().map(str::to_owned);
        }
        Ok(newest_first.into_iter().rev().flatten().collect())
    }

    /// Puts the items in place of references to them.
    pub(crate) async fn resolve(&self, app: &AppName, items: &mut [Value]) -> Result<(), ApiError> {
        for (index, item) in items.iter_mut().enumerate() {
            if item["type"] != "item_reference" {
                continue;
            }
            let id = item["id"].as_str().unwrap_or_default();
            let unknown = || {
                let text = format!("input[{index}].id: no stored response has the item {id:?}");
                ApiError::bad_request(text)
            };
            let digits = id.split_once('_').and_then(|(_, digits)| digits.get(..ID_DIGITS));
            let digits = digits.ok_or_else(unknown)?;
            let response =
                self.load(app, &format!("resp_{digits}")).await.map_err(|_| unknown())?;
            let output = response.body["output"].as_array().into_iter().flatten();
            let found = output.into_iter().find(|item| item["id"] == id);
            *item = found.ok_or_else(unknown)?.clone();
        }
        Ok(())
    }

    /// Notes that a response runs in the background. Returns the token that cancels it.
    pub(crate) fn begin(self: &Arc<Self>, app: &AppName, id: &str) -> Running {
        let cancel = CancellationToken::new();
        let key = (app.clone(), id.to_owned());
        self.running().insert(key.clone(), cancel.clone());
        Running { responses: self.clone(), key, cancel }
    }

    /// Cancels a response that runs in the background of this process. Returns whether there is one.
    pub(crate) fn cancel(&self, app: &AppName, id: &str) -> bool {
        let running = self.running();
        let found = running.get(&(app.clone(), id.to_owned()));
        found.inspect(|cancel| cancel.cancel()).is_some()
    }

    fn running(&self) -> MutexGuard<'_, HashMap<(AppName, String), CancellationToken>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A response that runs in the background, until this is dropped.
pub(crate) struct Running {
    responses: Arc<Responses>,
    key: (AppName, String),
    pub cancel: CancellationToken,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.responses.running().remove(&self.key);
    }
}

pub(crate) struct LoadedResponse {
    pub body: Value,
    /// The items of its request.
    pub input: Vec<Value>,
    pub created_at: Timestamp,
}

impl LoadedResponse {
    /// Returns whether it has not ended.
    pub fn is_running(&self) -> bool {
        matches!(self.body["status"].as_str(), Some("queued" | "in_progress"))
    }

    /// Returns the items of the request, each with an identifier.
    pub fn input_items(&self) -> Vec<Value> {
        let digits = self.body["id"].as_str().and_then(|id| id.strip_prefix("resp_"));
        let digits = digits.unwrap_or_default();
        let item = |(index, item): (usize, &Value)| {
            let mut item = item.clone();
            if item["id"].is_null() && item.is_object() {
                item["id"] = json!(format!("in_{digits}{index:04x}"));
            }
            if item["type"].is_null() && item.is_object() {
                item["type"] = json!("message");
            }
            item
        };
        self.input.iter().enumerate().map(item).collect()
    }
}

fn no_response(id: &str) -> ApiError {
    ApiError::NotFound(format!("no response has the ID {id:?}"))
}
