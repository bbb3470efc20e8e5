//! Any agent that speaks the Agent Client Protocol on its standard streams.
//!
//! The protocol library keeps requests and answers together and knows the shapes; the process is ours,
//! and so are the lines: every line of the agent is taken unchanged before the library sees it. The
//! library gets the answers to our requests and the agent's own requests, and no notifications: an
//! update it can't read is still an event.

mod connection;
mod files;
pub(super) mod lines;
mod setup;
mod terminals;

use std::collections::HashMap;

use agent_client_protocol::v1::schema::{
    CancelNotification, CloseSessionRequest, ContentBlock, PromptRequest, RequestPermissionOutcome,
    RequestPermissionResponse, SelectedPermissionOutcome, SessionId, TextContent,
};
use hob_child::StopLadder;
use serde_json::Value;
use std::time::Duration;
use tokio::sync::mpsc;

use super::{Ask, Ends, Gone, LiveAgent, Offer, OfferKind, Order, Said, Start, StartError};
use connection::{Asked, Connection};
use lines::{Kind, Line};

/// How long an agent may take to end when its input does, and then when it is told to.
const POLITE: Duration = Duration::from_millis(700);
/// How long an agent may take to close its session.
const CLOSING: Duration = Duration::from_secs(1);

/// Starts the agent, and its conversation or the one it is to go on with.
pub(crate) async fn start(start: Start) -> Result<LiveAgent, StartError> {
    let child = start.children.spawn(start.child.clone()).await?;
    let mut connection = Connection::open(child, &start)?;
    let patience = start.patience;
    let set_up = tokio::select! {
        result = tokio::time::timeout(patience, setup::set_up(&connection.wire, &start)) => {
            result.unwrap_or_else(|_| {
                let text = format!("the agent was not ready within {} s", patience.as_secs());
                Err(StartError::Refused(text))
            })
        }
        _ = connection.child.exited() => {
            Err(StartError::Died { message: String::new(), stderr: String::new() })
        }
    };
    match set_up {
        Ok(conversation) => {
            connection.listen();
            let (mut agent, ends) = LiveAgent::new(conversation.name());
            agent.notice = conversation.notice.clone();
            let talk = Talk {
                session: SessionId::new(conversation.id),
                preamble: conversation.preamble,
                connection,
                prompt: None,
                prompts: 0,
                asked: HashMap::new(),
            };
            start.tasks.spawn(talk.run(ends));
            Ok(agent)
        }
        Err(error) => {
            if matches!(error, StartError::Died { .. }) {
                // One that is ending by itself gets to do so: how it ends is what we want to know.
                let _ = tokio::time::timeout(POLITE, connection.child.exited()).await;
            }
            let exit = connection.child.stop(StopLadder::AT_ONCE).await;
            // What it said on its way out is known only now.
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

/// A conversation with a live agent.
struct Talk {
    session: SessionId,
    /// What goes before the first prompt.
    preamble: Option<String>,
    connection: Connection,
    /// The id of the prompt that is being answered.
    prompt: Option<Value>,
    /// How many there were.
    prompts: u64,
    /// Questions that wait for an answer.
    asked: HashMap<String, Asked>,
}

/// What happens next.
enum Next {
    Order(Option<Order>),
    Line(Option<Line>),
    Asked(Box<Asked>),
}

impl Talk {
    async fn run(mut self, mut ends: Ends) {
        loop {
            let next = tokio::select! {
                biased;
                order = ends.orders.recv() => Next::Order(order),
                // The line of a question is taken before the question.
                line = self.connection.lines.recv() => Next::Line(line),
                Some(asked) = self.connection.asks.recv() => Next::Asked(Box::new(asked)),
            };
            match next {
                Next::Order(None) => break,
                Next::Order(Some(Order::Close)) => {
                    self.close().await;
                    break;
                }
                Next::Order(Some(order)) => self.obey(order),
                Next::Line(None) => {
                    // It may only have closed its output.
                    let gone = self.end().await;
                    return ends.gone(gone).await;
                }
                Next::Line(Some(line)) => {
                    let over = self.over(&line);
                    let mut words = vec![Said::Line(line.text)];
                    words.extend(over.map(Said::Over));
                    if !pass_on(words, &ends.said).await {
                        break;
                    }
                }
                Next::Asked(asked) => {
                    let ask = asked.ask();
                    self.asked.insert(ask.id.clone(), *asked);
                    if !pass_on(vec![Said::Asks(ask)], &ends.said).await {
                        break;
                    }
                }
            }
        }
        self.end().await;
    }

    fn obey(&mut self, order: Order) {
        let wire = &self.connection.wire;
        match order {
            Order::Prompt(text) => {
                let text = match self.preamble.take() {
                    Some(preamble) => format!("{preamble}\n\n{text}"),
                    None => text,
                };
                let blocks = vec![ContentBlock::Text(TextContent::new(text))];
                let sent = wire.send_request(PromptRequest::new(self.session.clone(), blocks));
                self.prompt = serde_json::to_value(sent.raw_id()).ok();
                self.prompts += 1;
                // Its answer is read from the line, whatever it looks like.
                sent.detach();
            }
            Order::Cancel => {
                let _ = wire.send_notification(CancelNotification::new(self.session.clone()));
                for (_, asked) in self.asked.drain() {
                    asked.answer(None);
                }
            }
            Order::Answer { ask, option } => {
                if let Some(asked) = self.asked.remove(&ask) {
                    asked.answer(option);
                }
            }
            Order::Close => {}
        }
    }

    /// Whether this line is the end of the turn, and which.
    fn over(&mut self, line: &Line) -> Option<Result<String, String>> {
        let Kind::Response(id) = &line.kind else { return None };
        if self.prompt.as_ref() != Some(id) {
            return None;
        }
        self.prompt = None;
        Some(ending(&line.text))
    }

    async fn close(&mut self) {
        let request = CloseSessionRequest::new(self.session.clone());
        let closing = self.connection.wire.send_request(request).block_task();
        let _ = tokio::time::timeout(CLOSING, closing).await;
    }

    /// Ends the tree: politely at first, but an agent that ignores the end of its input is ended too.
    async fn end(self) -> Gone {
        let (prompt, prompts, writing) =
            (self.prompt.clone(), self.prompts, self.connection.writing());
        let Connection { mut child, .. } = self.connection.without_input();
        let _ = tokio::time::timeout(POLITE, child.exited()).await;
        let exit = child.stop(StopLadder { polite: Duration::ZERO, term: POLITE }).await;
        let unasked = prompt.is_some() && writing.is_unasked(prompts);
        Gone { how: exit.to_string(), stderr: child.output().tail_text(), unasked }
    }
}

/// Hands words on, however long the receiver takes. `false` when nobody listens any more.
async fn pass_on(words: Vec<Said>, said: &mpsc::Sender<Said>) -> bool {
    for word in words {
        if said.send(word).await.is_err() {
            return false;
        }
    }
    true
}

/// The stop reason of a prompt's answer, or its error in words.
fn ending(text: &str) -> Result<String, String> {
    let value: Value = serde_json::from_str(text).unwrap_or_default();
    if let Some(error) = value.get("error") {
        let message = error["message"].as_str().unwrap_or("the agent failed without a word");
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

impl Asked {
    fn ask(&self) -> Ask {
        let offers = self.request.options.iter().map(|option| Offer {
            id: option.option_id.to_string(),
            name: option.name.clone(),
            kind: kind(option),
        });
        let title = self.request.tool_call.fields.title.clone().unwrap_or_default();
        Ask { id: self.responder.raw_id().to_string(), title, offers: offers.collect() }
    }

    fn answer(self, option: Option<String>) {
        let outcome = match option {
            Some(id) => RequestPermissionOutcome::Selected(SelectedPermissionOutcome::new(id)),
            None => RequestPermissionOutcome::Cancelled,
        };
        let _ = self.responder.respond(RequestPermissionResponse::new(outcome));
    }
}

fn kind(option: &agent_client_protocol::v1::schema::PermissionOption) -> OfferKind {
    use agent_client_protocol::v1::schema::PermissionOptionKind;
    match option.kind {
        PermissionOptionKind::AllowOnce => OfferKind::AllowOnce,
        PermissionOptionKind::AllowAlways => OfferKind::AllowAlways,
        PermissionOptionKind::RejectOnce => OfferKind::RejectOnce,
        PermissionOptionKind::RejectAlways => OfferKind::RejectAlways,
        _ => OfferKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seed 003, and what agents say when they fail.
    #[test]
    fn endings() {
        let check = |text: &str, expect: Result<&str, &str>| {
            let found = ending(text);
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
        check(r#"{"id":1,"error":{}}"#, Err("the agent failed without a word"));
    }
}
