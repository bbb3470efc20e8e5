//! The settings of a session's agent: its modes, its options and its commands.

use std::path::Path;

use hob_gateway::acp_protocol::{self, INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND};
use hob_gateway::client::{Method, StreamEvent};
use serde_json::{Value, json};

use super::wire::AcpError;
use crate::owner_client;

/// The settings of one session.
pub struct SessionSettings<'a> {
    pub socket: &'a Path,
    pub session: &'a str,
}

impl SessionSettings<'_> {
    fn path(&self) -> String {
        format!("/sessions/{}", self.session)
    }

    /// Returns what the agent offers. The server starts an agent that does not run.
    pub async fn read(&self) -> anyhow::Result<Value> {
        let mut client = owner_client::connect(self.socket).await?;
        let path = format!("{}/settings", self.path());
        owner_client::request(&mut client, Method::GET, &path, None).await
    }

    /// Makes the change that the editor asks for. Returns the answer to the editor.
    pub async fn change(&self, params: &Value) -> Result<Value, AcpError> {
        let change = acp_protocol::setting_change(params)
            .map_err(|text| AcpError::new(INVALID_PARAMS, text))?;
        let body = acp_protocol::setting_body(&change);
        let mut client = owner_client::connect(self.socket).await?;
        let path = format!("{}/settings", self.path());
        let reply = client.ask(Method::POST, &path, "application/json", Some(&body)).await;
        let reply = reply.map_err(anyhow::Error::from)?;
        let status = reply.status;
        let answer = reply.json().await.map_err(anyhow::Error::from)?;
        if status < 400 {
            return Ok(acp_protocol::changed(&change, &answer));
        }
        let code = match (status, answer["code"].as_str()) {
            (400, Some("unsupported")) => METHOD_NOT_FOUND,
            (400 | 410, _) => INVALID_PARAMS,
            _ => INTERNAL_ERROR,
        };
        let text = answer["error"].as_str().unwrap_or("the server refused the request");
        Err(AcpError::new(code, text))
    }

    /// Calls `show` with the agent's commands, and from then on with each message about its settings, until the server ends.
    pub async fn watch(&self, show: impl Fn(&Value)) -> anyhow::Result<()> {
        let mut client = owner_client::connect(self.socket).await?;
        let path = self.path();
        let session = owner_client::request(&mut client, Method::GET, &path, None).await?;
        let last_event = session["last_event_id"].as_u64().unwrap_or_default();
        let settings = self.read().await?;
        let update = |params: Option<Value>| {
            if let Some(params) = params {
                show(&json!({"method": "session/update", "params": params}));
            }
        };
        update(acp_protocol::commands_update(self.session, &settings));
        let path = format!("{path}/events?after={last_event}");
        let mut reply = client.ask(Method::GET, &path, "text/event-stream", None).await?;
        while let Some(StreamEvent { event, data, .. }) = reply.next_event().await? {
            match event.as_str() {
                "message" => {
                    let message: Value = serde_json::from_str(&data).unwrap_or_default();
                    if acp_protocol::is_settings_update(&message) {
                        show(&message);
                    }
                }
                "setting" => {
                    let event: Value = serde_json::from_str(&data).unwrap_or_default();
                    update(acp_protocol::setting_update(self.session, &event));
                }
                _ => {}
            }
        }
        Ok(())
    }
}
