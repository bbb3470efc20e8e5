//! The protocol: from a request to a tool and back.

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CompleteRequestMethod,
    CompleteRequestParams, CompleteResult, ContentBlock, CustomRequest, CustomResult,
    Implementation, ListPromptsRequestMethod, ListPromptsResult,
    ListResourceTemplatesRequestMethod, ListResourceTemplatesResult, ListResourcesRequestMethod,
    ListResourcesResult, ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig,
    Tool,
};
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::definitions::{INSTRUCTIONS, SERVER_NAME, TOOL_NAMES, tools};
use crate::unread_request;

/// The name of the app that sent a request. The gateway puts it into the request's extensions after
/// it has checked the token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller(pub String);

/// Runs tools for a server.
#[async_trait]
pub trait ToolBackend: Send + Sync + 'static {
    /// Runs a tool and returns its structured result. The error is a text for the agent.
    async fn call(
        &self,
        caller: Option<&Caller>,
        name: &str,
        arguments: Value,
    ) -> Result<Value, String>;
}

/// An MCP server over a [`ToolBackend`].
#[derive(Clone)]
pub struct McpServer {
    backend: Arc<dyn ToolBackend>,
    /// Built on the first request.
    tools: Arc<OnceLock<Vec<Tool>>>,
}

impl McpServer {
    pub fn new(backend: Arc<dyn ToolBackend>) -> McpServer {
        McpServer { backend, tools: Arc::default() }
    }
}

impl ServerHandler for McpServer {
    fn get_info(&self) -> ServerConfig {
        let mut info = ServerConfig::new(ServerCapabilities::builder().enable_tools().build());
        info.server_info = Implementation::new(SERVER_NAME, env!("CARGO_PKG_VERSION"));
        info.instructions = Some(INSTRUCTIONS.to_owned());
        info
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.tools.get_or_init(tools).clone()))
    }

    // The library's own answers are empty lists, as if the server had prompts and resources. It declares none.

    async fn list_prompts(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Err(ErrorData::method_not_found::<ListPromptsRequestMethod>())
    }

    async fn list_resources(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Err(ErrorData::method_not_found::<ListResourcesRequestMethod>())
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Err(ErrorData::method_not_found::<ListResourceTemplatesRequestMethod>())
    }

    async fn complete(
        &self,
        _request: CompleteRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        Err(ErrorData::method_not_found::<CompleteRequestMethod>())
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if !TOOL_NAMES.contains(&request.name.as_ref()) {
            let message = format!("unknown tool {}", request.name);
            return Err(ErrorData::invalid_params(message, None));
        }
        let parts = context.extensions.get::<http::request::Parts>();
        let caller = parts.and_then(|parts| parts.extensions.get::<Caller>());
        let arguments = request.arguments.map_or(Value::Null, Value::Object);
        let result = match self.backend.call(caller, &request.name, arguments).await {
            Ok(value) => CallToolResult::structured(value),
            Err(message) => CallToolResult::error(vec![ContentBlock::text(message)]),
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

/// Serves MCP over a stream, one message per line, until the client closes it.
pub async fn serve_stream<S>(server: McpServer, stream: S)
where
    S: AsyncRead + AsyncWrite + Send + 'static,
{
    // A client that closes before the handshake needs no answer.
    if let Ok(running) = rmcp::serve_server(server, tokio::io::split(stream)).await {
        let _ = running.waiting().await;
    }
}

/// The HTTP service of `/mcp`.
pub type ToolService = StreamableHttpService<McpServer, NeverSessionManager>;

/// Serves MCP over HTTP, without sessions. The caller must have authenticated each request and put
/// its [`Caller`] into the extensions, so neither hosts nor origins are checked again.
pub fn http_service(server: McpServer, max_body_bytes: usize) -> ToolService {
    let mut config = StreamableHttpServerConfig::default();
    config.legacy_session_mode = false;
    config.json_response = true;
    config.allowed_hosts = Vec::new();
    config.max_request_body_bytes = max_body_bytes;
    StreamableHttpService::new(
        move || Ok(server.clone()),
        NeverSessionManager::default().into(),
        config,
    )
}
