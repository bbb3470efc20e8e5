//! `hob setup`: from a fresh installation to an agent that remembers, and back.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args as ClapArgs;
use hob_transcript::AgentClient;
use serde::Serialize;
use serde_json::{Value, json};

use super::confirm::{OwnersAct, refuse_agents};
use super::{Context, Exit, import, own_path};
use crate::hooks::{self, ClientFolders, HookState, quoted};
use crate::mcp_entry::{self, Entry, EntryState};
use crate::memory;
use crate::printer::{self, outln};
use crate::service::{Service, ServiceState};
use crate::setup_record::SetupRecord;
use crate::socket::client;

/// The length of a past prompt that makes a good example, in characters.
const EXAMPLE_CHARS: std::ops::RangeInclusive<usize> = 15..=300;
/// How many past turns are looked at for an example.
const MAX_EXAMPLE_TURNS: usize = 200;
/// How long a service that was just started may take to answer.
const START_TIMEOUT: Duration = Duration::from_secs(5);
/// How much of a hit is shown, in characters.
const MAX_SHOWN_CHARS: usize = 200;

/// Set up everything: hooks and MCP for each coding agent found, import of past sessions, the service
#[derive(ClapArgs)]
#[command(after_help = "\
Shows what it will do and asks first. You can run it again at any time: it does only what is missing. --undo takes the \
hooks, the MCP entries and the service away again; your memory stays in the home folder until you delete it.")]
pub struct Args {
    /// Do not ask
    #[arg(long)]
    yes: bool,
    /// Show what would be done, and do nothing
    #[arg(long, conflicts_with_all = ["yes", "undo"])]
    dry_run: bool,
    /// Remove the hooks, the MCP entries and the service
    #[arg(long)]
    undo: bool,
    /// Print {"steps":[…],"recall":…,"console":…}
    #[arg(long)]
    json: bool,
}

/// What became of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum StepState {
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
enum StepKind {
    Hooks(AgentClient),
    McpEntry(AgentClient),
    Import,
    Service,
}

impl StepKind {
    fn name(self) -> &'static str {
        match self {
            StepKind::Hooks(_) => "hooks",
            StepKind::McpEntry(_) => "mcp",
            StepKind::Import => "import",
            StepKind::Service => "service",
        }
    }

    fn client(self) -> Option<AgentClient> {
        match self {
            StepKind::Hooks(client) | StepKind::McpEntry(client) => Some(client),
            StepKind::Import | StepKind::Service => None,
        }
    }
}

#[derive(Debug)]
struct Step {
    kind: StepKind,
    state: StepState,
    /// What it does, or why not.
    detail: String,
    /// The settings file that it changes.
    file: Option<PathBuf>,
}

impl Step {
    fn new(kind: StepKind, state: StepState, detail: impl Into<String>) -> Step {
        Step { kind, state, detail: detail.into(), file: None }
    }

    /// Returns whether the service was started by this command.
    fn is_started_service(&self) -> bool {
        self.kind == StepKind::Service && self.state == StepState::Done
    }

    fn as_json(&self) -> Value {
        let client = self.kind.client().map(AgentClient::as_str);
        json!({"step": self.kind.name(), "client": client, "state": self.state, "detail": self.detail,
            "file": self.file})
    }
}

pub fn run(context: &Context, args: &Args) -> anyhow::Result<Exit> {
    refuse_agents(context, "hob setup")?;
    let setup = Setup::new(context)?;
    if args.undo {
        return setup.undo(args);
    }
    let plan = setup.plan();
    let is_needed = plan.iter().any(|step| step.state == StepState::Planned);
    if args.dry_run || !is_needed {
        return report(&plan, None, None, args.json);
    }
    if !args.json {
        print_steps(&plan);
    }
    let act = OwnersAct { command: "hob setup", question: "Do this?", yes: args.yes };
    if !act.is_confirmed(context)? {
        return Ok(Exit::Failed);
    }
    let steps = setup.apply(plan)?;
    let recall = setup.example();
    let is_started = steps.iter().any(|step| step.is_started_service());
    let console = console(&context.settings.socket, is_started);
    report(&steps, recall.as_ref(), console.as_deref(), args.json)
}

