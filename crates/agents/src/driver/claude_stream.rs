//! Claude Code without a terminal, as a session's agent: stream-json in both directions.
//!
//! - The program is ready as soon as it runs. Before the first prompt it only says what it offers, when it is asked.
//! - A text that arrived as deltas is left out when it arrives whole.
//! - Permission requests arrive once `--permission-prompt-tool stdio` is given.
//! - An interrupted turn ends with a `result` of subtype `error_during_execution`.

use std::collections::HashMap;
use std::time::Duration;

use hob_child::{Child, Stdin, StopLadder, Streams};
use hob_domain::Block;
use hob_domain::session::Permissions;
use hob_transcript::claude::stream_json::{
    self, DeltaKind, StreamEvent, StreamResult, ToolPermissionRequest,
};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::claude::{self, PreparedSession};
use super::claude_settings::ClaudeSettings;
use super::live_agent::{
    AgentCommand, AgentEvent, AgentExit, DriverChannels, LiveAgent, PermissionOption,
    PermissionOptionKind, PermissionRequest,
};
use super::permission_detail::permission_detail;
use super::start::{StartError, StartOptions};
use crate::claude::pipes::{self, MAX_PENDING_RECORDS, Record};
use crate::claude::{ClaudeTransport, STREAM_ARGUMENTS};

/// How long the program may take to exit after its input is closed.
const EXIT_GRACE: Duration = Duration::from_millis(1500);
/// How long the program may take to say what it offers. Every start of one that does not answer takes this long.
const INITIALIZE_TIMEOUT: Duration = Duration::from_secs(5);
/// The id of the request for what the program offers.
const INITIALIZE_ID: &str = "hob-initialize";
/// What the model reads of a denied tool call, if the answer has no message.
const DENIED: &str = "This was not allowed.";

/// Starts the program.
pub(crate) async fn start(start: StartOptions) -> Result<LiveAgent, StartError> {
    let (prepared, start) = claude::prepare(start, ClaudeTransport::Stream).await?;
    let mut arguments: Vec<String> = STREAM_ARGUMENTS.map(str::to_owned).into();
    if start.permissions == Permissions::Ask {
        arguments.extend(["--permission-prompt-tool".to_owned(), "stdio".to_owned()]);
    }
    arguments.extend(prepared.arguments.iter().cloned());
    let mut spec = start.child.clone();
    spec.args.extend(arguments.into_iter().map(Into::into));
    spec.streams = Streams::Pipes { stdin: Stdin::Pipe };
    let mut child = start.children.spawn(spec).await?;
    let internal = |text: &str| StartError::Internal(text.to_owned());
    let input = child.stdin.take().ok_or_else(|| internal("the agent has no input"))?;
    let output = child.stdout.take().ok_or_else(|| internal("the agent has no output"))?;
    let (mut agent, channels) = LiveAgent::new(prepared.session.clone());
    agent.notice = prepared.notice();
    let (messages, to_write) = mpsc::unbounded_channel();
    start.tasks.spawn(pipes::write(input, to_write));
    let (records, mut received) = mpsc::channel(MAX_PENDING_RECORDS);
    start.tasks.spawn(pipes::read(output, records, start.permits.long_lines.clone()));
    let mut translator = Translator::new(&prepared.session);
    translator.settings = ClaudeSettings::new(start.permissions);
    let _ = messages.send(stream_json::initialize_request(INITIALIZE_ID));
    // A program that does not answer in time has no settings.
    let limit = INITIALIZE_TIMEOUT.min(start.start_timeout);
    let offer = tokio::time::timeout(limit, first_answer(&mut received)).await;
    if let Ok(Some(offer)) = offer {
        translator.settings.read_offer(&offer, prepared.model.as_deref());
    }
    agent.settings = translator.settings.shown.clone();
    let agent_task = StreamAgent { child, input: messages, translator };
    start.tasks.spawn(agent_task.run(received, prepared, channels));
    Ok(agent)
}

/// Waits for what the program offers. Nothing else that it says before its first prompt matters. Returns `None` if it ends, or
/// cannot answer.
async fn first_answer(records: &mut mpsc::Receiver<Record>) -> Option<Value> {
    loop {
        let answer = stream_json::control_answer(&records.recv().await?.value);
        if let Some(answer) = answer.filter(|answer| answer.id == INITIALIZE_ID) {
            return answer.result.ok();
        }
    }
}

