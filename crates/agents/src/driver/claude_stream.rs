//! Claude Code without a terminal, JSON lines both ways, as a session's agent.
//!
//! What the real CLI does, and what follows:
//! - It says nothing before the first prompt, so it is ready as soon as it runs.
//! - With partial messages a text comes in pieces first and then whole: the whole is left out then.
//! - Questions come as `can_use_tool` requests once `--permission-prompt-tool stdio` is given.
//! - A turn ends with a `result`; interrupted, with one of subtype `error_during_execution`.

use std::collections::HashMap;
use std::time::Duration;

use hob_child::{Child, Stdin, StopLadder, Streams};
use hob_domain::Block;
use hob_domain::session::Permissions;
use serde_json::{Value, json};
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::net::unix::pipe;
use tokio::sync::mpsc;

use super::acp::lines;
use super::claude::{self, Prepared};
use super::{Ask, Ends, Gone, LiveAgent, Offer, OfferKind, Order, Said, Start, StartError};
use crate::claude::input;

/// Records that wait to be said; then the program itself waits.
pub(crate) const RECORDS: usize = 256;
/// How long it may take to end when its input does.
const POLITE: Duration = Duration::from_millis(1500);

/// Starts it.
pub(crate) async fn start(mut start: Start) -> Result<LiveAgent, StartError> {
    let prepared = claude::prepare(&mut start)?;
    let mut arguments: Vec<String> = [
        "-p",
        "--input-format",
        "stream-json",
        "--output-format",
        "stream-json",
        "--verbose",
        "--include-partial-messages",
    ]
    .map(str::to_owned)
    .into();
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
    let (mut agent, ends) = LiveAgent::new(prepared.session.clone());
    agent.notice = prepared.notice();
    let (messages, to_write) = mpsc::unbounded_channel();
    start.tasks.spawn(write(input, to_write));
    let talk = Talk { child, input: messages, translator: Translator::new(&prepared.session) };
    let (records, received) = mpsc::channel(RECORDS);
    start.tasks.spawn(read(output, records));
    start.tasks.spawn(talk.run(received, prepared, ends));
    Ok(agent)
}

/// Reads records to the end; half a line is never given up for something else.
pub(crate) async fn read(output: pipe::Receiver, records: mpsc::Sender<Value>) {
    let mut output = BufReader::with_capacity(16 << 10, output);
    while let Some(line) = lines::next(&mut output).await {
        let record = serde_json::from_str(&line.text).unwrap_or_default();
        if records.send(record).await.is_err() {
            return;
        }
    }
}

/// Writes messages until there are no more: whoever waits for the program to read them is not held up.
pub(crate) async fn write(mut input: pipe::Sender, mut messages: mpsc::UnboundedReceiver<Value>) {
    while let Some(message) = messages.recv().await {
        let line = format!("{message}\n");
        // One that does not read any more ends, and says so by that.
        if input.write_all(line.as_bytes()).await.is_err() {
            return;
        }
    }
}

struct Talk {
    child: Child,
    /// Closed when it is dropped, and with it the program's input.
    input: mpsc::UnboundedSender<Value>,
    translator: Translator,
}

impl Talk {
    async fn run(mut self, mut records: mpsc::Receiver<Value>, prepared: Prepared, mut ends: Ends) {
        let mut saying = Vec::new().into_iter();
        let is_gone = 'talk: loop {
            for said in saying.by_ref() {
                if ends.said.send(said).await.is_err() {
                    break 'talk false;
                }
            }
            tokio::select! {
                biased;
                order = ends.orders.recv() => match order {
                    None | Some(Order::Close) => break false,
                    Some(order) => {
                        if let Some(message) = self.translator.order(order) {
                            let _ = self.input.send(message);
                        }
                    }
                },
                record = records.recv() => match record {
                    Some(record) => saying = self.translator.record(&record).into_iter(),
                    None => break true,
                },
            }
        };
        drop(self.input);
        let _ = tokio::time::timeout(POLITE, self.child.exited()).await;
        let exit = self.child.stop(StopLadder::AT_ONCE).await;
        drop(prepared);
        if is_gone {
            let stderr = self.child.output().tail_text();
            ends.gone(Gone { how: exit.to_string(), stderr, unasked: false }).await;
        }
    }
}

