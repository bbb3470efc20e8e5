//! Sessions in memory.

use std::time::Duration;

use async_trait::async_trait;
use hob_domain::session::{
    Accepted, CostTarget, Created, DeleteFilter, EventRange, IdempotencyKey, MAX_EVENT_PAGE_BYTES,
    MAX_SESSION_PAGE_BYTES, NewEvent, OpenLimits, OutboxChange, OutboxItem, Repeat, Session,
    SessionEvent, SessionFilter, SessionId, SessionStore, SessionTurn, SessionlessTurn, TurnEnding,
    TurnRange, TurnRequest, TurnState, TurnUsage, UsageDay, UsageNote,
};
use hob_domain::turn_rules::{TurnFacts, UnansweredEnd, decide_turn};
use hob_domain::{AppName, DocumentKind, Lease, LeaseOutcome, NodeId, StoreError, Timestamp};

use super::{DAY, Kept, MemoryLedger, add, last, whole};

#[async_trait]
impl SessionStore for MemoryLedger {
    async fn create_session(
        &self,
        session: &Session,
        event: NewEvent,
        node: &NodeId,
        limits: OpenLimits,
    ) -> Result<Created, StoreError> {
        let mut state = self.state();
        let open = state.sessions.iter().filter(|kept| kept.session.closed_at.is_none());
        let of_app = open.clone().filter(|kept| kept.session.app == session.app).count();
        if let Some(refusal) = limits.refusal(of_app, open.count()) {
            return Ok(refusal);
        }
        if state.find(&session.id).is_some() {
            return Err(StoreError::Failed("there is such a session".to_owned()));
        }
        let now = session.created_at;
        let session = Session { created_at: whole(now), ..session.clone() };
        let (turns, keys, events) = Default::default();
        let lease = Lease { app: session.app.clone(), session: session.id.clone(), fence: 1 };
        let (fence, holder) = (1, Some(node.clone()));
        let mut kept = Kept { session, fence, holder, turns, keys, events };
        kept.append(vec![event], now);
        state.sessions.push(kept);
        Ok(Created::Made(lease))
    }

    async fn acquire_lease(
        &self,
        id: &SessionId,
        node: &NodeId,
        lease_timeout: Duration,
        now: Timestamp,
    ) -> Result<LeaseOutcome, StoreError> {
        let mut state = self.state();
        let Some(kept) = state.find(id) else { return Ok(LeaseOutcome::Missing) };
        let (app, holder) = (kept.session.app.clone(), kept.holder.clone());
        if let Some(holder) = holder.filter(|holder| holder != node)
            && state.lives(Some(&holder), lease_timeout)
        {
            return Ok(LeaseOutcome::HeldBy(holder));
        }
        let end = UnansweredEnd::INTERRUPTED;
        let Some(kept) = state.find(id) else { return Ok(LeaseOutcome::Missing) };
        kept.fence += 1;
        kept.holder = Some(node.clone());
        let lease = Lease { app: app.clone(), session: id.clone(), fence: kept.fence };
        let running = kept.turns.iter().filter(|turn| turn.state == TurnState::Running);
        let running: Vec<u32> = running.map(|turn| turn.index).collect();
        for index in &running {
            let event = kept.end_unanswered(*index, end, now);
            kept.append(vec![event], now);
        }
        running.iter().for_each(|_| state.count(&app, end.state, &TurnUsage::default(), now));
        Ok(LeaseOutcome::Acquired(lease, running))
    }

    async fn release_lease(&self, lease: &Lease) -> Result<(), StoreError> {
        self.state().held(lease)?.holder = None;
        Ok(())
    }

    async fn session(&self, app: &AppName, id: &SessionId) -> Result<Option<Session>, StoreError> {
        Ok(self.state().of(app, id).map(|kept| kept.now()))
    }

