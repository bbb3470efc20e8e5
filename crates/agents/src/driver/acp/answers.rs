//! Hob's answers that an agent has not read yet. An agent that asks without reading has to wait.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use tokio::sync::Notify;

use crate::json_lines::{self, LineKind};

/// How many requests of an agent may wait for their answers.
const MAX_PENDING_ANSWERS: usize = 256;
/// How many bytes of answers may wait to be read. One answer may be larger.
const MAX_PENDING_BYTES: usize = 4 << 20;

/// The answers that have not been written, with their sizes, by the ids of the requests.
#[derive(Debug, Default)]
pub(super) struct PendingAnswers {
    bytes: Mutex<HashMap<String, usize>>,
    written: Notify,
}

impl PendingAnswers {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the agent has read enough.
    pub async fn wait_for_room(&self) {
        loop {
            let written = self.written.notified();
            {
                let pending = self.lock();
                let bytes: usize = pending.values().sum();
                if pending.len() < MAX_PENDING_ANSWERS && bytes < MAX_PENDING_BYTES {
                    return;
                }
            }
            written.await;
        }
    }

    /// Notes a request, or the size of its answer.
    pub fn add(&self, id: &impl Serialize, bytes: usize) {
        if let Ok(id) = serde_json::to_string(id) {
            self.lock().insert(id, bytes);
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
    async fn agent_that_reads_no_answers_has_to_wait() {
        let answers = PendingAnswers::default();
        answers.add(&1, MAX_PENDING_BYTES);
        assert!(!has_room(&answers).await);
        assert_eq!(answers.answered_by(r#"{"id":1,"result":{}}"#).as_deref(), Some("1"));
        assert_eq!(answers.answered_by(r#"{"id":1,"method":"x"}"#), None);
        answers.remove("1");
        assert!(has_room(&answers).await);
        (0..MAX_PENDING_ANSWERS).for_each(|id| answers.add(&id, 0));
        assert!(!has_room(&answers).await);
    }
}
