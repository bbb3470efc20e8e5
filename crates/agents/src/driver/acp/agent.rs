//! A conversation with a live agent over the protocol.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use agent_client_protocol::v1::schema::{
    CancelNotification, CloseSessionRequest, ContentBlock, PromptRequest, SessionId, TextContent,
};
use agent_client_protocol::{Error, ErrorCode};
use hob_child::StopLadder;
use hob_domain::SettingChange;
use serde_json::Value;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio_util::task::TaskTracker;

use super::connection::Connection;
use super::questions::Question;
use super::setting::{self, SentChange};
use super::setup::{self, Conversation};
use crate::driver::live_agent::{AgentCommand, AgentEvent, AgentExit, DriverChannels, LiveAgent};
use crate::driver::settings::SettingRefusal;
use crate::driver::start::{StartError, StartOptions};
use crate::json_lines::{JsonLine, LineError, LineKind};

/// How long an agent may take to exit after its input is closed, and again after SIGTERM.
const EXIT_GRACE: Duration = Duration::from_millis(700);
/// How long an agent may take to close its session.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// How long an agent may take to change a setting.
const SETTING_TIMEOUT: Duration = Duration::from_secs(25);

/// Starts the agent and starts or resumes its conversation.
pub(in crate::driver) async fn start(mut start: StartOptions) -> Result<LiveAgent, StartError> {
    if let (Some(name), Some(model)) = (&start.model_env, &start.model) {
        start.child.env.retain(|(known, _)| known != name.as_str());
        start.child.env.push((name.into(), model.into()));
    }
    let child = start.children.spawn(start.child.clone()).await?;
    let mut connection = Connection::open(child, &start)?;
    let limit = start.start_timeout;
    let set_up = tokio::select! {
        result = tokio::time::timeout(limit, set_up(&connection, &start)) => {
            result.unwrap_or_else(|_| {
                let text = format!("the agent was not ready within {} s", limit.as_secs());
                Err(StartError::Refused(text))
            })
        }
        _ = connection.child.exited() => {
            Err(StartError::Died { message: String::new(), stderr: String::new() })
        }
    };
    match set_up {
        Ok(conversation) => {
            connection.replay.listen();
            connection.is_started.store(true, Ordering::Release);
            let (mut agent, channels) = LiveAgent::new(conversation.name());
            agent.notice = conversation.notice.clone();
            agent.settings = connection.settings.clone();
            let agent_task = AcpAgent {
                session: SessionId::new(conversation.id),
                preamble: conversation.preamble,
                connection,
                prompt: None,
                prompts: 0,
                asked: HashMap::new(),
                changes: Vec::new(),
                tasks: start.tasks.clone(),
            };
            start.tasks.spawn(agent_task.run(channels));
            Ok(agent)
        }
        Err(error) => {
            if matches!(error, StartError::Died { .. }) {
                // Let an agent that is exiting finish, so that its own exit status is reported.
                let _ = tokio::time::timeout(EXIT_GRACE, connection.child.exited()).await;
            }
            let exit = connection.child.stop(StopLadder::AT_ONCE).await;
            // Its last words on standard error are complete only now.
            let stderr = connection.child.output().tail_text();
            Err(match error {
                StartError::Died { .. } => {
                    let message = format!("the agent ended with {exit} before it was ready");
                    StartError::Died { message, stderr }
                }
                error => error,
            })
        }
    }
}

/// Starts or resumes the conversation, and waits until the agent has replayed it.
async fn set_up(connection: &Connection, start: &StartOptions) -> Result<Conversation, StartError> {
    let conversation = setup::set_up(&connection.wire, start, &connection.settings).await?;
    if conversation.is_replayed {
        connection.replay.settle().await;
    }
    Ok(conversation)
}

