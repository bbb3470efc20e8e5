//! What only the holder of a session can do, wanted on another node: breaking off, answering, closing. It is written into
//! the ledger, where whoever holds the session finds it, and its answer is waited for there. Each of them bears to be
//! done twice.

use std::sync::Arc;
use std::time::Duration;

use hob_domain::session::SessionId;
use hob_domain::{AppName, RemoteCommand, StoreError};
use serde::{Deserialize, Serialize};

use super::super::error::SessionError;
use super::super::handle::Entry;
use super::super::sessions::{CancelOutcome, Sessions};
use super::cluster::{Place, lock};

/// How often an answer is looked for without a bell.
const LOOK: Duration = Duration::from_millis(500);
/// A session that has moved is looked for after this.
const MOVED: Duration = Duration::from_millis(100);
/// An errand takes no longer; a turn that does not let go is ended before that.
const LIMIT: Duration = Duration::from_secs(60);

/// What is wanted.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "want", rename_all = "snake_case")]
pub(in crate::session) enum Wish {
    Cancel,
    Close,
    Answer { request: String, option: String },
}

/// What came of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "was", rename_all = "snake_case")]
pub(in crate::session) enum Fulfilled {
    Cancelled {
        turn: Option<u32>,
    },
    Closed {
        now: bool,
    },
    Answered,
    NotFound,
    Invalid {
        message: String,
    },
    /// Not by us: it is somebody else's by now.
    Elsewhere,
    Failed {
        message: String,
    },
}

impl Sessions {
    /// Does it here where the session is here, else has its holder do it. `None` when the session is closed.
    pub(in crate::session) async fn have_done(
        &self,
        app: &AppName,
        id: &SessionId,
        wish: Wish,
    ) -> Result<Option<Fulfilled>, SessionError> {
        let errand = RemoteCommand {
            id: uuid::Uuid::new_v4().simple().to_string(),
            app: app.clone(),
            session: id.clone(),
            body: serde_json::to_string(&wish).unwrap_or_default(),
        };
        let done = self.have_errand_done(&errand, wish).await;
        if let Some(cluster) = &self.inner.cluster {
            // Left behind, it is done by nobody after a minute.
            if let Err(error) = cluster.options.store.remove_command(&errand.id).await {
                tracing::debug!(%error, "an errand was left behind");
            }
        }
        done
    }

    async fn have_errand_done(
        &self,
        errand: &RemoteCommand,
        wish: Wish,
    ) -> Result<Option<Fulfilled>, SessionError> {
        let began = tokio::time::Instant::now();
        loop {
            let place = self.place(&errand.app, &errand.session).await?;
            let Some(place) = place else { return Ok(None) };
            let done = match place {
                Place::Here(entry) => self.fulfil(&entry, wish.clone()).await?,
                Place::Elsewhere => self.want(errand).await?,
            };
            if let (Some(Fulfilled::Elsewhere), Some(cluster)) = (&done, &self.inner.cluster) {
                // It has moved: whoever has it now must be asked anew.
                cluster.options.store.remove_command(&errand.id).await?;
                tokio::time::sleep(MOVED).await;
            }
            match done {
                Some(Fulfilled::Elsewhere) | None if began.elapsed() < LIMIT => {}
                Some(Fulfilled::Elsewhere) | None => {
                    let text = "the node that has the session does not answer".to_owned();
                    return Err(StoreError::Unavailable(text).into());
                }
                Some(Fulfilled::NotFound) => return Err(SessionError::NotFound),
                Some(Fulfilled::Invalid { message }) => return Err(SessionError::Invalid(message)),
                Some(Fulfilled::Failed { message }) => {
                    return Err(StoreError::Unavailable(message).into());
                }
                Some(done) => return Ok(Some(done)),
            }
        }
    }

    async fn fulfil(
        &self,
        entry: &Arc<Entry>,
        wish: Wish,
    ) -> Result<Option<Fulfilled>, SessionError> {
        let done = match wish {
            Wish::Cancel => self
                .break_off_here(entry)
                .await
                .map(|CancelOutcome { turn }| Fulfilled::Cancelled { turn }),
            Wish::Close => self.close_here(entry).await.map(|now| Fulfilled::Closed { now }),
            Wish::Answer { request, option } => {
                self.answer_here(entry, &request, &option).map(|()| Fulfilled::Answered)
            }
        };
        match done {
            Err(SessionError::Store(StoreError::Lost)) => {
                self.lose(entry);
                Ok(Some(Fulfilled::Elsewhere))
            }
            done => done.map(Some),
        }
    }

    /// Has the holder do it. `None` when it has not answered for a while: it may not be the holder any more.
    async fn want(&self, errand: &RemoteCommand) -> Result<Option<Fulfilled>, SessionError> {
        let Some(cluster) = &self.inner.cluster else { return Ok(None) };
        let (store, node, id) = (&cluster.options.store, &self.inner.options.node, &errand.session);
        let mut bell = cluster.bell(id);
        store.enqueue_command(errand).await?;
        store.notify(node, std::slice::from_ref(id)).await?;
        let until = tokio::time::Instant::now() + cluster.options.lease.max(LOOK * 2);
        let answer = loop {
            if let Some(answer) = store.command_outcome(&errand.id).await? {
                break Some(answer);
            }
            if tokio::time::Instant::now() >= until {
                break None;
            }
            let _ = tokio::time::timeout(LOOK, bell.changed()).await;
        };
        let Some(answer) = answer else { return Ok(None) };
        let done = serde_json::from_str(&answer).unwrap_or(Fulfilled::Elsewhere);
        Ok(Some(done))
    }

    /// Does what another node wants, once at a time.
    pub(in crate::session) fn run_errand(&self, errand: RemoteCommand) {
        let Some(cluster) = &self.inner.cluster else { return };
        if !lock(&cluster.errands).insert(errand.id.clone()) {
            return;
        }
        let sessions = self.clone();
        self.inner.options.tasks.spawn(async move {
            let Some(cluster) = &sessions.inner.cluster else { return };
            let done = sessions.errand_done(&errand).await;
            let answer = serde_json::to_string(&done).unwrap_or_default();
            match cluster.options.store.complete_command(&errand.id, &answer).await {
                Ok(()) => {
                    let node = &sessions.inner.options.node;
                    let _ = cluster.options.store.notify(node, &[errand.session]).await;
                }
                Err(error) => tracing::warn!(%error, "an errand's answer was not stored"),
            }
            lock(&cluster.errands).remove(&errand.id);
        });
    }

    async fn errand_done(&self, errand: &RemoteCommand) -> Fulfilled {
        let Ok(wish) = serde_json::from_str(&errand.body) else {
            return Fulfilled::Failed { message: "another version of hob wants it".to_owned() };
        };
        let place = self.place(&errand.app, &errand.session).await;
        let done = match place {
            Ok(Some(Place::Here(entry))) => self.fulfil(&entry, wish).await,
            Ok(_) => return Fulfilled::Elsewhere,
            Err(error) => Err(error),
        };
        match done {
            Ok(done) => done.unwrap_or(Fulfilled::Elsewhere),
            Err(SessionError::NotFound) => Fulfilled::NotFound,
            Err(SessionError::Invalid(message)) => Fulfilled::Invalid { message },
            Err(error) => Fulfilled::Failed { message: error.to_string() },
        }
    }
}