struct StreamAgent {
    child: Child,
    /// Dropping it closes the program's input.
    input: mpsc::UnboundedSender<Value>,
    translator: Translator,
}

impl StreamAgent {
    async fn run(
        mut self,
        mut records: mpsc::Receiver<Record>,
        prepared: PreparedSession,
        mut channels: DriverChannels,
    ) {
        let mut pending = Vec::new();
        let mut permit = None;
        let has_exited = 'run: loop {
            if !channels.send(std::mem::take(&mut pending), permit.take()).await {
                break 'run false;
            }
            tokio::select! {
                biased;
                command = channels.commands.recv() => match command {
                    None | Some(AgentCommand::Close) => break false,
                    Some(command) => {
                        if let Some(message) = self.translator.command(command) {
                            let _ = self.input.send(message);
                        }
                    }
                },
                record = records.recv() => match record {
                    Some(record) => {
                        pending = self.translator.record(&record.value);
                        permit = record.permit;
                    }
                    None => break true,
                },
            }
        };
        drop(self.input);
        let _ = tokio::time::timeout(EXIT_GRACE, self.child.exited()).await;
        let exit = self.child.stop(StopLadder::AT_ONCE).await;
        drop(prepared);
        if has_exited {
            let stderr = self.child.output().tail_text();
            channels
                .exit(AgentExit { status: exit.to_string(), stderr, prompt_unseen: false })
                .await;
        }
    }
}

/// Translates between stream-json and the Agent Client Protocol. Pure.
struct Translator {
    session: String,
    /// The id of the prompt that is being answered.
    prompt: String,
    interrupted: bool,
    /// How many control requests were sent.
    requests: u64,
    /// The input of each tool call that waits for permission.
    asked: HashMap<String, Value>,
    /// The kinds of blocks of the current message that arrived as deltas. Such a block is left out when
    /// it arrives whole.
    sent_as_deltas: Vec<DeltaKind>,
    settings: ClaudeSettings,
}

impl Translator {
    fn new(session: &str) -> Translator {
        Translator {
            session: session.to_owned(),
            prompt: String::new(),
            interrupted: false,
            requests: 0,
            asked: HashMap::new(),
            sent_as_deltas: Vec::new(),
            settings: ClaudeSettings::default(),
        }
    }

    /// Returns the message that carries out a command.
    fn command(&mut self, command: AgentCommand) -> Option<Value> {
        match command {
            AgentCommand::Prompt(text) => {
                self.prompt = claude::new_prompt_id();
                self.interrupted = false;
                Some(stream_json::user_message(&self.settings.prompt(&text)))
            }
            AgentCommand::Cancel => {
                self.interrupted = true;
                self.requests += 1;
                Some(stream_json::interrupt_request(&format!("hob-{}", self.requests)))
            }
            AgentCommand::AnswerPermission { request, option, message, .. } => {
                let input = self.asked.remove(&request)?;
                Some(match option.as_deref() {
                    Some("allow") => stream_json::allow_response(&request, &input),
                    _ => {
                        let message = message.filter(|text| !text.trim().is_empty());
                        stream_json::deny_response(&request, message.as_deref().unwrap_or(DENIED))
                    }
                })
            }
            AgentCommand::Configure { change, reply } => {
                self.requests += 1;
                self.settings.request(&format!("hob-{}", self.requests), change, reply)
            }
            AgentCommand::Close => None,
        }
    }

    /// Returns the events that a record stands for.
    fn record(&mut self, record: &Value) -> Vec<AgentEvent> {
        self.settings.read(record);
        match stream_json::parse(record) {
            Some(StreamEvent::Delta { kind, text }) if !text.is_empty() => {
                self.sent_as_deltas.push(kind);
                let update = json!({"sessionUpdate": chunk_kind(kind),
                    "content": {"type": "text", "text": text}});
                vec![self.message(update, record)]
            }
            Some(StreamEvent::Assistant(message)) => {
                // Every block of a message arrives whole after its own deltas.
                let sent_as_deltas = std::mem::take(&mut self.sent_as_deltas);
                let is_new = |block: &&Block| match block {
                    Block::ToolResult { .. } => false,
                    Block::Text(_) => !sent_as_deltas.contains(&DeltaKind::Text),
                    Block::Thinking { .. } => !sent_as_deltas.contains(&DeltaKind::Thinking),
                    _ => true,
                };
                self.blocks(message.blocks.iter().filter(is_new), record)
            }
            Some(StreamEvent::ToolResults(blocks)) => self.blocks(blocks.iter(), record),
            Some(StreamEvent::PermissionRequest(request)) => self.ask(request, record),
            Some(StreamEvent::Result(result)) => self.result(&result, record),
            Some(
                StreamEvent::Delta { .. }
                | StreamEvent::CallBegin { .. }
                | StreamEvent::CallPiece { .. }
                | StreamEvent::MessageEnd,
            )
            | None => Vec::new(),
        }
    }