/// A conversation with a live agent.
struct AcpAgent {
    session: SessionId,
    /// Text that precedes the first prompt.
    preamble: Option<String>,
    connection: Connection,
    /// The id of the prompt that is being answered.
    prompt: Option<Value>,
    /// How many prompts were sent.
    prompts: u64,
    /// Questions that wait for an answer.
    asked: HashMap<String, Question>,
    /// The ids of changes of settings without an answer.
    changes: Vec<Value>,
    tasks: TaskTracker,
}

/// The next input of the agent task.
enum Next {
    Command(Option<AgentCommand>),
    Line(Option<Result<JsonLine, LineError>>),
    Asked(Question),
}

impl AcpAgent {
    async fn run(mut self, mut channels: DriverChannels) {
        loop {
            let next = tokio::select! {
                biased;
                command = channels.commands.recv() => Next::Command(command),
                // The message of a question comes before the question itself.
                line = self.connection.lines.recv() => Next::Line(line),
                Some(question) = self.connection.questions.recv() => Next::Asked(question),
            };
            match next {
                Next::Command(None) => break,
                Next::Command(Some(AgentCommand::Close)) => {
                    self.close().await;
                    break;
                }
                Next::Command(Some(command)) => self.execute(command),
                Next::Line(None) => {
                    // The agent may only have closed its output.
                    let gone = self.end().await;
                    return channels.exit(gone).await;
                }
                Next::Line(Some(Err(error))) => {
                    let ended = vec![AgentEvent::TurnEnded(Err(error.to_string()))];
                    if self.prompt.take().is_some() && !channels.send(ended, None).await {
                        break;
                    }
                    let gone = self.end().await;
                    return channels.exit(gone).await;
                }
                // Nobody asked the agent for it but Hob, so it is no message of the conversation.
                Next::Line(Some(Ok(line))) if self.answers_change(&line) => {}
                Next::Line(Some(Ok(line))) => {
                    let end = self.turn_end(&line);
                    let mut events = vec![AgentEvent::Message(line.text)];
                    events.extend(end.map(AgentEvent::TurnEnded));
                    if !channels.send(events, line.permit).await {
                        break;
                    }
                }
                Next::Asked(question) => {
                    let request = question.request();
                    self.asked.insert(request.id.clone(), question);
                    if !channels.send(vec![AgentEvent::PermissionRequested(request)], None).await {
                        break;
                    }
                }
            }
        }
        self.end().await;
    }

    fn execute(&mut self, command: AgentCommand) {
        let wire = &self.connection.wire;
        match command {
            AgentCommand::Prompt(text) => {
                let text = match self.preamble.take() {
                    Some(preamble) => format!("{preamble}\n\n{text}"),
                    None => text,
                };
                let blocks = vec![ContentBlock::Text(TextContent::new(text))];
                let sent = wire.send_request(PromptRequest::new(self.session.clone(), blocks));
                self.prompt = serde_json::to_value(sent.raw_id()).ok();
                self.prompts += 1;
                // The response is read from the raw line, even if the library cannot parse it.
                sent.detach();
            }
            AgentCommand::Cancel => {
                let _ = wire.send_notification(CancelNotification::new(self.session.clone()));
                for (_, asked) in self.asked.drain() {
                    asked.answer(None, None);
                }
            }
            AgentCommand::AnswerPermission { request, option, content, .. } => {
                if let Some(asked) = self.asked.remove(&request) {
                    asked.answer(option, content);
                }
            }
            AgentCommand::Configure { change, reply } => self.configure(&change, reply),
            AgentCommand::Close => {}
        }
    }