    async fn sessions(&self, filter: &SessionFilter) -> Result<Vec<Session>, StoreError> {
        let state = self.state();
        let wanted = state.sessions.iter().filter(|kept| state.passes(kept, filter));
        let mut found: Vec<Session> = wanted.map(Kept::now).collect();
        found.sort_by(|a, b| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
        let SessionFilter::Page(page) = filter else { return Ok(found) };
        if let Some((at, id)) = &page.after {
            found.retain(|session| (session.created_at, &session.id) > (whole(*at), id));
        }
        found.truncate(page.limit);
        let mut bytes = 0;
        let fits = |session: &&Session| {
            let Session { setup, .. } = session;
            let system = setup.system.as_ref().map_or(0, String::len);
            bytes += setup.meta.to_string().len() + system + setup.mcp_servers.to_string().len();
            bytes <= MAX_SESSION_PAGE_BYTES
        };
        let count = found.iter().take_while(fits).count().max(1);
        found.truncate(count);
        Ok(found)
    }

    async fn accept_turn(
        &self,
        app: &AppName,
        id: &SessionId,
        request: &TurnRequest,
        now: Timestamp,
    ) -> Result<Option<Accepted>, StoreError> {
        let mut state = self.state();
        let Some(kept) = state.of(app, id) else { return Ok(None) };
        let key = request.idempotency.as_ref();
        let same_key = key.and_then(|key| kept.keys.get(&key.key));
        let facts = TurnFacts {
            same_key: same_key.map(|(index, digest)| (*index, digest.as_str())),
            is_closed: kept.session.closed_at.is_some(),
            turn_count: kept.session.turn_count,
            queued: kept.waiting().len(),
        };
        let decision = decide_turn(facts, key.map(|key| key.digest.as_str()), request.queue);
        let Accepted::Queued(index) = decision else { return Ok(Some(decision)) };
        if let Some(IdempotencyKey { key, digest }) = &request.idempotency {
            kept.keys.insert(key.clone(), (index, digest.clone()));
        }
        kept.turns.push(SessionTurn {
            index,
            state: TurnState::Queued,
            prompt: request.prompt.clone(),
            files: request.files.clone(),
            text: String::new(),
            stop_reason: None,
            error: None,
            queued_at: whole(now),
            started_at: None,
            ended_at: None,
            usage: TurnUsage::default(),
        });
        kept.session.turn_count = index;
        kept.session.last_turn_at = Some(whole(now));
        Ok(Some(decision))
    }

    async fn find_repeat(
        &self,
        app: &AppName,
        id: &SessionId,
        key: &IdempotencyKey,
    ) -> Result<Option<Repeat>, StoreError> {
        let mut state = self.state();
        let found = state.of(app, id).and_then(|kept| kept.keys.get(&key.key));
        Ok(found.map(|(index, known)| match *known == key.digest {
            true => Repeat::Same(*index),
            false => Repeat::OtherRequest,
        }))
    }

    async fn keep_agent_session(&self, lease: &Lease, name: &str) -> Result<(), StoreError> {
        self.state().held(lease)?.session.agent_session = Some(name.to_owned());
        Ok(())
    }

    async fn start_turn(
        &self,
        lease: &Lease,
        index: u32,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let mut state = self.state();
        let turn = state.held(lease)?.turn(index);
        let Some(turn) = turn.filter(|turn| turn.state == TurnState::Queued) else {
            return Ok(false);
        };
        turn.state = TurnState::Running;
        turn.started_at = Some(whole(now));
        Ok(true)
    }

    async fn append_events(
        &self,
        lease: &Lease,
        events: Vec<NewEvent>,
        now: Timestamp,
    ) -> Result<Vec<SessionEvent>, StoreError> {
        Ok(self.state().held(lease)?.append(events, now))
    }

    async fn end_turn(
        &self,
        lease: &Lease,
        index: u32,
        ending: TurnEnding,
        now: Timestamp,
    ) -> Result<Option<Vec<SessionEvent>>, StoreError> {
        let mut state = self.state();
        let kept = state.held(lease)?;
        let Some(turn) = kept.turn(index) else { return Ok(None) };
        if !turn.state.may_become(ending.state) {
            return Ok(None);
        }
        turn.state = ending.state;
        turn.text = ending.text;
        turn.stop_reason = ending.stop_reason;
        turn.error = ending.error;
        turn.ended_at = Some(whole(now));
        turn.usage = ending.usage.bounded();
        kept.session.last_turn_at = Some(whole(now));
        if ending.agent_session.is_some() {
            kept.session.agent_session = ending.agent_session;
        }
        add(&mut kept.session.usage, &ending.usage);
        let events = kept.append(ending.events, now);
        let app = kept.session.app.clone();
        state.count(&app, ending.state, &ending.usage, now);
        state.remember(&app, ending.outbox);
        Ok(Some(events))
    }

    async fn turns(
        &self,
        app: &AppName,
        id: &SessionId,
        range: TurnRange,
    ) -> Result<Option<Vec<SessionTurn>>, StoreError> {
        let mut state = self.state();
        let Some(kept) = state.of(app, id) else { return Ok(None) };
        let turns = kept.turns.iter().cloned();
        Ok(Some(match range {
            TurnRange::One(index) => turns.filter(|turn| turn.index == index).collect(),
            TurnRange::Before { before, limit } => {
                last(turns.filter(|turn| turn.index < before), limit)
            }
            TurnRange::Queued => turns.filter(|turn| turn.state == TurnState::Queued).collect(),
        }))
    }

    async fn events(
        &self,
        app: &AppName,
        id: &SessionId,
        range: EventRange,
    ) -> Result<Option<Vec<SessionEvent>>, StoreError> {
        let mut state = self.state();
        let Some(kept) = state.of(app, id) else { return Ok(None) };
        let events = kept.events.iter().cloned();
        Ok(Some(match range {
            EventRange::After { after, limit } => {
                page(events.filter(|event| event.seq > after).take(limit))
            }
            EventRange::Before { before, limit } => {
                let last = last(events.filter(|event| event.seq < before), limit);
                page(last.into_iter().rev()).into_iter().rev().collect()
            }
            EventRange::Turn(index) => page(events.filter(|event| event.event.turn == Some(index))),
        }))
    }

    async fn close_session(
        &self,
        id: &SessionId,
        event: NewEvent,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let mut state = self.state();
        let Some(kept) = state.find(id).filter(|kept| kept.session.closed_at.is_none()) else {
            return Ok(false);
        };
        kept.session.closed_at = Some(whole(now));
        let end = UnansweredEnd::SESSION_CLOSED;
        let waiting = kept.waiting();
        let mut events: Vec<NewEvent> =
            waiting.iter().map(|index| kept.end_unanswered(*index, end, now)).collect();
        events.push(event);
        kept.append(events, now);
        let app = kept.session.app.clone();
        for _ in waiting {
            state.count(&app, end.state, &TurnUsage::default(), now);
        }
        Ok(true)
    }

    async fn delete_sessions(&self, filter: &DeleteFilter) -> Result<Vec<SessionId>, StoreError> {
        let mut state = self.state();
        Ok(match filter {
            DeleteFilter::ClosedBefore(then) => {
                let deleted =
                    state.delete(|session| session.closed_at.is_some_and(|at| at < whole(*then)));
                state.documents.retain(|_, document| match document.kind {
                    kind if kind.expires() => document.created_at >= *then,
                    DocumentKind::Session => !deleted.iter().any(|id| id.as_str() == document.id),
                    _ => true,
                });
                deleted
            }
            DeleteFilter::App(app) => {
                state.documents.retain(|(of, _), _| of != app);
                state.outbox.retain(|item| item.app != app.as_str());
                state.usage.retain(|(_, of), _| of != app);
                state.delete(|session| session.app == *app)
            }
        })
    }

    async fn usage(
        &self,
        first: Timestamp,
        last: Option<Timestamp>,
        app: Option<&AppName>,
    ) -> Result<Vec<UsageDay>, StoreError> {
        let day = |at: Timestamp| at.as_second().div_euclid(DAY);
        let wanted = day(first)..=last.map_or(i64::MAX, day);
        let state = self.state();
        let days = state
            .usage
            .iter()
            .filter(|((day, of), _)| wanted.contains(day) && app.is_none_or(|app| of == app));
        let day =
            |((day, app), (turns, failed, usage)): (&(i64, AppName), &(u64, u64, TurnUsage))| {
                let day = Timestamp::from_second(day * DAY).unwrap_or_default();
                UsageDay { app: app.clone(), day, turns: *turns, failed: *failed, usage: *usage }
            };
        Ok(days.map(day).collect())
    }

    async fn note_usage(&self, note: &UsageNote, now: Timestamp) -> Result<(), StoreError> {
        match note {
            UsageNote::SessionlessTurn(turn) => self.note_turn(turn, now).await,
            UsageNote::LateCost { target, cost_usd } => self.add_cost(target, *cost_usd, now).await,
        }
    }

    async fn outbox(&self, limit: usize, without: &[i64]) -> Result<Vec<OutboxItem>, StoreError> {
        let state = self.state();
        let is_left_out =
            |item: &&OutboxItem| without.contains(&item.id) || state.set_aside.contains(&item.id);
        let mut items: Vec<&OutboxItem> =
            state.outbox.iter().filter(|item| !is_left_out(item)).collect();
        items.sort_by_key(|item| (item.attempts, item.id));
        Ok(items.into_iter().take(limit).cloned().collect())
    }

    async fn change_outbox(&self, ids: Vec<i64>, change: OutboxChange) -> Result<(), StoreError> {
        let mut state = self.state();
        match change {
            OutboxChange::SetAside => state.set_aside.extend(ids),
            OutboxChange::Stored => state.outbox.retain(|item| !ids.contains(&item.id)),
            OutboxChange::Attempts(attempts) => {
                for item in state.outbox.iter_mut().filter(|item| ids.contains(&item.id)) {
                    item.attempts = attempts;
                }
            }
        }
        Ok(())
    }
}

impl MemoryLedger {
    async fn note_turn(&self, turn: &SessionlessTurn, now: Timestamp) -> Result<(), StoreError> {
        let mut state = self.state();
        state.count(&turn.app, turn.state, &turn.usage, now);
        state.remember(&turn.app, turn.outbox.clone());
        Ok(())
    }

    async fn add_cost(
        &self,
        target: &CostTarget,
        cost_usd: f64,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let mut state = self.state();
        let usage = TurnUsage { cost_usd, ..TurnUsage::default() };
        let app = match target {
            CostTarget::Turn { lease, index } => {
                let kept = state.held(lease)?;
                add(&mut kept.session.usage, &usage);
                if let Some(turn) = kept.turn(*index) {
                    add(&mut turn.usage, &usage);
                }
                kept.session.app.clone()
            }
            CostTarget::Sessionless(app) => app.clone(),
        };
        let (_, _, sum) = state.day(&app, now);
        add(sum, &usage);
        Ok(())
    }
}

/// Returns the first events within the limit on bytes, and at least one.
fn page(events: impl Iterator<Item = SessionEvent>) -> Vec<SessionEvent> {
    let (mut page, mut bytes) = (Vec::new(), 0);
    for event in events {
        bytes += event.event.body.len();
        if bytes > MAX_EVENT_PAGE_BYTES && !page.is_empty() {
            break;
        }
        page.push(event);
    }
    page
}