    fn message(&self, update: Value, raw: &Value) -> AgentEvent {
        AgentEvent::Message(claude::update(&self.session, update, raw))
    }

    fn blocks<'a>(
        &self,
        blocks: impl Iterator<Item = &'a Block>,
        record: &Value,
    ) -> Vec<AgentEvent> {
        blocks
            .filter_map(|block| Some(self.message(claude::block_update(block)?, record)))
            .collect()
    }

    fn ask(&mut self, request: ToolPermissionRequest, record: &Value) -> Vec<AgentEvent> {
        let ToolPermissionRequest { id, tool, tool_use_id, input } = request;
        let choices = json!([
            {"optionId": "allow", "name": "Allow", "kind": "allow_once"},
            {"optionId": "reject", "name": "Reject", "kind": "reject_once"}]);
        let title = claude::permission_title(&tool, &input);
        let mut call = json!({"toolCallId": tool_use_id, "title": title,
            "kind": claude::tool_kind(&tool), "rawInput": input});
        let detail = permission_detail(&title, &call);
        claude::add_changes(&mut call, &input);
        let message = json!({"jsonrpc": "2.0", "id": id, "method": "session/request_permission",
            "params": {"sessionId": self.session, "toolCall": call, "options": choices,
                "_meta": {"raw": record}}});
        self.asked.insert(id.clone(), input);
        let options = vec![
            PermissionOption::new("allow", "Allow", PermissionOptionKind::AllowOnce),
            PermissionOption::new("reject", "Reject", PermissionOptionKind::RejectOnce),
        ];
        let request = PermissionRequest { id, title, detail, options, form: None };
        vec![AgentEvent::Message(message.to_string()), AgentEvent::PermissionRequested(request)]
    }

    fn result(&mut self, result: &StreamResult, record: &Value) -> Vec<AgentEvent> {
        self.sent_as_deltas.clear();
        self.asked.clear();
        let mut events = Vec::new();
        if let Some(cost) = result.total_cost_usd {
            events.push(self.message(claude::cost_update(cost), &Value::Null));
        }
        let succeeded = !result.is_error && result.subtype.as_deref() == Some("success");
        let end = if self.interrupted && !succeeded {
            Ok("cancelled".to_owned())
        } else if result.is_error {
            let text = result.error.as_deref().or(result.subtype.as_deref());
            Err(text.unwrap_or("the agent failed").to_owned())
        } else {
            let native = result.stop_reason.as_deref().unwrap_or("end_turn");
            Ok(claude::stop_reason(native).to_owned())
        };
        let usage = json!({"inputTokens": result.input_tokens,
            "outputTokens": result.output_tokens,
            "cachedReadTokens": result.cache_read_input_tokens,
            "cachedWriteTokens": result.cache_creation_input_tokens});
        events.push(AgentEvent::Message(match &end {
            Ok(reason) => claude::result(&self.prompt, reason, &usage, record),
            Err(message) => claude::error(&self.prompt, message, record),
        }));
        events.push(AgentEvent::TurnEnded(end));
        events
    }
}

