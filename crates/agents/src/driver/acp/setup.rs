//! From a fresh process to an agent that can be asked: the greeting, the login, the conversation.

use agent_client_protocol::schema::ProtocolVersion;
use agent_client_protocol::v1::ConnectionTo;
use agent_client_protocol::v1::schema::{
    AgentCapabilities, AuthMethod, AuthenticateRequest, ClientCapabilities, ContentBlock,
    FileSystemCapabilities, Implementation, InitializeRequest, InitializeResponse,
    LoadSessionRequest, McpServer, NewSessionRequest, ResumeSessionRequest, SessionConfigOption,
    SessionConfigOptionValue, SessionId, SetSessionConfigOptionRequest, SystemPrompt, TextContent,
};
use agent_client_protocol::{
    Agent, Error, ErrorCode, is_connection_terminated, is_incoming_transport_closed,
};
use serde_json::json;

use super::super::{Start, StartError};
use crate::mcp_servers;

/// A conversation that can go on.
pub(super) struct Conversation {
    pub id: String,
    /// What goes before the first prompt, for agents that take no system prompt.
    pub preamble: Option<String>,
    /// What could not be done as it was asked.
    pub notice: Option<String>,
}

impl Conversation {
    /// What the ledger keeps.
    pub fn name(&self) -> String {
        self.id.clone()
    }
}

type Wire = ConnectionTo<Agent>;

/// Greets the agent and begins or resumes its conversation.
pub(super) async fn set_up(wire: &Wire, start: &Start) -> Result<Conversation, StartError> {
    let capabilities = ClientCapabilities::new()
        .fs(FileSystemCapabilities::new().read_text_file(true).write_text_file(true))
        .terminal(true);
    let greeting = InitializeRequest::new(ProtocolVersion::V1)
        .client_capabilities(capabilities)
        .client_info(Implementation::new("hob", env!("CARGO_PKG_VERSION")));
    let greeted = wire.send_request(greeting).block_task().await.map_err(refused)?;
    if greeted.protocol_version != ProtocolVersion::V1 {
        let text = format!(
            "the agent speaks version {} of the protocol, hob speaks 1",
            greeted.protocol_version
        );
        return Err(StartError::Refused(text));
    }
    let opening = Opening { wire, start, greeted: &greeted };
    match opening.open().await {
        Err(error) if error.code == ErrorCode::AUTH_REQUIRED => {
            opening.log_in(&greeted.auth_methods).await?;
            opening.open().await.map_err(|error| opening.failed(&error))
        }
        other => other.map_err(|error| opening.failed(&error)),
    }
}

struct Opening<'a> {
    wire: &'a Wire,
    start: &'a Start,
    greeted: &'a InitializeResponse,
}

impl Opening<'_> {
    fn capabilities(&self) -> &AgentCapabilities {
        &self.greeted.agent_capabilities
    }

    async fn open(&self) -> Result<Conversation, Error> {
        let cwd = self.start.child.cwd.clone();
        let servers = mcp_servers::for_acp(&self.start.mcp_servers);
        let servers: Vec<McpServer> = serde_json::from_value(json!(servers))
            .map_err(|error| Error::invalid_params().data(json!(error.to_string())))?;
        let sessions = &self.capabilities().session_capabilities;
        let options;
        let id = match &self.start.resume {
            Some(id) if sessions.resume.is_some() => {
                let request = ResumeSessionRequest::new(id.clone(), cwd).mcp_servers(servers);
                options = self.wire.send_request(request).block_task().await?.config_options;
                SessionId::new(id.as_str())
            }
            Some(id) if self.capabilities().load_session => {
                let request = LoadSessionRequest::new(id.clone(), cwd).mcp_servers(servers);
                options = self.wire.send_request(request).block_task().await?.config_options;
                SessionId::new(id.as_str())
            }
            Some(_) => {
                let text = "the agent can't take conversations up again";
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
        Ok(Conversation { id: id.to_string(), preamble, notice })
    }

    fn takes_system(&self) -> bool {
        self.capabilities().session_capabilities.system_prompt.is_some()
    }

    /// Models are an option of the session, where the agent has one; where not, that is said.
    async fn choose_model(
        &self,
        id: &SessionId,
        options: &[SessionConfigOption],
        model: &str,
    ) -> Result<Option<String>, Error> {
        let Some(option) = options.iter().find(|option| option.id.0.as_ref() == "model") else {
            return Ok(Some("the agent lets nobody choose its model; it uses its own".to_owned()));
        };
        let value = SessionConfigOptionValue::value_id(model.to_owned());
        let request = SetSessionConfigOptionRequest::new(id.clone(), option.id.clone(), value);
        self.wire.send_request(request).block_task().await?;
        Ok(None)
    }

    /// With a key from its environment an agent can log in by itself; anything else needs a person.
    async fn log_in(&self, methods: &[AuthMethod]) -> Result<(), StartError> {
        let by_key = methods.iter().find_map(|method| match method {
            AuthMethod::Agent(method) if method.id.0.contains("api-key") => Some(method.id.clone()),
            _ => None,
        });
        let Some(method) = by_key else {
            let text = "the agent wants a login: start it once by hand and log in there";
            return Err(StartError::Refused(text.to_owned()));
        };
        let request = AuthenticateRequest::new(method);
        self.wire.send_request(request).block_task().await.map(drop).map_err(refused)
    }

    fn failed(&self, error: &Error) -> StartError {
        if is_over(error) {
            return ended();
        }
        let text = words(error);
        match self.start.resume {
            Some(_) => StartError::NotResumed(text),
            None => StartError::Refused(text),
        }
    }
}

fn refused(error: Error) -> StartError {
    if is_over(&error) {
        return ended();
    }
    StartError::Refused(words(&error))
}

/// Whether it is not an answer but the end of all answers.
fn is_over(error: &Error) -> bool {
    is_connection_terminated(error) || is_incoming_transport_closed(error)
}

/// How it ended is known to whoever started it.
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
