//! The simplest ledger: lists in memory. The real stores are compared with it.

mod nodes;
mod sessions;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use hob_domain::session::{
    NewEvent, OutboxItem, RememberedTurn, Session, SessionEvent, SessionFilter, SessionId,
    SessionTurn, TurnState, TurnUsage,
};
use hob_domain::turn_rules::UnansweredEnd;
use hob_domain::{
    App, AppFilter, AppName, AppStore, AuditEntry, AuditStore, DocumentChange, DocumentKind,
    DocumentStore, Lease, NodeId, StoreError, StoredDocument, Timestamp, TokenHash,
};
use serde_json::Value;

const DAY: i64 = 24 * 60 * 60;

/// A ledger in memory.
#[derive(Default)]
pub struct MemoryLedger {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    apps: BTreeMap<AppName, (App, TokenHash)>,
    sessions: Vec<Kept>,
    usage: BTreeMap<(i64, AppName), (u64, u64, TurnUsage)>,
    outbox: Vec<OutboxItem>,
    /// The ids of entries of the outbox that were set aside.
    set_aside: Vec<i64>,
    next_outbox: i64,
    audit: Vec<AuditEntry>,
    nodes: BTreeMap<NodeId, Instant>,
    documents: BTreeMap<(AppName, String), StoredDocument>,
}

struct Kept {
    session: Session,
    fence: u64,
    holder: Option<NodeId>,
    turns: Vec<SessionTurn>,
    keys: BTreeMap<String, (u32, String)>,
    events: Vec<SessionEvent>,
}

impl MemoryLedger {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn find(&mut self, id: &SessionId) -> Option<&mut Kept> {
        self.sessions.iter_mut().find(|kept| kept.session.id == *id)
    }

    fn of(&mut self, app: &AppName, id: &SessionId) -> Option<&mut Kept> {
        self.find(id).filter(|kept| kept.session.app == *app)
    }

    /// What only its holder may change.
    fn held(&mut self, lease: &Lease) -> Result<&mut Kept, StoreError> {
        let is_latest =
            |kept: &&mut Kept| kept.fence == lease.fence && kept.session.app == lease.app;
        self.find(&lease.session).filter(is_latest).ok_or(StoreError::Lost)
    }

    fn lives(&self, node: Option<&NodeId>, lease_timeout: Duration) -> bool {
        let beat = node.and_then(|node| self.nodes.get(node));
        beat.is_some_and(|beat| beat.elapsed() < lease_timeout)
    }

    fn passes(&self, kept: &Kept, filter: &SessionFilter) -> bool {
        let session = kept.now();
        let is_open = session.closed_at.is_none();
        match filter {
            SessionFilter::App(app) => session.app == *app,
            SessionFilter::All => true,
            SessionFilter::Page(page) => page.app.as_ref().is_none_or(|app| session.app == *app),
            SessionFilter::Id(id) => session.id == *id,
            SessionFilter::Open => is_open,
            SessionFilter::IdleSince(then) => {
                let used = session.last_turn_at.unwrap_or(session.created_at);
                is_open && !session.busy && used < whole(*then)
            }
            SessionFilter::Unleased(timeout) => {
                (is_open || session.busy) && !self.lives(kept.holder.as_ref(), *timeout)
            }
            SessionFilter::Orphaned(timeout) => {
                session.busy && !self.lives(kept.holder.as_ref(), *timeout)
            }
        }
    }

    fn count(&mut self, app: &AppName, state: TurnState, usage: &TurnUsage, now: Timestamp) {
        let (turns, failed, sum) = self.day(app, now);
        *turns += 1;
        *failed += u64::from(state.is_failure());
        add(sum, usage);
    }

    /// Returns the turns, the failed turns and the usage of an app's day.
    fn day(&mut self, app: &AppName, now: Timestamp) -> &mut (u64, u64, TurnUsage) {
        let day = now.as_second().div_euclid(DAY);
        self.usage.entry((day, app.clone())).or_default()
    }

    fn remember(&mut self, app: &AppName, turn: Option<RememberedTurn>) {
        if turn.is_some() {
            self.next_outbox += 1;
            let (id, app) = (self.next_outbox, app.as_str().to_owned());
            self.outbox.push(OutboxItem { id, app, attempts: 0, turn });
        }
    }

    fn delete(&mut self, wanted: impl Fn(&Session) -> bool) -> Vec<SessionId> {
        let (gone, left) = self.sessions.drain(..).partition(|kept| wanted(&kept.session));
        self.sessions = left;
        let gone: Vec<Kept> = gone;
        gone.into_iter().map(|kept| kept.session.id).collect()
    }
}

impl Kept {
    fn now(&self) -> Session {
        Session {
            busy: self.turns.iter().any(|turn| !turn.state.is_over()),
            last_event: self.events.len() as u64,
            ..self.session.clone()
        }
    }

