//! The interactive Claude Code in its terminal, as a session's agent.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::claude::{self, Prepared};
use super::{Ends, Gone, LiveAgent, Order, Said, Start, StartError};
use crate::claude::{BackendError, Event, Launch, Limits, LiveSession, TurnEnd, TurnResult};

/// Nobody else ends a turn: whoever asks knows how long it may take.
const FOR_EVER: Duration = Duration::from_secs(365 * 24 * 3600);
/// After so long without a sign it is said what the screen shows.
const STALL: Duration = Duration::from_secs(20);

/// Starts it and waits for its prompt.
pub(crate) async fn start(mut start: Start) -> Result<LiveAgent, StartError> {
    let prepared = claude::prepare(&mut start)?;
    let folder = prepared.transcript.parent().map(ToOwned::to_owned).unwrap_or_default();
    std::fs::create_dir_all(&folder).map_err(|error| StartError::Internal(error.to_string()))?;
    let mut environment = start.child.env.clone();
    environment.retain(|(name, _)| name != "TERM");
    environment.push(("TERM".into(), "xterm-256color".into()));
    let mut command: Vec<_> = vec![start.child.program.clone()];
    command.extend(start.child.args.iter().cloned());
    let launch = Launch {
        command: command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        arguments: prepared.arguments.clone(),
        environment,
        cwd: start.child.cwd.clone(),
        app: start.child.owner.clone().unwrap_or_default(),
        session_id: prepared.session.clone(),
        transcript: prepared.transcript.clone(),
        watch: start.changes.watch(&folder),
        confinement: start.child.confinement.clone(),
        entering: start.entering.clone(),
    };
    let limits = Limits { ready: start.patience, turn: FOR_EVER, stall: STALL };
    let session = LiveSession::start(&start.children, launch, limits).await;
    let session = session.map_err(|error| match error {
        BackendError::NotInstalled(text) => StartError::NotInstalled(text),
        BackendError::Died { how, said } => {
            StartError::Died { message: format!("claude ended with {how}"), stderr: said }
        }
        BackendError::Internal(inside) => StartError::Internal(inside),
        error => StartError::Refused(error.to_string()),
    })?;
    let (mut agent, ends) = LiveAgent::new(prepared.session.clone());
    agent.notice = prepared.notice();
    start.tasks.spawn(talk(session, prepared, limits, ends));
    Ok(agent)
}

/// Takes prompts one by one until nobody is there to give them, or a turn went wrong.
async fn talk(mut session: LiveSession, prepared: Prepared, limits: Limits, mut ends: Ends) {
    let gone = loop {
        let prompt = tokio::select! {
            order = ends.orders.recv() => match order {
                Some(Order::Prompt(prompt)) => prompt,
                None | Some(Order::Close) => break None,
                Some(_) => continue,
            },
            how = session.exited() => break Some(how),
        };
        if let Err(how) = turn(&mut session, &prepared.session, &prompt, limits, &mut ends).await {
            break Some(how);
        }
    };
    session.end().await;
    // Only now: the program reads the file while it starts.
    drop(prepared);
    if let Some(how) = gone {
        ends.gone(Gone { how, stderr: String::new(), unasked: false }).await;
    }
}

/// One turn. An error means that the process can't be used any more, and says why.
async fn turn(
    session: &mut LiveSession,
    name: &str,
    prompt: &str,
    limits: Limits,
    ends: &mut Ends,
) -> Result<(), String> {
    let (events, mut happened) = mpsc::unbounded_channel::<(Event, Value)>();
    let interrupt = CancellationToken::new();
    let emit = move |event: Event, raw: &str| {
        let raw = serde_json::from_str(raw).unwrap_or_default();
        let _ = events.send((event, raw));
    };
    let end = {
        let turn = session.turn(prompt, limits, &interrupt, emit);
        let mut turn = std::pin::pin!(turn);
        loop {
            tokio::select! {
                biased;
                Some((event, raw)) = happened.recv() => {
                    if let Some(said) = said(name, event, &raw)
                        && ends.said.send(said).await.is_err()
                    {
                        return Err("nobody listens".to_owned());
                    }
                }
                order = ends.orders.recv() => match order {
                    Some(Order::Cancel) => interrupt.cancel(),
                    None | Some(Order::Close) => return Err("it was closed".to_owned()),
                    Some(_) => {}
                },
                end = &mut turn => break end,
            }
        }
    };
    while let Ok((event, raw)) = happened.try_recv() {
        if let Some(said) = said(name, event, &raw) {
            let _ = ends.said.send(said).await;
        }
    }
    let prompt = claude::prompt_name();
    let (line, over, still_good) = match end {
        Ok(TurnEnd::Finished(result)) => {
            let reason = claude::stop_reason(&result.stop_reason).to_owned();
            let line = claude::result(&prompt, &reason, &usage(&result), &raw_result(&result));
            (line, Ok(reason), Ok(()))
        }
        Ok(TurnEnd::Interrupted) => {
            let line = claude::result(&prompt, "cancelled", &json!({}), &Value::Null);
            (line, Ok("cancelled".to_owned()), Ok(()))
        }
        Err(BackendError::Died { how, .. }) => return Err(how),
        // It was interrupted; whether it is ready for more can't be told, so it is ended.
        Err(error) if interrupt.is_cancelled() => {
            let line = claude::result(&prompt, "cancelled", &json!({}), &Value::Null);
            (line, Ok("cancelled".to_owned()), Err(error.to_string()))
        }
        Err(error) => {
            let text = error.to_string();
            (claude::error(&prompt, &text, &Value::Null), Err(text.clone()), Err(text))
        }
    };
    let _ = ends.said.send(Said::Line(line)).await;
    let _ = ends.said.send(Said::Over(over)).await;
    still_good
}

/// An event in the words of the protocol; the echo of the prompt is none.
fn said(session: &str, event: Event, raw: &Value) -> Option<Said> {
    let block = match event {
        Event::Assistant { block, .. } | Event::ToolResult { block } => block,
        Event::Stalled { screen } => return Some(Said::Stalled(screen)),
        Event::User { .. } | Event::Piece { .. } | Event::Result(_) => return None,
    };
    let update = claude::block_update(&block)?;
    Some(Said::Line(claude::update(session, update, raw)))
}

fn usage(result: &TurnResult) -> Value {
    let usage = result.usage;
    json!({"inputTokens": usage.input_tokens, "outputTokens": usage.output_tokens,
        "cachedReadTokens": usage.cache_read_input_tokens,
        "cachedWriteTokens": usage.cache_creation_input_tokens})
}

fn raw_result(result: &TurnResult) -> Value {
    json!({"type": "result", "subtype": result.subtype, "duration_ms": result.duration_ms,
        "num_turns": result.num_turns, "session_id": result.session_id,
        "stop_reason": result.stop_reason})
}
