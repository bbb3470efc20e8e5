//! The interactive Claude Code in its terminal, as a session's agent.

use std::time::Duration;

use hob_transcript::claude::{Usage, UsageById};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::claude::{self, PreparedSession};
use super::live_agent::{AgentCommand, AgentEvent, AgentExit, DriverChannels, LiveAgent};
use super::start::{StartError, StartOptions};
use crate::claude::{
    BackendError, ClaudeTransport, Event, Launch, TerminalSession, TurnEnd, TurnResult,
    TurnTimeouts,
};

/// Effectively no limit: the session has its own turn timeout.
const NO_TURN_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 3600);
/// A turn without activity for this long reports a stall.
const STALL_AFTER: Duration = Duration::from_secs(20);

/// Starts the program and waits for its prompt.
pub(crate) async fn start(start: StartOptions) -> Result<LiveAgent, StartError> {
    let (prepared, start) = claude::prepare(start, ClaudeTransport::Terminal).await?;
    let folder = prepared.transcript.create_folder();
    let folder = folder.map_err(|error| StartError::Internal(error.to_string()))?;
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
        owner: start.child.owner.clone().unwrap_or_default(),
        session_id: prepared.session.clone(),
        transcript: prepared.transcript.clone(),
        watch: start.changes.watch(&folder),
        confinement: start.child.confinement.clone(),
        records: start.permits.records.clone(),
        registrar: start.registrar.clone(),
        cost: prepared.cost_meter(&start),
    };
    let limits =
        TurnTimeouts { ready: start.start_timeout, turn: NO_TURN_TIMEOUT, stall: STALL_AFTER };
    let session = TerminalSession::start(&start.children, launch, limits).await;
    let session = session.map_err(|error| match error {
        BackendError::NotInstalled(text) => StartError::NotInstalled(text),
        BackendError::Died { how, said } => {
            StartError::Died { message: format!("claude ended with {how}"), stderr: said }
        }
        BackendError::Internal(inside) => StartError::Internal(inside),
        error => StartError::Refused(error.to_string()),
    })?;
    let (mut agent, channels) = LiveAgent::new(prepared.session.clone());
    agent.notice = prepared.notice();
    let cost = SessionCost { session: prepared.session.clone(), usd: start.cost };
    start.tasks.spawn(run(session, prepared, limits, channels, cost));
    Ok(agent)
}

/// What the conversation has cost, with the costs of earlier processes.
struct SessionCost {
    session: String,
    usd: f64,
}

impl SessionCost {
    /// Adds what the process has cost since, and returns the message that says so.
    fn add(&mut self, growth: f64) -> Option<AgentEvent> {
        self.usd += growth;
        let update = claude::cost_update(self.usd);
        (growth > 0.0)
            .then(|| AgentEvent::Message(claude::update(&self.session, update, &Value::Null)))
    }
}

/// Runs prompts one by one until the channel closes or a turn breaks the process.
async fn run(
    mut session: TerminalSession,
    prepared: PreparedSession,
    limits: TurnTimeouts,
    mut channels: DriverChannels,
    mut cost: SessionCost,
) {
    let exit_status = loop {
        let prompt = tokio::select! {
            command = channels.commands.recv() => match command {
                Some(AgentCommand::Prompt(prompt)) => prompt,
                None | Some(AgentCommand::Close) => break None,
                Some(_) => continue,
            },
            how = session.exited() => break Some(how),
            growth = session.cost.late_growth() => {
                channels.send(cost.add(growth).into_iter().collect(), None).await;
                continue;
            }
        };
        if let Err(how) = turn(&mut session, &prompt, limits, &mut channels, &mut cost).await {
            break Some(how);
        }
    };
    session.end().await;
    // Not earlier: the program reads the MCP file while it starts.
    drop(prepared);
    if let Some(status) = exit_status {
        channels.exit(AgentExit { status, stderr: String::new(), prompt_unseen: false }).await;
    }
}

