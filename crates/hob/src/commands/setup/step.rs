//! The steps of `hob setup` and `hob setup --undo`, and how they are shown.

use std::path::PathBuf;

use hob_transcript::AgentClient;
use serde::Serialize;
use serde_json::{Value, json};

use crate::commands::Exit;
use crate::hooks::quoted;
use crate::printer::{self, outln};
use crate::view::{Paint, View};

/// How much of a hit is shown, in characters.
const MAX_SHOWN_CHARS: usize = 200;

/// What became of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StepState {
    /// It is to be done.
    Planned,
    Done,
    /// There was nothing to do.
    Unchanged,
    /// It cannot be done on this machine, or in these settings. The rest is not affected.
    Skipped,
    Failed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepKind {
    Hooks(AgentClient),
    McpEntry(AgentClient),
    Import,
    Service,
}

impl StepKind {
    pub fn name(self) -> &'static str {
        match self {
            StepKind::Hooks(_) => "hooks",
            StepKind::McpEntry(_) => "mcp",
            StepKind::Import => "import",
            StepKind::Service => "service",
        }
    }

    pub fn client(self) -> Option<AgentClient> {
        match self {
            StepKind::Hooks(client) | StepKind::McpEntry(client) => Some(client),
            StepKind::Import | StepKind::Service => None,
        }
    }
}

#[derive(Debug)]
pub struct Step {
    pub kind: StepKind,
    pub state: StepState,
    /// What it does, or why not.
    pub detail: String,
    /// The settings file that it changes.
    pub file: Option<PathBuf>,
}

impl Step {
    pub fn new(kind: StepKind, state: StepState, detail: impl Into<String>) -> Step {
        Step { kind, state, detail: detail.into(), file: None }
    }

    fn as_json(&self) -> Value {
        let client = self.kind.client().map(AgentClient::as_str);
        json!({"step": self.kind.name(), "client": client, "state": self.state, "detail": self.detail,
            "file": self.file})
    }
}

pub fn report(
    steps: &[Step],
    recall: Option<&Value>,
    console: Option<&str>,
    json: bool,
) -> anyhow::Result<Exit> {
    if json {
        let steps: Vec<Value> = steps.iter().map(Step::as_json).collect();
        printer::out_json(&json!({"steps": steps, "recall": recall, "console": console}));
    } else {
        print_steps(steps);
        if let Some(recall) = recall {
            print_recall(recall);
        }
        if let Some(console) = console {
            outln!("\nconsole: {console}");
        }
    }
    let has_failed = steps.iter().any(|step| step.state == StepState::Failed);
    Ok(if has_failed { Exit::Failed } else { Exit::Done })
}

pub fn print_steps<'a>(steps: impl IntoIterator<Item = &'a Step>) {
    let view = View::of_stdout();
    for Step { kind, state, detail, file } in steps {
        let (mark, paint) = match state {
            StepState::Planned => ("to do", Paint::Strong),
            StepState::Done => ("done", Paint::Good),
            StepState::Unchanged => ("ok", Paint::Good),
            StepState::Skipped => ("skipped", Paint::Warning),
            StepState::Failed => ("FAILED", Paint::Bad),
        };
        let mark = view.paint(paint, &format!("{mark:<8}"));
        let name = match kind.client() {
            Some(client) => format!("{} ({})", kind.name(), client.name()),
            None => kind.name().to_owned(),
        };
        let text = format!("{name:<20} {detail}");
        printer::out_drawing(&format!("{mark} {}\n", printer::clean(&text)));
        if let Some(file) = file.as_ref().filter(|_| *state == StepState::Planned) {
            outln!("{:<29} {}", "", view.path(&file.display().to_string()));
        }
    }
}

fn print_recall(recall: &Value) {
    let text = |value: &Value| {
        let line = printer::one_line(value.as_str().unwrap_or_default());
        line.chars().take(MAX_SHOWN_CHARS).collect::<String>()
    };
    outln!("\nan example from your past sessions:");
    outln!("  hob recall --project '*' -- {}", quoted(&text(&recall["cue"])));
    outln!("  → {}", text(&recall["hit"]["text"]));
}