/// Between the two languages. Pure.
struct Translator {
    session: String,
    prompt: String,
    interrupted: bool,
    requests: u64,
    /// What each open question was about.
    asked: HashMap<String, Value>,
    /// The kinds of blocks of the present message that came in pieces.
    in_pieces: Vec<&'static str>,
}

impl Translator {
    fn new(session: &str) -> Translator {
        Translator {
            session: session.to_owned(),
            prompt: String::new(),
            interrupted: false,
            requests: 0,
            asked: HashMap::new(),
            in_pieces: Vec::new(),
        }
    }

    /// What to tell the program.
    fn order(&mut self, order: Order) -> Option<Value> {
        match order {
            Order::Prompt(text) => {
                let text = input::plain(&text);
                self.prompt = claude::prompt_name();
                self.interrupted = false;
                Some(json!({"type": "user", "message": {"role": "user", "content": text}}))
            }
            Order::Cancel => {
                self.interrupted = true;
                self.requests += 1;
                Some(
                    json!({"type": "control_request", "request_id": format!("hob-{}", self.requests),
                    "request": {"subtype": "interrupt"}}),
                )
            }
            Order::Answer { ask, option } => {
                let input = self.asked.remove(&ask)?;
                let answer = match option.as_deref() {
                    Some("allow") => json!({"behavior": "allow", "updatedInput": input}),
                    _ => json!({"behavior": "deny", "message": "This was not allowed."}),
                };
                Some(json!({"type": "control_response", "response": {"subtype": "success",
                    "request_id": ask, "response": answer}}))
            }
            Order::Close => None,
        }
    }

    /// What a record of the program says.
    fn record(&mut self, record: &Value) -> Vec<Said> {
        match record["type"].as_str() {
            Some("stream_event") => self.piece(record).into_iter().collect(),
            Some("assistant" | "user") => {
                let said = self.blocks(record);
                if record["type"] == "assistant" {
                    // Each block of a message comes whole after its own pieces.
                    self.in_pieces.clear();
                }
                said
            }
            Some("control_request") if record["request"]["subtype"] == "can_use_tool" => {
                self.ask(record)
            }
            Some("result") => self.result(record),
            _ => Vec::new(),
        }
    }

    fn line(&self, update: Value, raw: &Value) -> Said {
        Said::Line(claude::update(&self.session, update, raw))
    }

    fn piece(&mut self, record: &Value) -> Option<Said> {
        let delta = &record["event"]["delta"];
        let (kind, text) = match delta["type"].as_str()? {
            "text_delta" => ("agent_message_chunk", delta["text"].as_str()?),
            "thinking_delta" => ("agent_thought_chunk", delta["thinking"].as_str()?),
            _ => return None,
        };
        // Sub-agents speak to the agent, not to us.
        if !record["parent_tool_use_id"].is_null() || text.is_empty() {
            return None;
        }
        self.in_pieces.push(kind);
        let update = json!({"sessionUpdate": kind, "content": {"type": "text", "text": text}});
        Some(self.line(update, record))
    }

    fn blocks(&self, record: &Value) -> Vec<Said> {
        if !record["parent_tool_use_id"].is_null() {
            return Vec::new();
        }
        let is_user = record["type"] == "user";
        let blocks = record["message"]["content"].as_array().cloned().unwrap_or_default();
        let blocks = blocks.iter().filter_map(Block::parse);
        let wanted = |block: &Block| match block {
            Block::ToolResult { .. } => is_user,
            Block::Text(_) => !is_user && !self.in_pieces.contains(&"agent_message_chunk"),
            Block::Thinking { .. } => !is_user && !self.in_pieces.contains(&"agent_thought_chunk"),
            _ => !is_user,
        };
        blocks
            .filter(wanted)
            .filter_map(|block| Some(self.line(claude::block_update(&block)?, record)))
            .collect()
    }

    fn ask(&mut self, record: &Value) -> Vec<Said> {
        let id = record["request_id"].as_str().unwrap_or_default().to_owned();
        let request = &record["request"];
        let tool = request["tool_name"].as_str().unwrap_or_default();
        self.asked.insert(id.clone(), request["input"].clone());
        let options = json!([
            {"optionId": "allow", "name": "Allow", "kind": "allow_once"},
            {"optionId": "reject", "name": "Reject", "kind": "reject_once"}]);
        let call = json!({"toolCallId": request["tool_use_id"], "title": tool,
            "kind": claude::tool_kind(tool), "rawInput": request["input"]});
        let line = json!({"jsonrpc": "2.0", "id": id, "method": "session/request_permission",
            "params": {"sessionId": self.session, "toolCall": call, "options": options,
                "_meta": {"raw": record}}});
        let offer =
            |id: &str, name: &str, kind| Offer { id: id.to_owned(), name: name.to_owned(), kind };
        let offers = vec![
            offer("allow", "Allow", OfferKind::AllowOnce),
            offer("reject", "Reject", OfferKind::RejectOnce),
        ];
        let ask = Ask { id, title: tool.to_owned(), offers };
        vec![Said::Line(line.to_string()), Said::Asks(ask)]
    }