/// Runs one turn. An error means that the process must be ended, and says why.
async fn turn(
    session: &mut TerminalSession,
    prompt: &str,
    limits: TurnTimeouts,
    channels: &mut DriverChannels,
    cost: &mut SessionCost,
) -> Result<(), String> {
    let name = cost.session.clone();
    let (events, mut happened) = mpsc::unbounded_channel::<(Event, Value)>();
    let interrupt = CancellationToken::new();
    let mut used = UsageById::new();
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
                    count(&mut used, &event);
                    if let Some(event) = translate(&name, event, &raw)
                        && !channels.send(vec![event], None).await
                    {
                        return Err("the client disconnected".to_owned());
                    }
                }
                command = channels.commands.recv() => match command {
                    Some(AgentCommand::Cancel) => interrupt.cancel(),
                    None | Some(AgentCommand::Close) => return Err("the session was closed".to_owned()),
                    Some(_) => {}
                },
                end = &mut turn => break end,
            }
        }
    };
    while let Ok((event, raw)) = happened.try_recv() {
        count(&mut used, &event);
        if let Some(event) = translate(&name, event, &raw) {
            let _ = channels.send(vec![event], None).await;
        }
    }
    let prompt = claude::new_prompt_id();
    // A cancelled turn has used what its messages have used so far.
    let cancelled = || {
        let used = usage(&Usage::total(used.values()));
        claude::result(&prompt, "cancelled", &used, &Value::Null)
    };
    let growth = match &end {
        Ok(TurnEnd::Finished(result)) => result.cost_usd,
        _ => session.cost.growth().await,
    };
    let (line, over, usable) = match end {
        Ok(TurnEnd::Finished(result)) => {
            let reason = claude::stop_reason(&result.stop_reason).to_owned();
            let line =
                claude::result(&prompt, &reason, &usage(&result.usage), &raw_result(&result));
            (line, Ok(reason), Ok(()))
        }
        Ok(TurnEnd::Interrupted) => (cancelled(), Ok("cancelled".to_owned()), Ok(())),
        Err(BackendError::Died { how, .. }) => return Err(how),
        // The turn was interrupted, but the process is not proven clean, so it is ended.
        Err(error) if interrupt.is_cancelled() => {
            (cancelled(), Ok("cancelled".to_owned()), Err(error.to_string()))
        }
        Err(error) => {
            let text = error.to_string();
            (claude::error(&prompt, &text, &Value::Null), Err(text.clone()), Err(text))
        }
    };
    let last = [AgentEvent::Message(line), AgentEvent::TurnEnded(over)];
    let _ = channels.send(cost.add(growth).into_iter().chain(last).collect(), None).await;
    usable
}

/// Translates an event. The echo of the prompt has no translation.
fn translate(session: &str, event: Event, raw: &Value) -> Option<AgentEvent> {
    let block = match event {
        Event::Assistant { block, .. } | Event::ToolResult { block } => block,
        Event::Stalled { screen } => return Some(AgentEvent::Stalled(screen)),
        Event::User { .. }
        | Event::Piece { .. }
        | Event::CallBegin { .. }
        | Event::CallPiece { .. }
        | Event::MessageEnd
        | Event::Paused(_)
        | Event::Result(_) => {
            return None;
        }
    };
    let update = claude::block_update(&block)?;
    Some(AgentEvent::Message(claude::update(session, update, raw)))
}

/// Counts the tokens of a message.
fn count(used: &mut UsageById, event: &Event) {
    if let Event::Assistant { message_id, usage, .. } = event {
        used.insert(message_id.clone(), *usage);
    }
}

/// Returns the tokens as ACP counts them.
fn usage(usage: &Usage) -> Value {
    json!({"inputTokens": usage.input_tokens, "outputTokens": usage.output_tokens,
        "cachedReadTokens": usage.cache_read_input_tokens,
        "cachedWriteTokens": usage.cache_creation_input_tokens})
}

fn raw_result(result: &TurnResult) -> Value {
    json!({"type": "result", "subtype": result.subtype, "duration_ms": result.duration_ms,
        "num_turns": result.num_turns, "session_id": result.session_id,
        "stop_reason": result.stop_reason})
}