    /// Sends a change of a setting. Its answer does not keep the agent's messages waiting.
    fn configure(
        &mut self,
        change: &SettingChange,
        reply: oneshot::Sender<Result<Value, SettingRefusal>>,
    ) {
        let settings = self.connection.settings.clone();
        let SentChange { id, answer } =
            setting::send(&self.connection.wire, &self.session, change, &settings);
        self.changes.extend(id);
        self.tasks.spawn(async move {
            let answer = tokio::time::timeout(SETTING_TIMEOUT, answer).await;
            let answer = answer.unwrap_or_else(|_| {
                let seconds = SETTING_TIMEOUT.as_secs();
                let text = format!("the agent did not answer within {seconds} s");
                Err(Error::new(ErrorCode::INTERNAL_ERROR, text))
            });
            let _ = reply.send(answer.map(|()| settings.to_json()).map_err(|error| {
                let code = i64::from(error.code.value());
                SettingRefusal { code, message: setup::words(&error) }
            }));
        });
    }

    /// Returns whether a line answers a change of a setting.
    fn answers_change(&mut self, line: &JsonLine) -> bool {
        let LineKind::Response(id) = &line.kind else { return false };
        let found = self.changes.iter().position(|change| change == id);
        found.map(|index| self.changes.swap_remove(index)).is_some()
    }

    /// Returns how the turn ended, if this line ends it.
    fn turn_end(&mut self, line: &JsonLine) -> Option<Result<String, String>> {
        let LineKind::Response(id) = &line.kind else { return None };
        if self.prompt.as_ref() != Some(id) {
            return None;
        }
        self.prompt = None;
        Some(read_turn_end(&line.text))
    }

    async fn close(&mut self) {
        let request = CloseSessionRequest::new(self.session.clone());
        let closing = self.connection.wire.send_request(request).block_task();
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, closing).await;
    }

    /// Ends the process tree: closes its input first, then stops an agent that ignores that.
    async fn end(self) -> AgentExit {
        let (prompt, prompts, writing) =
            (self.prompt.clone(), self.prompts, self.connection.writing());
        let Connection { mut child, .. } = self.connection.without_input();
        let _ = tokio::time::timeout(EXIT_GRACE, child.exited()).await;
        let exit = child.stop(StopLadder { polite: Duration::ZERO, term: EXIT_GRACE }).await;
        let prompt_unseen = prompt.is_some() && writing.is_unseen(prompts);
        AgentExit { status: exit.to_string(), stderr: child.output().tail_text(), prompt_unseen }
    }
}

/// Returns the stop reason of a prompt's response, or its error in words.
fn read_turn_end(text: &str) -> Result<String, String> {
    let value: Value = serde_json::from_str(text).unwrap_or_default();
    if let Some(error) = value.get("error") {
        let message = error["message"].as_str().unwrap_or("the agent failed without a message");
        let detail = match &error["data"] {
            Value::String(text) => Some(text.clone()),
            data => {
                ["details", "message"].iter().find_map(|key| data[*key].as_str().map(str::to_owned))
            }
        };
        return Err(match detail.filter(|detail| detail != message) {
            Some(detail) => format!("{message}: {detail}"),
            None => message.to_owned(),
        });
    }
    Ok(value["result"]["stopReason"].as_str().unwrap_or("end_turn").to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seed 003, and the errors of real agents.
    #[test]
    fn responses_end_the_turn() {
        let check = |text: &str, expect: Result<&str, &str>| {
            let found = read_turn_end(text);
            assert_eq!(found.as_deref().map_err(String::as_str), expect, "{text}");
        };
        check(
            r#"{"jsonrpc":"2.0","id":"req-1","result":{"stopReason":"end_turn"}}"#,
            Ok("end_turn"),
        );
        check(r#"{"id":1,"result":{"stopReason":"from_the_future"}}"#, Ok("from_the_future"));
        check(r#"{"id":1,"result":{}}"#, Ok("end_turn"));
        check(
            r#"{"id":1,"error":{"code":-32603,"message":"Internal error"}}"#,
            Err("Internal error"),
        );
        let detailed =
            r#"{"id":1,"error":{"code":1,"message":"Internal error","data":{"details":"no key"}}}"#;
        check(detailed, Err("Internal error: no key"));
        check(r#"{"id":1,"error":{}}"#, Err("the agent failed without a message"));
    }
}
