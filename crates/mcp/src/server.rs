//! The protocol: what the tools are called, and how a call gets to them.

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation,
    ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
    ToolAnnotations,
};
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::shapes::{
    CaptureArguments, CaptureResult, CorrectArguments, CorrectResult, ForgetArguments,
    ForgetResult, RecallArguments, RecallResult, StatsArguments, StatsResult, TimelineArguments,
    TimelineResult,
};

/// What agents are told about the server as a whole.
const INSTRUCTIONS: &str = "Hob remembers every turn of past sessions, verbatim. Use memory_recall before asking the \
user what was said, decided or tried before; use memory_correct when something recalled is wrong.";

/// What the tools are called.
const NAMES: [&str; 6] = [
    "memory_recall",
    "memory_capture",
    "memory_correct",
    "memory_forget",
    "memory_timeline",
    "memory_stats",
];

/// Who is behind a request, put into its extensions by whoever let it in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller(pub String);

/// Does what the tools promise.
#[async_trait]
pub trait Backend: Send + Sync + 'static {
    /// Runs a tool. The error is a text for the agent.
    async fn call(
        &self,
        caller: Option<&Caller>,
        name: &str,
        arguments: Value,
    ) -> Result<Value, String>;
}

/// Speaks MCP.
#[derive(Clone)]
pub struct McpServer {
    backend: Arc<dyn Backend>,
    /// Made when they are first asked for.
    tools: Arc<OnceLock<Vec<Tool>>>,
}

impl McpServer {
    pub fn new(backend: Arc<dyn Backend>) -> McpServer {
        McpServer { backend, tools: Arc::default() }
    }
}

impl ServerHandler for McpServer {
    fn get_info(&self) -> ServerConfig {
        let mut info = ServerConfig::new(ServerCapabilities::builder().enable_tools().build());
        info.server_info = Implementation::new("hob", env!("CARGO_PKG_VERSION"));
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

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if !NAMES.contains(&request.name.as_ref()) {
            let message = format!("there is no tool named {}", request.name);
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
}

/// Speaks over a stream, a message a line, until the other side closes it.
pub async fn serve_stream<S>(server: McpServer, stream: S)
where
    S: AsyncRead + AsyncWrite + Send + 'static,
{
    // Whoever closes before the handshake has nothing to say.
    if let Ok(running) = rmcp::serve_server(server, tokio::io::split(stream)).await {
        let _ = running.waiting().await;
    }
}

/// What a bridge answers by itself where no server is there to ask.
pub mod alone {
    use serde_json::{Value, json};

    /// The tools as they are listed; the same as [`super::tools`], ready made.
    pub const TOOLS: &str = include_str!("tools.json");

    /// The answer to `initialize`.
    pub fn initialize(wanted: Option<&str>) -> Value {
        let known = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
        let version = wanted.filter(|wanted| known.contains(wanted)).unwrap_or("2025-11-25");
        json!({
            "protocolVersion": version,
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "hob", "version": env!("CARGO_PKG_VERSION")},
            "instructions": super::INSTRUCTIONS,
        })
    }
}

/// The service behind `/mcp`.
pub type ToolService = StreamableHttpService<McpServer, NeverSessionManager>;

/// The tools over HTTP. Every request stands for itself and must have been let in by a token, with
/// its [`Caller`] in the request's extensions; so neither hosts nor origins are checked again.
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

/// All tools with their schemas and hints.
pub fn tools() -> Vec<Tool> {
    let reads = || ToolAnnotations::default().read_only(true).open_world(false);
    let adds = || ToolAnnotations::default().read_only(false).destructive(false).open_world(false);
    let removes =
        || ToolAnnotations::default().read_only(false).destructive(true).open_world(false);
    vec![
        tool::<RecallArguments, RecallResult>(
            "memory_recall",
            "Find what was said in past sessions. Each hit is one turn, verbatim.",
            reads(),
        ),
        tool::<CaptureArguments, CaptureResult>(
            "memory_capture",
            "Remember a fact or decision for later sessions.",
            adds().idempotent(true),
        ),
        tool::<CorrectArguments, CorrectResult>(
            "memory_correct",
            "Replace a wrong record by what is right.",
            adds(),
        ),
        tool::<ForgetArguments, ForgetResult>(
            "memory_forget",
            "Remove a record or a session for good.",
            removes().idempotent(true),
        ),
        tool::<TimelineArguments, TimelineResult>(
            "memory_timeline",
            "List turns in the order they were said.",
            reads(),
        ),
        tool::<StatsArguments, StatsResult>(
            "memory_stats",
            "Count what is remembered and say whether all is well.",
            reads(),
        ),
    ]
}

fn tool<A: JsonSchema, R: JsonSchema>(
    name: &'static str,
    description: &'static str,
    annotations: ToolAnnotations,
) -> Tool {
    Tool::new(name, description, schema::<A>())
        .with_raw_output_schema(schema::<R>())
        .with_annotations(annotations)
}

/// A schema that every validator understands: no references, no formats of our own, no dialect.
fn schema<T: JsonSchema>() -> Arc<Map<String, Value>> {
    let settings = SchemaSettings::draft07().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut value = settings.into_generator().into_root_schema_for::<T>().to_value();
    plain(&mut value);
    let Value::Object(mut map) = value else { return Arc::default() };
    map.remove("title");
    map.entry("properties").or_insert_with(|| Value::Object(Map::new()));
    Arc::new(map)
}

fn plain(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.remove("format");
            map.values_mut().for_each(plain);
        }
        Value::Array(items) => items.iter_mut().for_each(plain),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `tools.json` is what a bridge lists without a server; it must not say anything else.
    #[test]
    fn the_ready_made_list_is_true() {
        let expect = serde_json::to_string_pretty(&tools()).unwrap() + "\n";
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/tools.json");
        if alone::TOOLS != expect {
            let told = std::env::temp_dir().join("hob-tools.json");
            std::fs::write(&told, &expect).unwrap();
            panic!("{path} differs from the tools; what it should hold is in {}", told.display());
        }
    }

    #[test]
    fn schemas_are_self_contained_and_descriptions_short() {
        let tools = tools();
        assert_eq!(tools.iter().map(|tool| tool.name.as_ref()).collect::<Vec<_>>(), NAMES);
        for tool in tools {
            let text = serde_json::to_string(&tool).unwrap();
            assert!(!text.contains("$ref") && !text.contains("$schema"), "{text}");
            assert!(tool.description.as_ref().is_some_and(|text| text.len() < 120));
            for schema in [Some(&tool.input_schema), tool.output_schema.as_ref()] {
                assert_eq!(schema.unwrap()["type"], "object", "{text}");
            }
        }
    }
}