fn chunk_kind(kind: DeltaKind) -> &'static str {
    match kind {
        DeltaKind::Text => "agent_message_chunk",
        DeltaKind::Thinking => "agent_thought_chunk",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(said: &[AgentEvent]) -> Vec<String> {
        let text = |said: &AgentEvent| match said {
            AgentEvent::Message(line) => {
                let value: Value = serde_json::from_str(line).unwrap();
                let update = &value["params"]["update"];
                Some(match update["sessionUpdate"].as_str() {
                    Some(kind) => {
                        format!("{kind}:{}", update["content"]["text"].as_str().unwrap_or(""))
                    }
                    None => value["result"]["stopReason"].as_str().unwrap_or("error").to_owned(),
                })
            }
            AgentEvent::TurnEnded(over) => Some(format!("{over:?}")),
            _ => None,
        };
        said.iter().filter_map(text).collect()
    }

    fn delta(text: &str) -> Value {
        json!({"type": "stream_event", "parent_tool_use_id": null,
            "event": {"type": "content_block_delta", "delta": {"type": "text_delta", "text": text}}})
    }

    fn says(text: &str) -> Value {
        json!({"type": "assistant", "message": {"id": "m", "content": [{"type": "text", "text": text}]}})
    }

    /// A text that arrived as deltas is not repeated whole; one that did not is sent whole.
    #[test]
    fn text_is_sent_once() {
        let mut translator = Translator::new("s");
        let mut said = Vec::new();
        for record in [
            delta("one "),
            delta("two"),
            says("one two"),
            says("three"),
            json!({"type": "result", "subtype": "success", "is_error": false, "stop_reason": "end_turn"}),
        ] {
            said.extend(translator.record(&record));
        }
        let expect = [
            "agent_message_chunk:one ",
            "agent_message_chunk:two",
            "agent_message_chunk:three",
            "end_turn",
            "Ok(\"end_turn\")",
        ];
        assert_eq!(texts(&said), expect);
    }

    #[test]
    fn permission_requests_are_answered_once() {
        let mut translator = Translator::new("s");
        let request = json!({"type": "control_request", "request_id": "r1", "request": {
            "subtype": "can_use_tool", "tool_name": "Bash", "input": {"command": "x"}}});
        let said = translator.record(&request);
        assert!(
            matches!(&said[1], AgentEvent::PermissionRequested(ask) if ask.id == "r1" && ask.options.len() == 2)
        );
        let answer_with = |option: &str, message: Option<&str>| AgentCommand::AnswerPermission {
            request: "r1".into(),
            option: Some(option.into()),
            content: None,
            message: message.map(str::to_owned),
        };
        let answer = |option: &str| answer_with(option, None);
        let allowed = translator.command(answer("allow")).unwrap();
        assert_eq!(allowed["response"]["response"]["updatedInput"], json!({"command": "x"}));
        assert!(translator.command(answer("allow")).is_none(), "a request is answered once");
        translator.record(&request);
        let denied = translator.command(answer("reject")).unwrap();
        assert_eq!(denied["response"]["response"]["behavior"], "deny");
        translator.record(&request);
        let denied = translator.command(answer_with("reject", Some("use rm -i"))).unwrap();
        assert_eq!(denied["response"]["response"]["message"], "use rm -i");
    }

    #[test]
    fn permission_request_has_the_change_that_it_is_for() {
        let mut translator = Translator::new("s");
        let input = json!({"file_path": "/a", "old_string": "x", "new_string": "y"});
        let said = translator.record(&json!({"type": "control_request", "request_id": "r1",
            "request": {"subtype": "can_use_tool", "tool_name": "Edit", "tool_use_id": "toolu_1",
                "input": input}}));
        let AgentEvent::Message(line) = &said[0] else { panic!("a message") };
        let message: Value = serde_json::from_str(line).unwrap();
        let diff = json!({"type": "diff", "path": "/a", "oldText": "x", "newText": "y"});
        let expect = json!({"toolCallId": "toolu_1", "title": "Edit: /a", "kind": "edit",
            "rawInput": input, "locations": [{"path": "/a"}], "content": [diff]});
        assert_eq!(message["params"]["toolCall"], expect);
    }

    #[test]
    fn results_end_the_turn() {
        let mut translator = Translator::new("s");
        let failed = json!({"type": "result", "subtype": "success", "is_error": true, "result": "API Error: 529"});
        assert_eq!(texts(&translator.record(&failed)), ["error", "Err(\"API Error: 529\")"]);
        let prompt = translator.command(AgentCommand::Prompt("/clear".into())).unwrap();
        assert_eq!(prompt["message"]["content"], "\u{2800}/clear");
        assert_eq!(
            translator.command(AgentCommand::Cancel).unwrap()["request"]["subtype"],
            "interrupt"
        );
        let broken =
            json!({"type": "result", "subtype": "error_during_execution", "is_error": true});
        assert_eq!(texts(&translator.record(&broken)), ["cancelled", "Ok(\"cancelled\")"]);
    }
}