/// Returns the address of the console. A server that was just started gets some time to answer.
fn console(socket: &Path, is_started: bool) -> Option<String> {
    let deadline = Instant::now() + if is_started { START_TIMEOUT } else { Duration::ZERO };
    loop {
        match client::hello(socket) {
            Ok(hello) => return hello.http,
            Err(_) if Instant::now() >= deadline => return None,
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

struct Setup<'a> {
    context: &'a Context,
    folders: ClientFolders,
    hob: String,
    /// The entry for MCP servers.
    entry: Entry,
    service: Service,
    /// The clients on this machine.
    clients: Vec<AgentClient>,
}

impl<'a> Setup<'a> {
    fn new(context: &'a Context) -> anyhow::Result<Setup<'a>> {
        let folders = ClientFolders::from_environment()?;
        let hob = own_path()?;
        let service = Service::new(&context.settings, &hob)?;
        let is_here = |client: &AgentClient| {
            folders.folder(*client).is_dir() || is_on_path(client.description().id)
        };
        let clients = AgentClient::ALL.into_iter().filter(is_here).collect();
        let home = context.settings.home.root();
        let entry = Entry {
            program: hob.clone(),
            home: (!context.settings.home.is_default()).then(|| home.display().to_string()),
        };
        Ok(Setup { context, folders, hob, entry, service, clients })
    }

    /// Returns what there is to do.
    fn plan(&self) -> Vec<Step> {
        let record = SetupRecord::load(&self.context.settings.home);
        let mut steps = Vec::new();
        for client in &self.clients {
            steps.push(self.plan_hooks(*client));
            steps.push(self.plan_entry(*client, &record));
        }
        steps.push(match self.clients.is_empty() {
            true => {
                let detail =
                    "found neither Claude Code nor Codex; install one and run `hob setup` again";
                Step::new(StepKind::Import, StepState::Skipped, detail)
            }
            false => {
                let detail = "import past sessions into the memory";
                Step::new(StepKind::Import, StepState::Planned, detail)
            }
        });
        steps.push(self.plan_service());
        steps
    }

    fn plan_hooks(&self, client: AgentClient) -> Step {
        let (state, detail) = match hooks::status(client, &self.folders, Path::new(&self.hob)) {
            Err(error) => (StepState::Failed, error.to_string()),
            Ok(report) => match report.state {
                HookState::Installed => (StepState::Unchanged, "hooks are installed".to_owned()),
                HookState::Broken(reason) => (StepState::Failed, reason),
                _ => (StepState::Planned, "add hooks that remember every session".to_owned()),
            },
        };
        let file = Some(self.folders.settings_file(client));
        Step { file, ..Step::new(StepKind::Hooks(client), state, detail) }
    }

    fn plan_entry(&self, client: AgentClient, record: &SetupRecord) -> Step {
        let found = mcp_entry::status(client, &self.folders, &self.entry, record);
        let (state, detail) = match found {
            Err(error) => (StepState::Failed, error.to_string()),
            Ok(EntryState::Installed) => {
                (StepState::Unchanged, "the MCP server is there".to_owned())
            }
            Ok(EntryState::Other) => {
                let detail =
                    "an MCP server named `hob` that Hob did not add is there; Hob leaves it alone";
                (StepState::Skipped, detail.to_owned())
            }
            Ok(EntryState::Outdated) => {
                (StepState::Planned, "let the MCP server run this `hob`".to_owned())
            }
            Ok(EntryState::Absent) => {
                (StepState::Planned, "add `hob mcp`, so that the agent can recall".to_owned())
            }
        };
        let file = Some(mcp_entry::file(client, &self.folders));
        Step { file, ..Step::new(StepKind::McpEntry(client), state, detail) }
    }

    fn plan_service(&self) -> Step {
        let (state, detail) = match self.service.state() {
            ServiceState::NoManager => (
                StepState::Skipped,
                "no systemd of this user is running; start the server yourself: `hob serve`",
            ),
            ServiceState::Running => (StepState::Unchanged, "the service is running"),
            ServiceState::Other => {
                (StepState::Skipped, "a unit that Hob did not write is there; Hob leaves it alone")
            }
            _ => (StepState::Planned, "start `hob serve` now and with every session"),
        };
        let file = self.service.files().into_iter().next();
        Step { file, ..Step::new(StepKind::Service, state, detail) }
    }

    /// Does what is missing.
    fn apply(&self, mut steps: Vec<Step>) -> anyhow::Result<Vec<Step>> {
        let settings = &self.context.settings;
        settings.home.prepare()?;
        let mut record = SetupRecord::load(&settings.home);
        for step in steps.iter_mut().filter(|step| step.state == StepState::Planned) {
            let done = self.take(step.kind, &mut record);
            // What was created is noted even if a later step fails.
            record.save(&settings.home)?;
            match done {
                Ok(detail) => {
                    step.state = StepState::Done;
                    step.detail = detail;
                }
                Err(error) => (step.state, step.detail) = (StepState::Failed, format!("{error:#}")),
            }
        }
        Ok(steps)
    }

    /// Takes one step. Returns what was done.
    fn take(&self, kind: StepKind, record: &mut SetupRecord) -> anyhow::Result<String> {
        Ok(match kind {
            StepKind::Hooks(client) => {
                record.note_clients(&self.folders);
                record.save(&self.context.settings.home)?;
                let report = hooks::install(client, &self.folders, Path::new(&self.hob))?;
                let mut notes = report.notes;
                if let Some(home) = &self.entry.home {
                    notes.push(format!("Start {} with HOB_HOME={home}.", client.name()));
                }
                match notes.is_empty() {
                    true => "added the hooks".to_owned(),
                    false => format!("added the hooks. {}", notes.join(" ")),
                }
            }
            StepKind::McpEntry(client) => {
                let save = |record: &SetupRecord| record.save(&self.context.settings.home);
                mcp_entry::install(client, &self.folders, &self.entry, record, &save)?;
                "added `hob mcp`".to_owned()
            }
            StepKind::Import => import::import_past(self.context)?,
            StepKind::Service => {
                let is_running = client::hello(&self.context.settings.socket).is_ok();
                let save = |record: &SetupRecord| record.save(&self.context.settings.home);
                self.service.install(record, is_running, &save)?;
                match is_running {
                    true => "a server runs already; the service takes over with your next session",
                    false => "started `hob serve` as a service",
                }
                .to_owned()
            }
        })
    }

    fn undo(&self, args: &Args) -> anyhow::Result<Exit> {
        let home = &self.context.settings.home;
        let question = "Remove the hooks, the MCP entries and the service?";
        let act = OwnersAct { command: "hob setup --undo", question, yes: args.yes };
        if !act.is_confirmed(self.context)? {
            return Ok(Exit::Failed);
        }
        let mut record = SetupRecord::load(home);
        let mut steps = Vec::new();
        let outcome = |changed: Result<bool, String>, removed: &str| match changed {
            Ok(true) => (StepState::Done, removed.to_owned()),
            Ok(false) => (StepState::Unchanged, "there was nothing to remove".to_owned()),
            Err(reason) => (StepState::Failed, reason),
        };
        // The variables that name the folders may have been others when it was set up.
        let mut places = std::mem::take(&mut record.clients);
        if !places.contains(&self.folders) {
            places.push(self.folders.clone());
        }
        for (folders, client) in
            places.iter().flat_map(|place| AgentClient::ALL.map(|c| (place, c)))
        {
            let removed = hooks::uninstall(client, folders);
            let removed = removed.map(|report| report.changed).map_err(|error| error.to_string());
            if removed.is_err() {
                record.note_clients(folders);
            }
            let (state, detail) = outcome(removed, "removed the hooks");
            let file = Some(folders.settings_file(client));
            steps.push(Step { file, ..Step::new(StepKind::Hooks(client), state, detail) });
            let file = mcp_entry::file(client, folders);
            let removed = mcp_entry::uninstall(client, &file, &mut record);
            let (state, detail) =
                outcome(removed.map_err(|error| error.to_string()), "removed the MCP server");
            steps.push(Step {
                file: Some(file),
                ..Step::new(StepKind::McpEntry(client), state, detail)
            });
        }
        let removed = self.service.uninstall(&mut record).map_err(|error| format!("{error:#}"));
        let (state, detail) = outcome(removed, "stopped the service and removed its units");
        steps.push(Step::new(StepKind::Service, state, detail));
        if home.root().exists() {
            record.save(home)?;
        }
        let exit = report(&steps, None, None, args.json)?;
        if !args.json && home.root().exists() {
            let root = home.root().display();
            outln!(
                "\nyour memory and your sessions are still in {root}; delete that folder if you want them gone"
            );
        }
        Ok(exit)
    }

    /// Recalls a past prompt, as an example.
    fn example(&self) -> Option<Value> {
        let settings = &self.context.settings;
        let timeline = json!({"project": "*", "limit": MAX_EXAMPLE_TURNS});
        let turns = memory::call_tool(settings, "memory_timeline", timeline).ok()?.ok()?;
        let turns = turns["turns"].as_array()?;
        let prompt = turns.iter().rev().find_map(|turn| {
            let text = turn["text"].as_str().filter(|_| turn["role"] == "user")?;
            EXAMPLE_CHARS.contains(&text.chars().count()).then_some(text)
        })?;
        let recall = json!({"cue": prompt, "project": "*", "limit": 1});
        let found = memory::call_tool(settings, "memory_recall", recall).ok()?.ok()?;
        let hit = found["hits"].get(0)?.clone();
        Some(json!({"cue": prompt, "hit": hit}))
    }
}

fn is_on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

fn report(
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

fn print_steps(steps: &[Step]) {
    for Step { kind, state, detail, file } in steps {
        let mark = match state {
            StepState::Planned => "to do",
            StepState::Done => "done",
            StepState::Unchanged => "ok",
            StepState::Skipped => "skipped",
            StepState::Failed => "FAILED",
        };
        let name = match kind.client() {
            Some(client) => format!("{} ({})", kind.name(), client.name()),
            None => kind.name().to_owned(),
        };
        outln!("{mark:<8} {name:<20} {detail}");
        if let Some(file) = file.as_ref().filter(|_| *state == StepState::Planned) {
            outln!("{:<29} {}", "", file.display());
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
