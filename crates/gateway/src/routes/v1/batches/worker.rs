//! The work on an app's batches: one request after another, in the order of their creation.
//!
//! After a restart, the work goes on when the app asks for a batch; a request that was running then runs again.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hob_domain::{App, AppFilter, Timestamp};
use hob_sessions::SteadyClock;
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::super::anthropic::{self, MessagesBody};
use super::super::dialect::{Dialect, Problem};
use super::super::reply::Reply;
use crate::error::ApiError;
use crate::message_batches::{BatchRequest, BatchWork, MessageBatch};
use crate::state::Gateway;

/// How often new results are stored.
const SAVE_INTERVAL: Duration = Duration::from_secs(5);
/// The shortest wait before a request without a free place is tried again.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);
/// The most bytes of results of a batch. Requests after them fail.
const MAX_RESULT_BYTES: usize = 16 << 20;

/// Works on an app's batches in the background, unless this process does it already.
pub(super) fn start(gateway: &Arc<Gateway>, app: App) {
    let Some(work) = gateway.batches.begin_work(&app.name) else { return };
    let task_gateway = gateway.clone();
    gateway.runtime.tasks.spawn(async move {
        let worker = BatchWorker { gateway: task_gateway, app, work };
        if let Err(error) = worker.run_all().await {
            tracing::error!(?error, app = %worker.app.name, "the work on a batch was interrupted");
        }
    });
}

struct BatchWorker {
    gateway: Arc<Gateway>,
    app: App,
    work: BatchWork,
}

/// When a batch was stored last.
struct LastSave {
    at: Instant,
    /// The results that were stored.
    results: usize,
    /// When there may be something to store.
    next_look: Instant,
}

impl LastSave {
    fn of(batch: &MessageBatch) -> LastSave {
        let at = Instant::now();
        LastSave { at, results: batch.state.results.len(), next_look: at + SAVE_INTERVAL }
    }
}

/// Why the work on a batch is over.
#[derive(PartialEq, Eq)]
enum Over {
    /// All requests have a result.
    Ended,
    /// The server stops, the app is removed, the batch is deleted, or another process works on it.
    Left,
}

impl BatchWorker {
    async fn run_all(&self) -> Result<(), ApiError> {
        // The batch is read here: what the request that starts the work has read may be out of date.
        while let Some(batch) = self.gateway.batches.next(&self.app.name).await? {
            if self.run(batch).await? == Over::Left {
                break;
            }
        }
        Ok(())
    }

    /// Runs the requests of a batch that have no result, and stores their results.
    async fn run(&self, mut batch: MessageBatch) -> Result<Over, ApiError> {
        let cancel = self.work.begin_batch(&batch.id);
        let requests = batch.requests()?;
        let mut bytes: usize = batch.state.results.iter().map(|one| one.to_string().len()).sum();
        // Other processes see that somebody works on it.
        if !self.save(&mut batch).await? {
            return Ok(Over::Left);
        }
        let mut saved = LastSave::of(&batch);
        let mut clock = SteadyClock::new(Timestamp::now(), std::time::Instant::now());
        for request in requests.into_iter().skip(batch.state.results.len()) {
            let BatchRequest { custom_id, params } = request;
            let now = clock.now(Timestamp::now(), std::time::Instant::now());
            let result = if batch.state.cancel_initiated_at.is_some() || cancel.is_cancelled() {
                Some(json!({"type": "canceled"}))
            } else if batch.expires_at() <= now {
                Some(json!({"type": "expired"}))
            } else if bytes > MAX_RESULT_BYTES {
                let text = format!("the results of the batch exceed {MAX_RESULT_BYTES} bytes");
                Some(errored(&Problem::failed(text)))
            } else if self.is_stopping().await {
                None
            } else {
                self.result(&mut batch, &mut saved, params, &cancel, now).await?
            };
            let Some(result) = result else {
                // Another process, or this one after a restart, may go on at once.
                batch.state.changed_at = Timestamp::UNIX_EPOCH;
                self.store(&mut batch).await?;
                return Ok(Over::Left);
            };
            let result = json!({"custom_id": custom_id, "result": result});
            bytes += result.to_string().len();
            batch.state.results.push(result);
            if saved.at.elapsed() >= SAVE_INTERVAL {
                if !self.save(&mut batch).await? {
                    return Ok(Over::Left);
                }
                saved = LastSave::of(&batch);
            }
        }
        batch.state.ended_at = Some(Timestamp::now());
        Ok(if self.save(&mut batch).await? { Over::Ended } else { Over::Left })
    }

