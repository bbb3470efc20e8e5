//! A live agent as its caller sees it: commands in, events out.

use hob_domain::SettingChange;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use super::settings::{AgentSettings, SettingRefusal};
use crate::app_permits::AppPermit;

/// Events that may wait to be stored. When the channel is full, the agent itself waits.
const MAX_PENDING_EVENTS: usize = 128;

/// A live agent. Dropping it, or calling [`LiveAgent::stop`], ends its process tree.
pub struct LiveAgent {
    /// The agent's own id of the conversation, with everything needed to resume it.
    pub conversation: String,
    /// A request that could not be met as asked, in words for the caller.
    pub notice: Option<String>,
    /// What it offers now.
    pub settings: AgentSettings,
    commands: mpsc::UnboundedSender<AgentCommand>,
    events: mpsc::Receiver<PendingEvent>,
    /// The permits of the events that the caller has taken since it last waited for one. By then they are stored.
    held: Vec<AppPermit>,
    /// Whether a prompt was sent after the driver had stopped taking commands.
    prompt_refused: bool,
}

/// An event that waits to be taken, with the permit of the long line that it comes from.
type PendingEvent = (AgentEvent, Option<AppPermit>);

/// A command for an agent.
#[derive(Debug)]
pub enum AgentCommand {
    Prompt(String),
    /// Interrupt the turn. Its [`AgentEvent::TurnEnded`] still follows.
    Cancel,
    /// Answer a [`PermissionRequest`]; `None` if nobody will.
    AnswerPermission {
        request: String,
        option: Option<String>,
        /// The fields of the form that the request has.
        content: Option<Value>,
        /// What the user tells the agent with a rejection. Only Claude Code's stream-json has a field for it.
        message: Option<String>,
    },
    /// Change a setting. The answer has all settings after the change.
    Configure {
        change: SettingChange,
        reply: oneshot::Sender<Result<Value, SettingRefusal>>,
    },
    /// End the conversation for good.
    Close,
}

/// An event of an agent. Events arrive in order.
#[derive(Debug)]
pub enum AgentEvent {
    /// A message of the Agent Client Protocol: one JSON object without line ends.
    Message(String),
    /// The agent asks for permission. The request's own message came before.
    PermissionRequested(PermissionRequest),
    /// The turn has ended, with its stop reason or an error. Its message came before.
    TurnEnded(Result<String, String>),
    /// The agent has been silent for a while; the text is what its screen shows.
    Stalled(String),
    /// The agent's process tree has ended.
    Exited(AgentExit),
}

/// The exit of an agent's process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentExit {
    /// The exit status in words.
    pub status: String,
    pub stderr: String,
    /// Whether a prompt was sent that the agent never read. Such a prompt may be sent again.
    pub prompt_unseen: bool,
}

/// Returns an output's last line that is not blank, shortened for messages.
pub fn last_line(text: &str) -> Option<String> {
    let line = text.lines().rev().find(|line| !line.trim().is_empty())?;
    Some(line.trim().chars().take(300).collect())
}

/// An agent's request for permission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PermissionRequest {
    pub id: String,
    /// The action, in the agent's words.
    pub title: String,
    /// The command, the change of a file or the other input that the title does not say. Its length is bounded.
    pub detail: Option<String>,
    pub options: Vec<PermissionOption>,
    /// What the agent wants to know: a JSON schema of an object with plain fields. The answer that allows the request has
    /// them.
    pub form: Option<Value>,
}

/// An answer that an agent accepts to a [`PermissionRequest`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PermissionOption {
    pub id: String,
    pub name: String,
    pub kind: PermissionOptionKind,
}

impl PermissionOption {
    pub(crate) fn new(id: &str, name: &str, kind: PermissionOptionKind) -> PermissionOption {
        PermissionOption { id: id.to_owned(), name: name.to_owned(), kind }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PermissionOptionKind {
    AllowOnce,
    AllowAlways,
    RejectOnce,
    RejectAlways,
    Other,
}

impl PermissionOptionKind {
    pub fn as_str(self) -> &'static str {
        match self {
            PermissionOptionKind::AllowOnce => "allow_once",
            PermissionOptionKind::AllowAlways => "allow_always",
            PermissionOptionKind::RejectOnce => "reject_once",
            PermissionOptionKind::RejectAlways => "reject_always",
            PermissionOptionKind::Other => "other",
        }
    }
}

/// The driver's ends of a [`LiveAgent`]'s channels.
pub(crate) struct DriverChannels {
    pub commands: mpsc::UnboundedReceiver<AgentCommand>,
    events: mpsc::Sender<PendingEvent>,
}

impl DriverChannels {
    /// Sends events, however long the receiver takes. The permit belongs to the line that they come from. Returns `false`
    /// if the receiver is gone.
    pub async fn send(&self, events: Vec<AgentEvent>, mut permit: Option<AppPermit>) -> bool {
        let last = events.len().saturating_sub(1);
        for (index, event) in events.into_iter().enumerate() {
            let permit = if index == last { permit.take() } else { None };
            if self.events.send((event, permit)).await.is_err() {
                return false;
            }
        }
        true
    }