    fn append(&mut self, events: Vec<NewEvent>, now: Timestamp) -> Vec<SessionEvent> {
        let first = self.events.len() as u64 + 1;
        let at = whole(now);
        let new = (first..).zip(events).map(|(seq, event)| SessionEvent { seq, at, event });
        let new: Vec<SessionEvent> = new.collect();
        self.events.extend(new.clone());
        new
    }

    fn waiting(&self) -> Vec<u32> {
        let waiting = self.turns.iter().filter(|turn| turn.state == TurnState::Queued);
        waiting.map(|turn| turn.index).collect()
    }

    fn turn(&mut self, index: u32) -> Option<&mut SessionTurn> {
        self.turns.iter_mut().find(|turn| turn.index == index)
    }

    fn end_unanswered(&mut self, index: u32, end: UnansweredEnd, now: Timestamp) -> NewEvent {
        if let Some(turn) = self.turn(index) {
            turn.state = end.state;
            turn.stop_reason = end.stop_reason.map(str::to_owned);
            turn.error = Some(end.error.to_owned());
            turn.ended_at = Some(whole(now));
        }
        self.session.last_turn_at = Some(whole(now));
        end.event(index)
    }
}

/// Cuts a time to the microsecond, as the stores do.
fn whole(at: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(at.as_microsecond()).unwrap_or_default()
}

fn add(sum: &mut TurnUsage, usage: &TurnUsage) {
    let usage = usage.bounded();
    sum.input_tokens += usage.input_tokens;
    sum.output_tokens += usage.output_tokens;
    sum.cached_read_tokens += usage.cached_read_tokens;
    sum.cached_write_tokens += usage.cached_write_tokens;
    sum.cost_usd += usage.cost_usd;
}

/// Returns the last `limit` entries, in order.
fn last<T: Clone>(all: impl DoubleEndedIterator<Item = T>, limit: usize) -> Vec<T> {
    let mut last: Vec<T> = all.rev().take(limit).collect();
    last.reverse();
    last
}

#[async_trait]
impl AppStore for MemoryLedger {
    async fn create_app(&self, app: &App, token: TokenHash) -> Result<(), StoreError> {
        let mut state = self.state();
        if state.apps.contains_key(&app.name) || state.apps.values().any(|(_, t)| *t == token) {
            return Err(StoreError::Exists(app.name.to_string()));
        }
        state.apps.insert(app.name.clone(), (app.clone(), token));
        Ok(())
    }

    async fn apps(&self, filter: AppFilter) -> Result<Vec<App>, StoreError> {
        let passes = |known: &TokenHash| match filter {
            AppFilter::All => true,
            AppFilter::Token(token) => *known == token,
        };
        let state = self.state();
        let apps = state.apps.values().filter(|(_, known)| passes(known));
        Ok(apps.map(|(app, _)| app.clone()).collect())
    }

    async fn remove_app(&self, name: &AppName) -> Result<bool, StoreError> {
        Ok(self.state().apps.remove(name).is_some())
    }
}

#[async_trait]
impl DocumentStore for MemoryLedger {
    async fn change_document(&self, change: &DocumentChange) -> Result<bool, StoreError> {
        let documents = &mut self.state().documents;
        let before = match change {
            DocumentChange::Save(one) => {
                documents.insert((one.app.clone(), one.id.clone()), one.clone())
            }
            DocumentChange::Replace { document, expected_body } => {
                let key = (document.app.clone(), document.id.clone());
                let is_expected =
                    |one: &StoredDocument| one.kind == document.kind && one.body == *expected_body;
                match documents.get(&key).is_some_and(is_expected) {
                    true => documents.insert(key, document.clone()),
                    false => None,
                }
            }
            DocumentChange::Delete { app, id, .. } => documents.remove(&(app.clone(), id.clone())),
        };
        Ok(before.is_some())
    }

    async fn documents(
        &self,
        app: &AppName,
        kind: DocumentKind,
        id: Option<&str>,
    ) -> Result<Vec<StoredDocument>, StoreError> {
        let state = self.state();
        let found = state.documents.values().filter(|document| {
            document.app == *app && document.kind == kind && id.is_none_or(|id| document.id == id)
        });
        let mut found: Vec<StoredDocument> = found.cloned().collect();
        found.sort_by(|a, b| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
        Ok(found)
    }
}

#[async_trait]
impl AuditStore for MemoryLedger {
    async fn append_audit(
        &self,
        at: Timestamp,
        action: &str,
        target: &str,
        detail: &Value,
    ) -> Result<u64, StoreError> {
        let mut state = self.state();
        let id = state.audit.len() as u64 + 1;
        let (action, target) = (action.to_owned(), target.to_owned());
        state.audit.push(AuditEntry { id, at: whole(at), action, target, detail: detail.clone() });
        Ok(id)
    }

    async fn list_audit(
        &self,
        limit: usize,
        before: Option<u64>,
    ) -> Result<Vec<AuditEntry>, StoreError> {
        let state = self.state();
        let wanted = state.audit.iter().rev().filter(|e| before.is_none_or(|id| e.id < id));
        Ok(wanted.take(limit).cloned().collect())
    }
}