    /// Makes the result of one request, and stores the earlier ones meanwhile; nothing if the server stops or the batch
    /// is no longer this process's.
    async fn result(
        &self,
        batch: &mut MessageBatch,
        saved: &mut LastSave,
        params: Value,
        cancel: &CancellationToken,
        now: Timestamp,
    ) -> Result<Option<Value>, ApiError> {
        let left = batch.expires_at().duration_since(now);
        let expiry = Instant::now() + Duration::try_from(left).unwrap_or_default();
        let mut made = pin!(self.message(params));
        loop {
            tokio::select! {
                made = &mut made => return Ok(match made {
                    // The server stops; the request runs again after the restart.
                    Err(_) if self.gateway.runtime.stopping.is_cancelled() => None,
                    Err(_) if self.work.end.is_cancelled() => None,
                    Ok(message) => Some(json!({"type": "succeeded", "message": message})),
                    Err(problem) => Some(errored(&problem)),
                }),
                () = cancel.cancelled() => return Ok(Some(json!({"type": "canceled"}))),
                () = tokio::time::sleep_until(expiry) => return Ok(Some(json!({"type": "expired"}))),
                () = self.gateway.runtime.ending.cancelled() => return Ok(None),
                () = self.work.end.cancelled() => return Ok(None),
                () = tokio::time::sleep_until(saved.next_look) => {}
            }
            let is_due = |beat: Duration| saved.at.elapsed() >= beat;
            if batch.state.results.len() == saved.results
                && !self.gateway.batches.heartbeat().is_some_and(is_due)
            {
                saved.next_look = Instant::now() + SAVE_INTERVAL;
                continue;
            }
            if !self.save(batch).await? {
                return Ok(None);
            }
            *saved = LastSave::of(batch);
        }
    }

    /// Returns whether no further request may begin.
    async fn is_stopping(&self) -> bool {
        let is_over = self.gateway.runtime.stopping.is_cancelled() || self.work.end.is_cancelled();
        is_over || self.is_removed().await
    }

    /// Returns whether the app was removed, maybe through another process. A later app of its name is another one.
    async fn is_removed(&self) -> bool {
        let app = &self.app;
        let apps = self.gateway.apps.apps(AppFilter::All).await;
        !app.name.is_owner() && apps.is_ok_and(|apps| !apps.contains(app))
    }

    /// Stores the state of a batch, now and as worked on. Returns `false` if the batch is no longer this process's.
    async fn save(&self, batch: &mut MessageBatch) -> Result<bool, ApiError> {
        batch.state.changed_at = Timestamp::now();
        self.store(batch).await
    }

    /// Stores the state of a batch, also if its caller has cancelled it meanwhile. Waits for a database that is
    /// unavailable. Returns `false` if the batch was deleted, or if another process works on it.
    async fn store(&self, batch: &mut MessageBatch) -> Result<bool, ApiError> {
        let (batches, app) = (&self.gateway.batches, &self.app.name);
        loop {
            let stored = match batches.save(app, batch).await {
                Ok(true) => return Ok(true),
                Ok(false) => batches.find(app, &batch.id).await,
                Err(error) => Err(error),
            };
            match stored {
                Ok(stored) => {
                    if !batch.adopt(stored) {
                        return Ok(false);
                    }
                }
                Err(ApiError::NotFound(_)) => return Ok(false),
                Err(ApiError::Busy { .. }) if !self.gateway.runtime.ending.is_cancelled() => {
                    tokio::time::sleep(RETRY_INTERVAL).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Makes one message. Waits while the app or the server has no place for it.
    async fn message(&self, params: Value) -> Result<Value, Problem> {
        let (gateway, app) = (&self.gateway, &self.app);
        let body: MessagesBody = serde_path_to_error::deserialize(params).map_err(|error| {
            ApiError::bad_request(format!("{}: {}", error.path(), error.inner()))
        })?;
        let (asked, named, _) = anthropic::read(gateway, app, body).await?;
        loop {
            let made = async {
                let reply = Reply::to(gateway, app, asked.clone()).await?;
                reply.whole().await.map_err(Problem::from)
            };
            let problem = match made.await {
                Ok(whole) => return Ok(anthropic::message(whole, named)),
                Err(problem) => problem,
            };
            let Some(wait) = problem.wait_for_place() else { return Err(problem) };
            tokio::select! {
                () = tokio::time::sleep(wait.max(RETRY_INTERVAL)) => {}
                () = gateway.runtime.stopping.cancelled() => return Err(problem),
            }
            if self.is_removed().await {
                return Err(problem);
            }
        }
    }
}

fn errored(problem: &Problem) -> Value {
    json!({"type": "errored", "error": Dialect::Anthropic.body(problem)})
}
