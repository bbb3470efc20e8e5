//! A prompt of the editor, followed to its end.

use std::path::Path;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use hob_gateway::acp_protocol;
use hob_gateway::client::{Client, Method, StreamEvent};
use serde_json::{Value, json};

use super::wire::{AcpError, Editor};
use crate::owner_client;

/// How long the server may be away while a turn is followed.
const MAX_OUTAGE: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// A turn of a session.
pub struct Turn<'a> {
    pub socket: &'a Path,
    pub editor: &'a Editor,
    pub session: &'a str,
    pub prompt: &'a str,
}

impl Turn<'_> {
    /// Sends the prompt and calls `show` with the agent's messages. Returns the turn's answer. If the server is restarted
    /// meanwhile, the turn is followed in the new one.
    pub async fn run(&self, show: impl Fn(&Value)) -> Result<Value, AcpError> {
        let mut client = owner_client::connect(self.socket).await?;
        let path = format!("/sessions/{}/turn", self.session);
        let body = json!({"prompt": self.prompt});
        let reply = client.ask(Method::POST, &path, "text/event-stream", Some(&body)).await;
        let mut reply = reply.map_err(anyhow::Error::from)?;
        if reply.status >= 400 {
            return Ok(reply.json().await.map_err(anyhow::Error::from)?);
        }
        let mut last_event = 0;
        // Somebody else may answer a request, so that the turn goes on while the editor still asks.
        let mut asks = FuturesUnordered::new();
        loop {
            let event = tokio::select! {
                event = reply.next_event() => event,
                Some(()) = asks.next(), if !asks.is_empty() => continue,
            };
            let Ok(Some(StreamEvent { id, event, data })) = event else { break };
            last_event = id.parse().unwrap_or(last_event);
            let data: Value = serde_json::from_str(&data).unwrap_or_default();
            match event.as_str() {
                "turn" => return Ok(data),
                "message" => show(&data),
                "permission" if data["status"] == "asked" => asks.push(self.ask_permission(data)),
                _ => {}
            }
        }
        drop(asks);
        self.follow_again(last_event, show).await
    }

    /// Asks the editor, and passes its answer on. Without one, the server rejects the request after a while.
    async fn ask_permission(&self, asked: Value) {
        let request = asked["request_id"].as_str().unwrap_or_default();
        let params = acp_protocol::permission_params(self.session, &asked);
        let answer = self.editor.ask("session/request_permission", params).await;
        let answer = answer.unwrap_or_default();
        let chosen = acp_protocol::chosen_option(&answer);
        let path = format!("/sessions/{}/permissions/{request}", self.session);
        let body = json!({"option": chosen});
        if let Ok(mut client) = owner_client::connect(self.socket).await {
            // Another client may have answered it; the turn goes on.
            let _ = owner_client::request(&mut client, Method::POST, &path, Some(&body)).await;
        }
    }

    /// Follows the turn after the connection was lost.
    async fn follow_again(
        &self,
        mut last_event: u64,
        show: impl Fn(&Value),
    ) -> Result<Value, AcpError> {
        let mut lost_at = Instant::now();
        loop {
            match self.poll(&mut last_event, &show).await {
                Ok(Some(answer)) => return Ok(answer),
                Ok(None) => lost_at = Instant::now(),
                Err(error) if lost_at.elapsed() > MAX_OUTAGE => return Err(error.into()),
                Err(_) => {}
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Shows what has happened since the last event. Returns the turn's answer if it has ended.
    async fn poll(
        &self,
        last_event: &mut u64,
        show: &impl Fn(&Value),
    ) -> anyhow::Result<Option<Value>> {
        let mut client = owner_client::connect(self.socket).await?;
        let id = self.session;
        let turns = get(&mut client, &format!("/admin/sessions/{id}/turns?limit=50")).await?;
        let turns = turns["turns"].as_array().cloned().unwrap_or_default();
        let turn = turns.iter().rev().find(|turn| turn["prompt"] == self.prompt);
        let turn = turn.ok_or_else(|| {
            anyhow::anyhow!(
                "the server did not receive this prompt; send it again (`hob sessions tail` shows the turns that it received)"
            )
        })?;
        let is_ended = !turn["ended_at"].is_null();
        let session = format!("/sessions/{id}");
        for event in owner_client::events_after(&mut client, &session, *last_event).await? {
            *last_event = event["seq"].as_u64().unwrap_or(*last_event);
            if event["event"] == "message" && event["turn_index"] == turn["turn_index"] {
                show(&event["message"]);
            }
        }
        if !is_ended {
            return Ok(None);
        }
        let answer =
            get(&mut client, &format!("/sessions/{id}/turns/{}", turn["turn_index"])).await?;
        Ok(Some(answer))
    }
}

async fn get(client: &mut Client, path: &str) -> anyhow::Result<Value> {
    owner_client::request(client, Method::GET, path, None).await
}
