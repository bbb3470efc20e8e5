//! From a new process to an agent that accepts prompts: handshake, login and conversation.

use agent_client_protocol::schema::ProtocolVersion;
use agent_client_protocol::v1::ConnectionTo;
use agent_client_protocol::v1::schema::{
    AgentCapabilities, AuthMethod, AuthenticateRequest, ClientCapabilities, ContentBlock,
    ElicitationCapabilities, ElicitationFormCapabilities, FileSystemCapabilities, Implementation,
    InitializeRequest, InitializeResponse, LoadSessionRequest, McpServer, NewSessionRequest,
    ResumeSessionRequest, SessionConfigOption, SessionId, SystemPrompt, TextContent,
};
use agent_client_protocol::{
    Agent, Error, ErrorCode, UntypedMessage, is_connection_terminated, is_incoming_transport_closed,
};
use hob_domain::session::Permissions;
use hob_domain::{OptionValue, SettingChange};
use serde_json::json;

use super::setting;
use crate::driver::settings::{AgentSettings, MODEL_OPTION};
use crate::driver::start::{StartError, StartOptions};
use crate::mcp_servers;

/// The id of the option by which some agents offer their modes, too.
const MODE_OPTION: &str = "mode";
/// The method by which agents change the model that have a list of models and no option for it. The protocol's schema no
/// longer has it.
const SET_MODEL: &str = "session/set_model";

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

/// Performs the handshake and starts or resumes the conversation. What the agent offers in it is noted in `settings`.
pub(super) async fn set_up(
    wire: &Wire,
    start: &StartOptions,
    settings: &AgentSettings,
) -> Result<Conversation, StartError> {
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
    let opener = ConversationOpener { wire, start, settings, initialized: &initialized };
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
    settings: &'a AgentSettings,
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
        let mut is_replayed = false;
        let (id, modes, options) = match &self.start.resume {
            Some(id) if sessions.resume.is_some() => {
                let request = ResumeSessionRequest::new(id.clone(), cwd).mcp_servers(servers);
                let session = self.wire.send_request(request).block_task().await?;
                (SessionId::new(id.as_str()), session.modes, session.config_options)
            }
            Some(id) if self.capabilities().load_session => {
                let request = LoadSessionRequest::new(id.clone(), cwd).mcp_servers(servers);
                is_replayed = true;
                let session = self.wire.send_request(request).block_task().await?;
                (SessionId::new(id.as_str()), session.modes, session.config_options)
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
                (session.session_id, session.modes, session.config_options)
            }
        };
        self.settings.set_modes(json!(modes));
        self.settings.set_config_options(json!(options));
        let is_chosen = self.start.choices.options.contains_key(MODEL_OPTION);
        let model = self.start.model.as_ref().filter(|_| !is_chosen);
        let mut notices = match model {
            Some(model) => {
                self.choose_model(&id, options.as_deref().unwrap_or_default(), model).await?
            }
            None => Vec::new(),
        };
        notices.extend(self.choose_mode(&id).await?);
        notices.extend(self.choose_again(&id).await?);
        let notice = (!notices.is_empty()).then(|| notices.join("; "));
        let fresh = self.start.resume.is_none();
        let preamble = self.start.system.clone().filter(|_| fresh && !self.takes_system());
        Ok(Conversation { id: id.to_string(), preamble, notice, is_replayed })
    }

    fn takes_system(&self) -> bool {
        self.capabilities().session_capabilities.system_prompt.is_some()
    }

    /// Sets the mode for the session's permissions. Returns a notice if the agent refuses, because its questions may not be
    /// what the caller expects, and the notice of the agent's entry.
    async fn choose_mode(&self, id: &SessionId) -> Result<Option<String>, Error> {
        let choices = &self.start.choices;
        let is_chosen = choices.mode.is_some() || choices.options.contains_key(MODE_OPTION);
        let Some(mode) = self.start.mode.as_ref().filter(|_| !is_chosen) else { return Ok(None) };
        let change = SettingChange::Mode { mode: mode.clone() };
        match setting::send(self.wire, id, &change, self.settings).answer.await {
            Ok(()) => Ok(self.start.policy_notice.clone().filter(|_| self.start.resume.is_none())),
            Err(error) if is_closed(&error) => Err(error),
            Err(error) => {
                let (policy, why) = (self.start.permissions.as_str(), words(&error));
                Ok(Some(format!(
                    "permissions = \"{policy}\" may not apply: the agent does not accept its mode {mode}: {why}"
                )))
            }
        }
    }

    /// Makes the caller's choices again. Returns a notice of each that the agent refuses.
    async fn choose_again(&self, id: &SessionId) -> Result<Vec<String>, Error> {
        let mut notices = Vec::new();
        for change in self.start.choices.changes() {
            let sent = setting::send(self.wire, id, &change, self.settings);
            match sent.answer.await {
                Ok(()) => {}
                Err(error) if is_closed(&error) => return Err(error),
                Err(error) => {
                    let (what, why) = (change.describe(), words(&error));
                    notices.push(format!("the agent no longer accepts {what}: {why}"));
                }
            }
        }
        Ok(notices)
    }

    /// Chooses the model by a session option, or by the method of agents that list their models instead. Returns a notice if
    /// the agent has neither and took the model by no variable when it started.
    async fn choose_model(
        &self,
        id: &SessionId,
        options: &[SessionConfigOption],
        model: &str,
    ) -> Result<Vec<String>, Error> {
        let has_option = options.iter().any(|option| option.id.0.as_ref() == MODEL_OPTION);
        let chosen = if has_option {
            let (option, value) = (MODEL_OPTION.to_owned(), OptionValue::Choice(model.to_owned()));
            let change = SettingChange::Option { option, value };
            setting::send(self.wire, id, &change, self.settings).answer.await
        } else if self.start.model_env.is_some() {
            return Ok(Vec::new());
        } else if !self.settings.models().is_empty() {
            let params = json!({"sessionId": id, "modelId": model});
            let request = UntypedMessage::new(SET_MODEL, params)?;
            self.wire.send_request(request).block_task().await.map(drop)
        } else {
            let text = "the agent does not support choosing a model; it uses its default";
            return Ok(vec![text.to_owned()]);
        };
        match chosen {
            Ok(()) => Ok(Vec::new()),
            Err(error) if is_closed(&error) => Err(error),
            Err(error) => {
                let offered = match self.settings.models().as_slice() {
                    [] => String::new(),
                    models => format!("; it offers {}", models.join(", ")),
                };
                let why = words(&error);
                let text = format!("the agent refuses the model {model:?} ({why}){offered}");
                Err(Error::new(error.code, text))
            }
        }
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

/// Returns an agent's error in words.
pub(super) fn words(error: &Error) -> String {
    let detail = error.data.as_ref().and_then(|data| match data {
        serde_json::Value::String(text) => Some(text.clone()),
        data => data["details"].as_str().map(str::to_owned),
    });
    match detail {
        Some(detail) => format!("{}: {detail}", error.message),
        None => error.message.clone(),
    }
}
