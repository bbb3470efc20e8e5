//! From a new process to an agent that accepts prompts: handshake, login and conversation.

use agent_client_protocol::schema::ProtocolVersion;
use agent_client_protocol::v1::ConnectionTo;
use agent_client_protocol::v1::schema::{
    AgentCapabilities, AuthMethod, AuthenticateRequest, ClientCapabilities, ContentBlock,
    ElicitationCapabilities, ElicitationFormCapabilities, FileSystemCapabilities, Implementation,
    InitializeRequest, InitializeResponse, LoadSessionRequest, McpServer, NewSessionRequest,
    ResumeSessionRequest, SessionConfigOption, SessionConfigOptionValue, SessionId,
    SetSessionConfigOptionRequest, SystemPrompt, TextContent,
};
use agent_client_protocol::{
    Agent, Error, ErrorCode, is_connection_terminated, is_incoming_transport_closed,
};
use hob_domain::session::Permissions;
use serde_json::json;

use crate::driver::start::{StartError, StartOptions};
use crate::mcp_servers;

/// A conversation that accepts prompts.
pub(super) struct Conversation {
    pub id: String,
    /// Text that precedes the first prompt, for agents without a system prompt.
    pub preamble: Option<String>,
    /// A request that could not be met as asked.
    pub notice: Option<String>,
    /// Whether the agent says its past again.
    pub is_replayed: bool,
}

impl Conversation {
    /// Returns the id that the ledger stores.
    pub fn name(&self) -> String {
        self.id.clone()
    }
}

type Wire = ConnectionTo<Agent>;

/// Performs the handshake and starts or resumes the conversation.
pub(super) async fn set_up(wire: &Wire, start: &StartOptions) -> Result<Conversation, StartError> {
    let mut capabilities = ClientCapabilities::new()
        .fs(FileSystemCapabilities::new().read_text_file(true).write_text_file(true))
        .terminal(true);
    // Only a caller who is asked can fill in a form.
    if start.permissions == Permissions::Ask {
        let forms = ElicitationCapabilities::new().form(ElicitationFormCapabilities::new());
        capabilities = capabilities.elicitation(forms);
    }
    let initialize = InitializeRequest::new(ProtocolVersion::V1)
        .client_capabilities(capabilities)
        .client_info(Implementation::new("hob", env!("CARGO_PKG_VERSION")));
    let initialized = wire.send_request(initialize).block_task().await.map_err(refused)?;
    if initialized.protocol_version != ProtocolVersion::V1 {
        let text = format!(
            "the agent speaks protocol version {}, hob speaks version 1",
            initialized.protocol_version
        );
        return Err(StartError::Refused(text));
    }
    let opener = ConversationOpener { wire, start, initialized: &initialized };
    match opener.open().await {
        Err(error) if error.code == ErrorCode::AUTH_REQUIRED => {
            opener.log_in(&initialized.auth_methods).await?;
            opener.open().await.map_err(|error| opener.failed(&error))
        }
        other => other.map_err(|error| opener.failed(&error)),
    }
}

struct ConversationOpener<'a> {
    wire: &'a Wire,
    start: &'a StartOptions,
    initialized: &'a InitializeResponse,
}

