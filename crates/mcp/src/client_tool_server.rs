//! The tools of a client, for an agent: a private MCP server whose calls are answered elsewhere.

use std::sync::Arc;

use async_trait::async_trait;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, CustomRequest,
    CustomResult, Implementation, JsonObject, ListToolsResult, PaginatedRequestParams,
    ResourceContents, ServerCapabilities, ServerConfig, Tool, ToolAnnotations,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use uuid::Uuid;

use crate::unread_request;

/// The field of a call's metadata in which Claude Code names its `tool_use` block.
const TOOL_USE_ID: &str = "claudecode/toolUseId";

/// The address of a document in a result. Nothing else has it.
const DOCUMENT_URI: &str = "result:document";

/// A tool as an agent sees it.
#[derive(Debug, Clone)]
pub struct ToolDefinition {
    pub name: String,
    pub description: String,
    pub input_schema: JsonObject,
}

/// The result of a call. The content is a string or a list of blocks in Anthropic's format.
#[derive(Debug, Clone)]
pub struct ToolReply {
    pub content: Value,
    pub is_error: bool,
}

/// Lists and runs the tools of one client.
#[async_trait]
pub trait ClientToolBackend: Send + Sync + 'static {
    fn list(&self) -> Vec<ToolDefinition>;

    /// Runs a tool. For Claude Code, the id is that of its `tool_use` block. Returns `None` if there will be no result.
    async fn call(&self, id: String, name: String, input: Value) -> Option<ToolReply>;
}

#[derive(Clone)]
struct ClientToolServer {
    backend: Arc<dyn ClientToolBackend>,
}

impl ServerHandler for ClientToolServer {
    fn get_info(&self) -> ServerConfig {
        let mut info = ServerConfig::new(ServerCapabilities::builder().enable_tools().build());
        info.server_info = Implementation::new("hob-client-tools", env!("CARGO_PKG_VERSION"));
        info
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tools = self.backend.list().into_iter().map(tool).collect();
        Ok(ListToolsResult::with_all_items(tools))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let id = context.meta.get(TOOL_USE_ID).and_then(Value::as_str).map(str::to_owned);
        // Other agents do not say to which of their calls this one belongs.
        let id = id.unwrap_or_else(|| format!("call_{}", Uuid::new_v4().simple()));
        let input =
            request.arguments.map_or_else(|| Value::Object(JsonObject::new()), Value::Object);
        let reply = self.backend.call(id, request.name.into_owned(), input).await;
        let result = match reply {
            None => CallToolResult::error(vec![ContentBlock::text("the client is gone")]),
            Some(reply) if reply.is_error => CallToolResult::error(content(&reply.content)),
            Some(reply) => CallToolResult::success(content(&reply.content)),
        };
        Ok(result.into())
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        Err(unread_request::error(&request))
    }
}

fn tool(definition: ToolDefinition) -> Tool {
    let ToolDefinition { name, description, input_schema } = definition;
    // The agent makes parallel calls one after another unless the tools are said to change nothing.
    Tool::new(name, description, Arc::new(input_schema))
        .with_annotations(ToolAnnotations::new().read_only(true))
}

/// Converts a result. A block that MCP does not have is passed on as JSON.
fn content(value: &Value) -> Vec<ContentBlock> {
    match value {
        Value::Null => vec![ContentBlock::text("")],
        Value::String(text) => vec![ContentBlock::text(text.as_str())],
        Value::Array(blocks) => blocks.iter().map(block).collect(),
        other => vec![ContentBlock::text(other.to_string())],
    }
}

fn block(block: &Value) -> ContentBlock {
    let source = &block["source"];
    let media = source["media_type"].as_str();
    match (block["type"].as_str(), block["text"].as_str(), source["data"].as_str()) {
        (Some("text"), Some(text), _) => ContentBlock::text(text),
        (Some("image"), _, Some(data)) => ContentBlock::image(data, media.unwrap_or("image/png")),
        (Some("document"), _, Some(text)) if source["type"] == "text" => ContentBlock::text(text),
        // Claude Code shows the model a PDF as such.
        (Some("document"), _, Some(data)) => ContentBlock::resource(
            ResourceContents::blob(data, DOCUMENT_URI)
                .with_mime_type(media.unwrap_or("application/octet-stream")),
        ),
        _ => ContentBlock::text(block.to_string()),
    }
}

/// Serves a client's tools over a stream, one message per line, until the agent closes it.
pub async fn serve_client_tools<S>(backend: Arc<dyn ClientToolBackend>, stream: S)
where
    S: AsyncRead + AsyncWrite + Send + 'static,
{
    let server = ClientToolServer { backend };
    if let Ok(running) = rmcp::serve_server(server, tokio::io::split(stream)).await {
        let _ = running.waiting().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn results_keep_texts_and_images() {
        let one = |value: Value| serde_json::to_value(&content(&value)[0]).unwrap();
        assert_eq!(one(json!("42"))["text"], "42");
        assert_eq!(one(json!([{"type": "text", "text": "x"}]))["text"], "x");
        let image = json!([{"type": "image", "source": {"type": "base64", "media_type": "image/gif", "data": "aGk="}}]);
        let image = one(image);
        assert_eq!((&image["type"], &image["mimeType"]), (&json!("image"), &json!("image/gif")));
        let pdf = json!([{"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "aGk="}}]);
        let pdf = one(pdf);
        assert_eq!((&pdf["type"], &pdf["resource"]["blob"]), (&json!("resource"), &json!("aGk=")));
        assert_eq!(pdf["resource"]["mimeType"], "application/pdf");
        assert!(
            one(json!([{"type": "search_result"}]))["text"].as_str().unwrap().contains("search")
        );
        assert_eq!(one(json!({"a": 1}))["text"], "{\"a\":1}");
    }
}
