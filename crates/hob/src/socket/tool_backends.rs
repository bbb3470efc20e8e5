//! The tools that a connection can speak MCP about: the memory's, and those of a client of `/v1`.

use std::sync::Arc;

use async_trait::async_trait;
use hob_agents::client_tools::{ToolCall, ToolExchange};
use hob_mcp::{
    Caller, CallerContext, ClientToolBackend, ToolBackend, ToolDefinition, ToolError, ToolReply,
    Tools,
};
use serde_json::Value;

/// The memory's tools for one peer and its project.
pub struct PeerTools {
    pub tools: Tools,
    pub caller: CallerContext,
}

#[async_trait]
impl ToolBackend for PeerTools {
    async fn call(
        &self,
        _: Option<&Caller>,
        name: &str,
        arguments: Value,
    ) -> Result<Value, String> {
        self.tools.call(&self.caller, name, arguments).await.map_err(|error| {
            if let ToolError::Store(error) = &error {
                tracing::error!(%error, name, "a memory tool failed");
            }
            error.to_string()
        })
    }
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
