//! How the backend runs.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::launch_spec::{LaunchSpec, LaunchSpecProvider};
use crate::runtime::Runtime;

/// The options that all conversations of a backend share.
#[derive(Clone)]
pub struct BackendOptions {
    /// Idle processes count towards its limit on live agents and are ended when it is reached. Nothing
    /// is kept warm once `stopping` is cancelled.
    pub runtime: Runtime,
    /// Provides the launch spec of each process.
    pub launch_specs: Arc<dyn LaunchSpecProvider>,
    pub history: HistoryMode,
    /// The folder for this backend's temporary files, which are removed at close.
    pub runtime_folder: PathBuf,
    /// An idle process is ended after this time.
    pub idle_timeout: Duration,
    /// How long a process may take to show its prompt.
    pub ready_timeout: Duration,
    pub turn_timeout: Duration,
    /// A turn without activity for this long emits a stall event with the text on the screen.
    pub stall_after: Duration,
    /// A turn that waits for the results of the client's tools is ended after this time.
    pub tool_result_timeout: Duration,
    /// Takes the costs that become known after the result of their turn.
    pub late_costs: Option<mpsc::UnboundedSender<LateCost>>,
}

/// A cost that became known after the result of its turn.
#[derive(Debug, Clone, PartialEq)]
pub struct LateCost {
    /// The app that owns the conversation.
    pub app: String,
    pub usd: f64,
}

impl BackendOptions {
    /// Creates options under which every process starts from the same launch spec.
    pub fn new(
        runtime: Runtime,
        launch_spec: LaunchSpec,
        runtime_folder: PathBuf,
    ) -> BackendOptions {
        BackendOptions {
            runtime,
            launch_specs: Arc::new(launch_spec),
            history: HistoryMode::NativeJsonl,
            runtime_folder,
            idle_timeout: Duration::from_secs(900),
            ready_timeout: Duration::from_secs(60),
            turn_timeout: Duration::from_secs(1800),
            stall_after: Duration::from_secs(20),
            tool_result_timeout: Duration::from_secs(600),
            late_costs: None,
        }
    }
}

/// The way in which a new process gets the history of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HistoryMode {
    /// As a transcript that the process resumes.
    NativeJsonl,
    /// As text before the first prompt.
    ConcatMessage,
}

impl HistoryMode {
    pub fn parse(text: &str) -> Option<HistoryMode> {
        match text {
            "native_jsonl" => Some(HistoryMode::NativeJsonl),
            "concat_message" => Some(HistoryMode::ConcatMessage),
            _ => None,
        }
    }
}
