//! The tools that a connection can speak MCP about: the memory's, and those of a client of `/v1`.

use std::sync::Arc;

use async_trait::async_trait;
use hob_agents::client_tools::{ToolCall, ToolExchange};
use hob_mcp::{
    Caller, CallerContext, ClientToolBackend, ToolBackend, ToolDefinition, ToolError, ToolReply,
    Tools,
};
use serde_json::Value;

use super::peer_limits::{Peer, PeerLimits};

/// The memory's tools for one peer and its project, over MCP.
pub struct PeerTools {
    pub tools: Tools,
    pub caller: CallerContext,
    pub peer: Peer,
    pub limits: Arc<PeerLimits>,
}

#[async_trait]
impl ToolBackend for PeerTools {
    async fn call(
        &self,
        _: Option<&Caller>,
        name: &str,
        arguments: Value,
    ) -> Result<Value, String> {
        let Some(_permits) = self.limits.mcp_call(&self.peer).await else {
            return Err("too many calls are running; try again when one has ended".to_owned());
        };
        call_tool(&self.tools, &self.caller, name, arguments).await
    }
}

/// Calls a tool of the memory. The error is a text for the agent.
pub async fn call_tool(
    tools: &Tools,
    caller: &CallerContext,
    name: &str,
    arguments: Value,
) -> Result<Value, String> {
    tools.call(caller, name, arguments).await.map_err(|error| {
        if let ToolError::Store(error) = &error {
            tracing::error!(%error, name, "a memory tool failed");
        }
        error.to_string()
    })
}

/// The tools of a client, for the agent that calls them.
pub struct ClientTools(pub Arc<ToolExchange>);

#[async_trait]
impl ClientToolBackend for ClientTools {
    fn list(&self) -> Vec<ToolDefinition> {
        let tools = self.0.list().into_iter();
        tools
            .map(|tool| ToolDefinition {
                name: tool.name,
                description: tool.description,
                input_schema: tool.input_schema,
            })
            .collect()
    }

    async fn call(&self, id: String, name: String, input: Value) -> Option<ToolReply> {
        let output = self.0.call(ToolCall { id, name, input }).await?;
        Some(ToolReply { content: output.content, is_error: output.is_error })
    }
}