    fn result(&mut self, record: &Value) -> Vec<Said> {
        self.in_pieces.clear();
        self.asked.clear();
        let mut said = Vec::new();
        if let Some(cost) = record["total_cost_usd"].as_f64() {
            let update = json!({"sessionUpdate": "usage_update",
                "cost": {"amount": cost, "currency": "USD"}});
            said.push(self.line(update, &Value::Null));
        }
        let failed = record["is_error"] == true;
        let over = if self.interrupted && (failed || record["subtype"] != "success") {
            Ok("cancelled".to_owned())
        } else if failed {
            let errors = record["errors"][0].as_str();
            let text = record["result"].as_str().filter(|text| !text.is_empty()).or(errors);
            Err(text.or(record["subtype"].as_str()).unwrap_or("the agent failed").to_owned())
        } else {
            let native = record["stop_reason"].as_str().unwrap_or("end_turn");
            Ok(claude::stop_reason(native).to_owned())
        };
        let usage = &record["usage"];
        let usage = json!({"inputTokens": usage["input_tokens"],
            "outputTokens": usage["output_tokens"],
            "cachedReadTokens": usage["cache_read_input_tokens"],
            "cachedWriteTokens": usage["cache_creation_input_tokens"]});
        said.push(Said::Line(match &over {
            Ok(reason) => claude::result(&self.prompt, reason, &usage, record),
            Err(message) => claude::error(&self.prompt, message, record),
        }));
        said.push(Said::Over(over));
        said
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(said: &[Said]) -> Vec<String> {
        let text = |said: &Said| match said {
            Said::Line(line) => {
                let value: Value = serde_json::from_str(line).unwrap();
                let update = &value["params"]["update"];
                Some(match update["sessionUpdate"].as_str() {
                    Some(kind) => {
                        format!("{kind}:{}", update["content"]["text"].as_str().unwrap_or(""))
                    }
                    None => value["result"]["stopReason"].as_str().unwrap_or("error").to_owned(),
                })
            }
            Said::Over(over) => Some(format!("{over:?}")),
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

    /// What came in pieces does not come again whole; what did not, does.
    #[test]
    fn a_text_is_said_once() {
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
    fn questions_and_answers() {
        let mut translator = Translator::new("s");
        let request = json!({"type": "control_request", "request_id": "r1", "request": {
            "subtype": "can_use_tool", "tool_name": "Bash", "input": {"command": "x"}}});
        let said = translator.record(&request);
        assert!(matches!(&said[1], Said::Asks(ask) if ask.id == "r1" && ask.offers.len() == 2));
        let answer = |option: &str| Order::Answer { ask: "r1".into(), option: Some(option.into()) };
        let allowed = translator.order(answer("allow")).unwrap();
        assert_eq!(allowed["response"]["response"]["updatedInput"], json!({"command": "x"}));
        assert!(translator.order(answer("allow")).is_none(), "it is answered once");
        translator.record(&request);
        let denied = translator.order(answer("reject")).unwrap();
        assert_eq!(denied["response"]["response"]["behavior"], "deny");
    }

    #[test]
    fn endings() {
        let mut translator = Translator::new("s");
        let failed = json!({"type": "result", "subtype": "success", "is_error": true, "result": "API Error: 529"});
        assert_eq!(texts(&translator.record(&failed)), ["error", "Err(\"API Error: 529\")"]);
        let prompt = translator.order(Order::Prompt("/clear".into())).unwrap();
        assert_eq!(prompt["message"]["content"], "\u{2800}/clear");
        assert_eq!(translator.order(Order::Cancel).unwrap()["request"]["subtype"], "interrupt");
        let broken =
            json!({"type": "result", "subtype": "error_during_execution", "is_error": true});
        assert_eq!(texts(&translator.record(&broken)), ["cancelled", "Ok(\"cancelled\")"]);
    }
}
