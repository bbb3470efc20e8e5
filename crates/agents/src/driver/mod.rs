//! One module per way of talking to an agent. Each has wire types of its own; what comes out of all of
//! them is the same: messages of the Agent Client Protocol.

mod acp;
mod claude;
pub mod claude_print;
pub(crate) mod claude_stream;
mod claude_tui;

use std::path::PathBuf;
use std::time::Duration;

use hob_child::{ChildSpec, Children};
use hob_domain::session::Permissions;
use hob_domain::{Driver, Message};
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;

use crate::claude::Changes;
use crate::mcp_servers::McpServer;
use hob_terminal::Entering;

/// An agent's words wait here until they are stored; then the agent itself waits.
const WORDS: usize = 256;

/// What to start, or to take up again.
pub struct Start {
    pub children: Children,
    pub tasks: TaskTracker,
    /// The agent's program with its folder, environment and walls. Drivers add arguments.
    pub child: ChildSpec,
    /// Where configuration folders of our own and temporary files for Claude Code lie.
    pub claude: PathBuf,
    /// Wakes those who read transcripts.
    pub changes: Changes,
    /// What to say when the program is not there.
    pub install: String,
    /// The agent's own name for the conversation that is to go on.
    pub resume: Option<String>,
    /// What was said in it, where the agent may have to be told: its own record may lie on another node.
    pub history: Vec<Message>,
    pub model: Option<String>,
    pub system: Option<String>,
    pub permissions: Permissions,
    pub mcp_servers: Vec<McpServer>,
    /// Folders besides the working one that file callbacks may reach.
    pub files: PathBuf,
    /// How long it may take until it can be asked.
    pub patience: Duration,
    /// As what people find its terminal, where it has one.
    pub entering: Entering,
}

/// Starts an agent in its driver's way.
pub async fn start(driver: Driver, start: Start) -> Result<LiveAgent, StartError> {
    let install = start.install.clone();
    let started = match driver {
        Driver::Acp | Driver::Demo => acp::start(start).await,
        Driver::ClaudeStream => claude_stream::start(start).await,
        // A question on its screen can only be answered there, and saying no would end the turn.
        Driver::ClaudeTui if start.permissions == Permissions::Ask => {
            claude_stream::start(start).await
        }
        Driver::ClaudeTui => claude_tui::start(start).await,
    };
    started.map_err(|error| match error {
        StartError::NotInstalled(what) => StartError::NotInstalled(format!("{what}. {install}")),
        error => error,
    })
}

/// Why an agent can't be asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// The program is not installed; the text says what to install.
    #[error("{0}")]
    NotInstalled(String),
    /// It started but refused to work.
    #[error("{0}")]
    Refused(String),
    /// It does not take the conversation up again.
    #[error("{0}")]
    NotResumed(String),
    /// It ended before it could be asked.
    #[error("{message}")]
    Died { message: String, stderr: String },
    /// Something on our side.
    #[error("{0}")]
    Internal(String),
}

/// A live agent. Dropping it, or [`LiveAgent::stop`], ends its whole tree.
pub struct LiveAgent {
    /// The agent's own name for the conversation, with all that is needed to go on with it.
    pub conversation: String,
    /// What could not be done as it was asked, for whoever asked.
    pub notice: Option<String>,
    orders: mpsc::UnboundedSender<Order>,
    said: mpsc::Receiver<Said>,
}

/// What an agent is told.
#[derive(Debug)]
pub enum Order {
    Prompt(String),
    /// Break the turn off; its end is still said.
    Cancel,
    /// The answer to an [`Ask`]; `None` when there will be none.
    Answer {
        ask: String,
        option: Option<String>,
    },
    /// The conversation is over for good.
    Close,
}

/// What an agent says, in order.
#[derive(Debug)]
pub enum Said {
    /// A message of the protocol: one JSON object without line ends.
    Line(String),
    /// It wants to know whether it may do something. The line came before.
    Asks(Ask),
    /// The prompt's turn is over: why, or what went wrong. The line came before.
    Over(Result<String, String>),
    /// Nothing has come for a while; what is known about it.
    Stalled(String),
    /// Its tree is gone.
    Gone(Gone),
}

/// How an agent ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gone {
    pub how: String,
    pub stderr: String,
    /// Whether a prompt was on its way that it never got to see.
    pub unasked: bool,
}

/// A question of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    pub id: String,
    /// What it wants to do, in its words.
    pub title: String,
    pub offers: Vec<Offer>,
}

/// One answer an agent would take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    pub id: String,
    pub name: String,
    pub kind: OfferKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OfferKind {
    AllowOnce,
    AllowAlways,
    RejectOnce,
    RejectAlways,
    Other,
}

impl OfferKind {
    pub fn as_str(self) -> &'static str {
        match self {
            OfferKind::AllowOnce => "allow_once",
            OfferKind::AllowAlways => "allow_always",
            OfferKind::RejectOnce => "reject_once",
            OfferKind::RejectAlways => "reject_always",
            OfferKind::Other => "other",
        }
    }
}

/// The driver's ends of a [`LiveAgent`].
pub(crate) struct Ends {
    pub orders: mpsc::UnboundedReceiver<Order>,
    pub said: mpsc::Sender<Said>,
}

impl Ends {
    /// The last word. What was asked meanwhile never reached the agent, and is said so; whether what was
    /// asked before did, the driver knows.
    pub async fn gone(mut self, gone: Gone) {
        let mut unasked = gone.unasked;
        while let Ok(order) = self.orders.try_recv() {
            unasked |= matches!(order, Order::Prompt(_));
        }
        let _ = self.said.send(Said::Gone(Gone { unasked, ..gone })).await;
    }
}

impl LiveAgent {
    pub(crate) fn new(conversation: String) -> (LiveAgent, Ends) {
        let (orders, orders_received) = mpsc::unbounded_channel();
        let (said_sender, said) = mpsc::channel(WORDS);
        (
            LiveAgent { conversation, notice: None, orders, said },
            Ends { orders: orders_received, said: said_sender },
        )
    }

    /// Tells it something. One that is gone says so by itself.
    pub fn tell(&self, order: Order) {
        let _ = self.orders.send(order);
    }

    /// What it says next. Nothing is lost when the caller stops waiting.
    pub async fn next(&mut self) -> Said {
        // The driver is gone without a word. In doubt a prompt was asked.
        let gone =
            || Gone { how: "an unknown status".to_owned(), stderr: String::new(), unasked: false };
        self.said.recv().await.unwrap_or_else(|| Said::Gone(gone()))
    }

    /// What it has said already, if anything.
    pub fn try_next(&mut self) -> Option<Said> {
        self.said.try_recv().ok()
    }

    /// Ends it and returns once no process of it is left.
    pub async fn stop(self) {
        let LiveAgent { orders, mut said, .. } = self;
        drop(orders);
        while said.recv().await.is_some() {}
    }
}

impl From<hob_child::SpawnError> for StartError {
    fn from(error: hob_child::SpawnError) -> StartError {
        use hob_child::SpawnError;
        match error {
            SpawnError::NotFound(_) | SpawnError::NotRunnable { .. } => {
                StartError::NotInstalled(error.to_string())
            }
            SpawnError::Invalid(_) => StartError::Refused(error.to_string()),
            SpawnError::Folder(_)
            | SpawnError::NotConfined(_)
            | SpawnError::Closing
            | SpawnError::System(_) => StartError::Internal(error.to_string()),
        }
    }
}
