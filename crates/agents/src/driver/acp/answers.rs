//! Hob's answers that an agent has not read yet. An agent that asks without reading has to wait.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use tokio::sync::Notify;

use crate::app_permits::AppPermit;
use crate::json_lines::{self, LineKind};

/// How many requests of an agent may wait for their answers.
const MAX_PENDING_ANSWERS: usize = 256;
/// How many bytes of requests may wait to be answered, and of answers to be read. One may be larger.
const MAX_PENDING_BYTES: usize = 4 << 20;
/// A shorter answer needs no permit while it waits.
const LONG_ANSWER_BYTES: usize = 32 << 10;

/// The requests whose answers have not been written, by their ids.
#[derive(Debug, Default)]
pub(super) struct PendingAnswers {
    pending: Mutex<HashMap<String, Pending>>,
    written: Notify,
}

/// What a request, or its answer, keeps in memory.
#[derive(Debug, Default)]
struct Pending {
    bytes: usize,
    is_answered: bool,
    _permit: Option<AppPermit>,
}

impl PendingAnswers {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Pending>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the agent has read enough.
    pub async fn wait_for_room(&self) {
        loop {
            let written = self.written.notified();
            {
                let pending = self.lock();
                let bytes: usize = pending.values().map(|pending| pending.bytes).sum();
                if pending.len() < MAX_PENDING_ANSWERS && bytes < MAX_PENDING_BYTES {
                    return;
                }
            }
            written.await;
        }
    }

    /// Waits until the agent has read enough answers. Requests do not count: those behind the one that waits here are
    /// handled only after it.
    pub async fn wait_for_answers_to_be_read(&self) {
        loop {
            let written = self.written.notified();
            {
                let pending = self.lock();
                let answers = || pending.values().filter(|pending| pending.is_answered);
                let bytes: usize = answers().map(|pending| pending.bytes).sum();
                if answers().count() < MAX_PENDING_ANSWERS && bytes < MAX_PENDING_BYTES {
                    return;
                }
            }
            written.await;
        }
    }

    /// Notes the size of an answer. A long one keeps its permit until it is written.
    pub fn add_answer(&self, id: &impl Serialize, bytes: usize, permit: Option<AppPermit>) {
        self.add(id, bytes, true, permit.filter(|_| bytes > LONG_ANSWER_BYTES));
    }

    /// Notes a request with the permit that it keeps until it is answered.
    pub fn add_request(&self, id: &impl Serialize, bytes: usize, permit: Option<AppPermit>) {
        self.add(id, bytes, false, permit);
    }

    fn add(&self, id: &impl Serialize, bytes: usize, is_answered: bool, permit: Option<AppPermit>) {
        if let Ok(id) = serde_json::to_string(id) {
            self.lock().insert(id, Pending { bytes, is_answered, _permit: permit });
        }
    }

    /// Returns the id of the request that this line answers.
    pub fn answered_by(&self, line: &str) -> Option<String> {
        if self.lock().is_empty() {
            return None;
        }
        match json_lines::parse(line)?.kind {
            LineKind::Response(id) => Some(id.to_string()),
            LineKind::Request(_) | LineKind::Notification => None,
        }
    }

    /// Notes that an answer was written.
    pub fn remove(&self, id: &str) {
        self.lock().remove(id);
        self.written.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn has_room(answers: &PendingAnswers) -> bool {
        let wait = std::time::Duration::from_millis(1);
        tokio::time::timeout(wait, answers.wait_for_room()).await.is_ok()
    }

    #[tokio::test]
    async fn answer_does_not_wait_for_the_requests_behind_it() {
        let answers = PendingAnswers::default();
        let has_read = async |answers: &PendingAnswers| {
            let wait = std::time::Duration::from_millis(1);
            tokio::time::timeout(wait, answers.wait_for_answers_to_be_read()).await.is_ok()
        };
        answers.add_request(&1, 2 * MAX_PENDING_BYTES, None);
        (2..MAX_PENDING_ANSWERS + 9).for_each(|id| answers.add_request(&id, 0, None));
        assert!(has_read(&answers).await);
        answers.add_answer(&2, MAX_PENDING_BYTES, None);
        assert!(!has_read(&answers).await);
        answers.remove("2");
        assert!(has_read(&answers).await);
    }

    #[tokio::test]
    async fn agent_that_reads_no_answers_has_to_wait() {
        let answers = PendingAnswers::default();
        answers.add_request(&1, MAX_PENDING_BYTES, None);
        assert!(!has_room(&answers).await);
        assert_eq!(answers.answered_by(r#"{"id":1,"result":{}}"#).as_deref(), Some("1"));
        assert_eq!(answers.answered_by(r#"{"id":1,"method":"x"}"#), None);
        answers.remove("1");
        assert!(has_room(&answers).await);
        (0..MAX_PENDING_ANSWERS).for_each(|id| answers.add_request(&id, 0, None));
        assert!(!has_room(&answers).await);
    }
}
