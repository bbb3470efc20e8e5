//! Messages of other programs on connections: the owner's socket, MCP, editors and event streams.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use hob::{Answer, Call, FRAME_LIMIT, frame};
use hob_agents::mcp_servers;
use hob_gateway::client::{Client, Method};
use hob_gateway::{acp_protocol, acp_questions};
use hob_mcp::message::{legal_id, read_message};
use hob_mcp::offline::{self, OfflineServer};
use hob_mcp::{
    Caller, CaptureArguments, CorrectArguments, ForgetArguments, McpServer, RecallArguments,
    TimelineArguments, ToolBackend, serve_stream,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex, split};
use tokio::runtime::Builder;
use tokio::time::timeout;

/// How long a connection may take to end after its last byte.
const END_TIMEOUT: Duration = Duration::from_secs(20);
/// How many bytes a connection holds.
const PIPE_BYTES: usize = 64 << 10;

/// Runs a future to its end.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(future)
}

/// Reads frames of the owner's socket, in both directions.
pub fn socket_frames(bytes: &[u8]) {
    let frames = block_on(async {
        let (mut rest, mut frames) = (bytes, Vec::new());
        while let Ok(Some(length)) = frame::read_length(&mut rest).await {
            if length > FRAME_LIMIT {
                break;
            }
            let Ok(body) = frame::read_body(&mut rest, length).await else { break };
            assert_eq!(body.len(), length);
            frames.push(body);
        }
        frames
    });
    for body in frames {
        check_written_again::<Call>(&body);
        check_written_again::<Answer>(&body);
    }
}

/// A message that can be read is written so that it reads alike.
fn check_written_again<T: Serialize + DeserializeOwned>(body: &[u8]) {
    let Ok(message) = serde_json::from_slice::<T>(body) else { return };
    let written = serde_json::to_value(&message).expect("a message can be written");
    let text = written.to_string();
    let again: T = serde_json::from_str(&text).expect("a written message can be read");
    // The last digit of a number with a fraction may change.
    if !has_fraction(&written) {
        assert_eq!(serde_json::to_value(&again).expect("and written"), written);
    }
}

fn has_fraction(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().any(has_fraction),
        Value::Object(fields) => fields.values().any(has_fraction),
        value => value.is_f64(),
    }
}

/// The arguments of the memory's tools, read and not used.
struct ToolArguments;

#[async_trait]
impl ToolBackend for ToolArguments {
    async fn call(&self, _: Option<&Caller>, name: &str, given: Value) -> Result<Value, String> {
        fn read<T: for<'a> Deserialize<'a>>(given: Value) -> Result<(), String> {
            serde_json::from_value::<T>(given).map(drop).map_err(|error| error.to_string())
        }
        match name {
            "memory_recall" => read::<RecallArguments>(given)?,
            "memory_capture" => read::<CaptureArguments>(given)?,
            "memory_correct" => read::<CorrectArguments>(given)?,
            "memory_forget" => read::<ForgetArguments>(given)?,
            "memory_timeline" => read::<TimelineArguments>(given)?,
            _ => {}
        }
        Ok(json!({"tool": name}))
    }
}

/// Serves MCP to an agent.
pub fn mcp_frames(bytes: &[u8]) {
    let answers = block_on(async {
        let (agent, server) = duplex(PIPE_BYTES);
        let (mut answers, mut requests) = split(agent);
        let serve = serve_stream(McpServer::new(Arc::new(ToolArguments)), server);
        let send = async {
            // The server may have closed the connection.
            let _ = requests.write_all(bytes).await;
            let _ = requests.shutdown().await;
        };
        let mut received = Vec::new();
        let all = async { tokio::join!(serve, send, answers.read_to_end(&mut received)) };
        let (_, _, read) = timeout(END_TIMEOUT, all).await.expect("the connection ends");
        read.expect("a stream in memory can be read");
        received
    });
    for line in answers.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let answer: Value = serde_json::from_slice(line).expect("an answer is JSON");
        assert_eq!(answer["jsonrpc"], "2.0");
    }
    let offline = OfflineServer::memory();
    for line in bytes.split(|byte| *byte == b'\n') {
        if let Err(refusal) = read_message(line) {
            let id = refusal.answer()["id"].clone();
            assert!(id.is_null() || legal_id(&id).as_ref() == Some(&id), "{id}");
        }
        let Ok(message) = serde_json::from_slice::<Value>(line) else { continue };
        let (method, params) = (message["method"].as_str().unwrap_or_default(), &message["params"]);
        if let Some(result) = offline.result(method, params) {
            assert!(result.is_object());
        }
        offline::complete(method, params, json!({}));
    }
}

/// Reads messages of an editor that speaks ACP.
pub fn acp_messages(bytes: &[u8]) {
    let mut calls = acp_questions::RequestedCalls::default();
    for line in bytes.split(|byte| *byte == b'\n') {
        let Ok(message) = serde_json::from_slice::<Value>(line) else { continue };
        let params = &message["params"];
        let forms = acp_protocol::shows_forms(params);
        let servers = acp_protocol::session_servers(params);
        if let Ok(servers) = mcp_servers::parse(&servers) {
            let stored = serde_json::to_value(&servers).expect("servers can be stored");
            let loaded: Vec<mcp_servers::McpServer> =
                serde_json::from_value(stored).expect("and loaded");
            assert_eq!(loaded, servers);
        }
        if let Ok(text) = acp_protocol::prompt_text(&params["prompt"]) {
            assert!(!text.trim().is_empty());
            acp_protocol::title(&text);
        }
        calls.note(&message);
        let question = acp_questions::Question::new(params.clone(), &mut calls);
        let (_, request) = question.request("session", forms);
        assert_eq!(request["sessionId"], "session");
        assert!(!acp_questions::chosen(&message["result"])["option"].is_boolean());
        acp_protocol::own_update("session", &message);
    }
}

/// Reads server-sent events, as the commands do.
pub fn event_stream(bytes: &[u8]) {
    let head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    let length = block_on(async {
        let (commands, mut server) = duplex(PIPE_BYTES);
        let send = async {
            // The client takes no answer before it has asked.
            let _ = server.read(&mut [0; 1024]).await;
            let _ = server.write_all(head).await;
            let _ = server.write_all(bytes).await;
            let _ = server.shutdown().await;
        };
        let receive = async {
            let mut client = Client::new(commands).await.expect("a client");
            let asked = client.ask(Method::GET, "/events", "text/event-stream", None).await;
            let mut reply = asked.expect("the head of an answer");
            let mut length = 0;
            while let Ok(Some(event)) = reply.next_event().await {
                length += event.id.len() + event.event.len() + event.data.len();
            }
            length
        };
        let all = async { tokio::join!(send, receive) };
        timeout(END_TIMEOUT, all).await.expect("the stream ends with its input").1
    });
    // A byte that is no character becomes three.
    assert!(length <= 3 * bytes.len());
}