impl ConversationOpener<'_> {
    fn capabilities(&self) -> &AgentCapabilities {
        &self.initialized.agent_capabilities
    }

    async fn open(&self) -> Result<Conversation, Error> {
        let cwd = self.start.child.cwd.clone();
        let servers = mcp_servers::for_acp(&self.start.mcp_servers);
        let servers: Vec<McpServer> = serde_json::from_value(json!(servers))
            .map_err(|error| Error::invalid_params().data(json!(error.to_string())))?;
        let sessions = &self.capabilities().session_capabilities;
        let options;
        let mut is_replayed = false;
        let id = match &self.start.resume {
            Some(id) if sessions.resume.is_some() => {
                let request = ResumeSessionRequest::new(id.clone(), cwd).mcp_servers(servers);
                options = self.wire.send_request(request).block_task().await?.config_options;
                SessionId::new(id.as_str())
            }
            Some(id) if self.capabilities().load_session => {
                let request = LoadSessionRequest::new(id.clone(), cwd).mcp_servers(servers);
                is_replayed = true;
                options = self.wire.send_request(request).block_task().await?.config_options;
                SessionId::new(id.as_str())
            }
            Some(_) => {
                let text = "the agent cannot resume conversations";
                return Err(Error::new(ErrorCode::METHOD_NOT_FOUND, text));
            }
            None => {
                let mut request = NewSessionRequest::new(cwd).mcp_servers(servers);
                if let Some(system) = self.start.system.as_ref().filter(|_| self.takes_system()) {
                    let blocks = vec![ContentBlock::Text(TextContent::new(system.clone()))];
                    request = request.system_prompt(SystemPrompt::new(blocks));
                }
                let session = self.wire.send_request(request).block_task().await?;
                options = session.config_options;
                session.session_id
            }
        };
        let notice = match &self.start.model {
            Some(model) => {
                self.choose_model(&id, options.as_deref().unwrap_or_default(), model).await?
            }
            None => None,
        };
        let fresh = self.start.resume.is_none();
        let preamble = self.start.system.clone().filter(|_| fresh && !self.takes_system());
        Ok(Conversation { id: id.to_string(), preamble, notice, is_replayed })
    }

    fn takes_system(&self) -> bool {
        self.capabilities().session_capabilities.system_prompt.is_some()
    }

    /// Chooses the model by a session option. Returns a notice if the agent has no such option.
    async fn choose_model(
        &self,
        id: &SessionId,
        options: &[SessionConfigOption],
        model: &str,
    ) -> Result<Option<String>, Error> {
        let Some(option) = options.iter().find(|option| option.id.0.as_ref() == "model") else {
            return Ok(Some(
                "the agent does not support choosing a model; it uses its default".to_owned(),
            ));
        };
        let value = SessionConfigOptionValue::value_id(model.to_owned());
        let request = SetSessionConfigOptionRequest::new(id.clone(), option.id.clone(), value);
        self.wire.send_request(request).block_task().await?;
        Ok(None)
    }

    /// Logs in with an API key from the agent's environment. Any other method needs a person.
    async fn log_in(&self, methods: &[AuthMethod]) -> Result<(), StartError> {
        let by_key = methods.iter().find_map(|method| match method {
            AuthMethod::Agent(method) if method.id.0.contains("api-key") => Some(method.id.clone()),
            _ => None,
        });
        let Some(method) = by_key else {
            let text = "the agent requires a login: start it once in a terminal and log in there";
            return Err(StartError::Refused(text.to_owned()));
        };
        let request = AuthenticateRequest::new(method);
        self.wire.send_request(request).block_task().await.map(drop).map_err(refused)
    }

    fn failed(&self, error: &Error) -> StartError {
        if is_closed(error) {
            return ended();
        }
        let text = words(error);
        match self.start.resume {
            Some(_) => StartError::ResumeFailed(text),
            None => StartError::Refused(text),
        }
    }
}

fn refused(error: Error) -> StartError {
    if is_closed(&error) {
        return ended();
    }
    StartError::Refused(words(&error))
}

/// Returns whether the error means that the connection has ended.
fn is_closed(error: &Error) -> bool {
    is_connection_terminated(error) || is_incoming_transport_closed(error)
}

/// An exit whose details the caller fills in.
fn ended() -> StartError {
    StartError::Died { message: String::new(), stderr: String::new() }
}

fn words(error: &Error) -> String {
    let detail = error.data.as_ref().and_then(|data| match data {
        serde_json::Value::String(text) => Some(text.clone()),
        data => data["details"].as_str().map(str::to_owned),
    });
    match detail {
        Some(detail) => format!("{}: {detail}", error.message),
        None => error.message.clone(),
    }
}