    /// Sends the last event. Prompts that are still queued never reached the agent and count as unseen;
    /// the driver itself knows about earlier ones.
    pub async fn exit(mut self, exit: AgentExit) {
        let mut prompt_unseen = exit.prompt_unseen;
        // The sender of a later prompt notices that it is refused.
        self.commands.close();
        while let Ok(command) = self.commands.try_recv() {
            prompt_unseen |= matches!(command, AgentCommand::Prompt(_));
        }
        let exited = AgentEvent::Exited(AgentExit { prompt_unseen, ..exit });
        let _ = self.send(vec![exited], None).await;
    }
}

impl LiveAgent {
    pub(crate) fn new(conversation: String) -> (LiveAgent, DriverChannels) {
        let (commands, received_commands) = mpsc::unbounded_channel();
        let (event_sender, events) = mpsc::channel(MAX_PENDING_EVENTS);
        (
            LiveAgent {
                conversation,
                notice: None,
                settings: AgentSettings::default(),
                commands,
                events,
                held: Vec::new(),
                prompt_refused: false,
            },
            DriverChannels { commands: received_commands, events: event_sender },
        )
    }

    /// Sends a command. An agent that has ended reports that with its own event.
    pub fn send(&mut self, command: AgentCommand) {
        if let Err(refused) = self.commands.send(command) {
            self.prompt_refused |= matches!(refused.0, AgentCommand::Prompt(_));
        }
    }

    /// Returns the next event. It is cancel safe: no event is lost if the caller stops waiting.
    pub async fn next_event(&mut self) -> AgentEvent {
        // The driver ended without an event. The prompt counts as seen: sending it twice would be worse.
        let exit = || AgentExit {
            status: "an unknown status".to_owned(),
            stderr: String::new(),
            prompt_unseen: false,
        };
        self.held.clear();
        let next = self.events.recv().await;
        self.take(next.unwrap_or_else(|| (AgentEvent::Exited(exit()), None)))
    }

    /// Returns the next event if one has arrived.
    pub fn try_next_event(&mut self) -> Option<AgentEvent> {
        let pending = self.events.try_recv().ok()?;
        Some(self.take(pending))
    }

    fn take(&mut self, (event, permit): PendingEvent) -> AgentEvent {
        self.held.extend(permit);
        match event {
            AgentEvent::Exited(mut exit) => {
                exit.prompt_unseen |= self.prompt_refused;
                AgentEvent::Exited(exit)
            }
            event => event,
        }
    }

    /// Ends the agent and returns once none of its processes is left.
    pub async fn stop(self) {
        let LiveAgent { commands, mut events, .. } = self;
        drop(commands);
        while events.recv().await.is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An agent exits while its caller sends the next prompt. At whatever moment that is, the prompt counts as unseen.
    #[tokio::test]
    async fn prompt_that_meets_an_exit_is_unseen() {
        let exit = || AgentExit {
            status: "exit status: 0".to_owned(),
            stderr: String::new(),
            prompt_unseen: false,
        };
        for before in [true, false] {
            let (mut agent, channels) = LiveAgent::new("c".to_owned());
            if before {
                agent.send(AgentCommand::Prompt("one".to_owned()));
            }
            channels.exit(exit()).await;
            if !before {
                agent.send(AgentCommand::Prompt("one".to_owned()));
            }
            let AgentEvent::Exited(exit) = agent.next_event().await else { panic!("an exit") };
            assert!(exit.prompt_unseen, "sent before: {before}");
        }
        let (mut agent, channels) = LiveAgent::new("c".to_owned());
        channels.exit(exit()).await;
        let AgentEvent::Exited(exit) = agent.next_event().await else { panic!("an exit") };
        assert!(!exit.prompt_unseen);
    }
}
