//! The steps of a session: those of its log, and those that follow.

use std::collections::VecDeque;
use std::sync::Arc;

use hob_domain::session::{EventRange, Session, SessionId};
use hob_domain::{AppName, Timestamp};
use hob_sessions::session::{Follow, SessionNews};

use super::steps::{Step, StepFold, StepKind};
use crate::error::ApiError;
use crate::state::Gateway;

/// How many events are read at a time.
const PAGE_EVENTS: usize = 2000;
/// The most turns that can wait at a time.
const RECENT_TURNS: usize = 200;

/// Returns all steps of a session.
pub(super) async fn all_steps(
    gateway: &Gateway,
    app: &AppName,
    id: &SessionId,
) -> Result<Vec<Step>, ApiError> {
    let mut fold = StepFold::default();
    // Whole texts follow their parts.
    let is_whole = |step: &Step| !matches!(step.kind, StepKind::Delta { .. });
    let mut steps = fold_all(gateway, app, id, u64::MAX, &mut fold, is_whole).await?;
    // A turn that runs without an event has started all the same.
    let turns = gateway.sessions.turns_before(app, id, u32::MAX, RECENT_TURNS).await?;
    let last = steps.last().map_or(0, |step| step.seq);
    for turn in turns {
        if let Some(started_at) = turn.started_at
            && let Some(step) = fold.start_turn(turn.index, last, started_at)
        {
            steps.push(step);
        }
    }
    Ok(steps)
}

/// Adds all events of a session up to `until` to `fold`, and returns the steps that are wanted.
async fn fold_all(
    gateway: &Gateway,
    app: &AppName,
    id: &SessionId,
    until: u64,
    fold: &mut StepFold,
    is_wanted: impl Fn(&Step) -> bool,
) -> Result<Vec<Step>, ApiError> {
    let mut steps = Vec::new();
    let mut after = 0;
    while after < until {
        let range = EventRange::After { after, limit: PAGE_EVENTS };
        let events = gateway.sessions.events(app, id, range).await?;
        let Some(last) = events.last() else { break };
        after = last.seq;
        for event in events.iter().filter(|event| event.seq <= until) {
            steps.extend(fold.push(event).into_iter().filter(&is_wanted));
        }
    }
    Ok(steps)
}

/// Returns the steps of the turn that runs; none if no turn runs.
pub(super) async fn open_turn_steps(
    gateway: &Gateway,
    app: &AppName,
    id: &SessionId,
) -> Result<Vec<Step>, ApiError> {
    let turns = gateway.sessions.turns_before(app, id, u32::MAX, RECENT_TURNS).await?;
    let Some(turn) = turns.iter().find(|turn| !turn.state.is_over()) else { return Ok(Vec::new()) };
    let mut fold = StepFold::default();
    fold_turn(gateway, app, id, turn.index, u64::MAX, &mut fold).await
}

/// Adds the events of a turn up to `until` to `fold`, and returns their steps. Nothing after the end of the turn is read.
async fn fold_turn(
    gateway: &Gateway,
    app: &AppName,
    id: &SessionId,
    turn: u32,
    until: u64,
    fold: &mut StepFold,
) -> Result<Vec<Step>, ApiError> {
    let mut steps = Vec::new();
    let mut range = EventRange::Turn(turn);
    loop {
        let events = gateway.sessions.events(app, id, range).await?;
        let Some(last) = events.last().map(|last| last.seq) else { return Ok(steps) };
        let own =
            events.iter().filter(|event| event.event.turn == Some(turn) && event.seq <= until);
        own.for_each(|event| steps.extend(fold.push(event)));
        let is_over = steps.iter().any(|step| matches!(step.kind, StepKind::TurnEnded { .. }));
        if is_over || last >= until {
            return Ok(steps);
        }
        range = EventRange::After { after: last, limit: PAGE_EVENTS };
    }
}

/// Where a feed begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FeedStart {
    /// With the first turn. If that turn is over, the steps before the feed are those of the turn alone.
    FirstTurn,
    /// With the running turn.
    RunningTurn,
    /// With the session.
    Session,
}

/// The steps of a session from now on.
pub(super) struct StepFeed {
    gateway: Arc<Gateway>,
    follow: Follow,
    fold: StepFold,
    last_event: u64,
    ready: VecDeque<Step>,
}

impl StepFeed {
    /// Opens a feed. Returns it with the steps before it, from `start` on: what renders the feed has to know them.
    pub async fn open(
        gateway: Arc<Gateway>,
        app: &AppName,
        session: &Session,
        start: FeedStart,
    ) -> Result<(StepFeed, Vec<Step>), ApiError> {
        let (id, last_event) = (&session.id, session.last_event);
        let follow = gateway.sessions.follow(app, id, last_event).await?;
        let mut fold = StepFold::default();
        let turns = gateway.sessions.turns_before(app, id, u32::MAX, RECENT_TURNS).await?;
        let open = turns.iter().find(|turn| !turn.state.is_over()).map(|turn| turn.index);
        // Turns that are over do not start again.
        let begun = open.map_or(session.turn_count, |turn| turn - 1);
        let steps = match (start, open) {
            (FeedStart::Session, _) => {
                let steps = fold_all(&gateway, app, id, last_event, &mut fold, |_| true).await?;
                fold.start_turn(begun, last_event, Timestamp::now());
                steps
            }
            (FeedStart::FirstTurn, _) => {
                let first = fold_turn(&gateway, app, id, 1, last_event, &mut fold).await?;
                let steps = match first.is_empty() {
                    // Before its first turn, the log is short.
                    true => fold_all(&gateway, app, id, last_event, &mut fold, |_| true).await?,
                    false => first,
                };
                fold.start_turn(begun, last_event, Timestamp::now());
                steps
            }
            (FeedStart::RunningTurn, Some(turn)) => {
                fold.start_turn(begun, last_event, Timestamp::now());
                fold_turn(&gateway, app, id, turn, last_event, &mut fold).await?
            }
            (FeedStart::RunningTurn, None) => {
                fold.start_turn(begun, last_event, Timestamp::now());
                Vec::new()
            }
        };
        let feed = StepFeed { gateway, follow, fold, last_event, ready: VecDeque::new() };
        Ok((feed, steps))
    }

    /// Returns the next step; `None` at the end of the session, when the server stops, or when the log can't be read.
    pub async fn next(&mut self) -> Option<Step> {
        loop {
            if let Some(step) = self.ready.pop_front() {
                return Some(step);
            }
            let stopping = self.gateway.runtime.stopping.clone();
            let news = tokio::select! {
                news = self.follow.next_news() => news,
                () = stopping.cancelled() => return None,
            };
            match news {
                Ok(Some(SessionNews::Event(event))) => {
                    self.last_event = event.seq;
                    self.ready.extend(self.fold.push(&event));
                }
                Ok(Some(SessionNews::TurnStarted(turn))) => {
                    let now = Timestamp::now();
                    self.ready.extend(self.fold.start_turn(turn, self.last_event, now));
                }
                Ok(None) => return None,
                Err(error) => {
                    tracing::error!(%error, "failed to read a stream");
                    return None;
                }
            }
        }
    }
}
