//! What `hob setup` does on this machine.

use std::path::Path;
use std::time::{Duration, Instant};

use hob_transcript::AgentClient;
use serde_json::{Value, json};

use super::step::{Step, StepKind, StepState};
use crate::build_id::{other_build, runs_other_build};
use crate::commands::{Context, import, own_path};
use crate::hooks::{self, ClientFolders, HookState, plugin};
use crate::keys;
use crate::mcp_entry::{self, Entry, EntryState};
use crate::memory;
use crate::service::{self, Service, ServiceState, Started};
use crate::setup_record::SetupRecord;
use crate::socket::client;

/// The length of a past prompt that makes a good example, in characters.
const EXAMPLE_CHARS: std::ops::RangeInclusive<usize> = 15..=300;
/// How long a service that was just started may take to answer.
const START_TIMEOUT: Duration = Duration::from_secs(5);
/// How many past turns are looked at for an example.
const MAX_EXAMPLE_TURNS: usize = 200;

pub struct Setup<'a> {
    pub context: &'a Context,
    pub folders: ClientFolders,
    hob: String,
    /// The entry for MCP servers.
    entry: Entry,
    pub service: Service,
    /// The clients on this machine.
    clients: Vec<AgentClient>,
}

impl<'a> Setup<'a> {
    pub fn new(context: &'a Context) -> anyhow::Result<Setup<'a>> {
        let folders = ClientFolders::from_environment()?;
        let hob = own_path()?;
        let service = Service::new(&context.settings, &hob)?;
        let is_here = |client: &AgentClient| {
            folders.folder(*client).is_dir() || plugin::is_on_path(client.as_str())
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
    pub fn plan(&self) -> anyhow::Result<Vec<Step>> {
        let record = SetupRecord::load(&self.context.settings.home)?;
        let mut steps = Vec::new();
        for client in &self.clients {
            steps.push(self.plan_hooks(*client));
            steps.extend(self.plan_entry(*client, &record));
        }
        // A server of an earlier build would keep the import from migrating the databases.
        steps.push(self.plan_service());
        steps.push(match self.clients.is_empty() {
            true => {
                let detail =
                    "found no Claude Code, Codex, Gemini CLI or OpenCode; install one and run `hob setup` again";
                Step::new(StepKind::Import, StepState::Skipped, detail)
            }
            false => {
                let detail = "import past sessions into the memory";
                Step::new(StepKind::Import, StepState::Planned, detail)
            }
        });
        Ok(steps)
    }

    fn plan_hooks(&self, client: AgentClient) -> Step {
        let (state, detail) = match hooks::status(client, &self.folders, Path::new(&self.hob)) {
            Err(error) => (StepState::Failed, error.to_string()),
            Ok(report) => match report.state {
                HookState::Installed => (StepState::Unchanged, "hooks are installed".to_owned()),
                HookState::Plugin => {
                    let id = report.plugin.unwrap_or_default();
                    (StepState::Unchanged, format!("the plugin {id} provides the hooks"))
                }
                HookState::Broken(reason) => (StepState::Failed, reason),
                _ if client == AgentClient::Opencode => {
                    (StepState::Planned, "add a plugin that remembers and recalls".to_owned())
                }
                _ => (StepState::Planned, "add hooks that remember every session".to_owned()),
            },
        };
        let file = Some(self.folders.settings_file(client));
        Step { file, ..Step::new(StepKind::Hooks(client), state, detail) }
    }

    /// Plans the MCP entry. OpenCode's plugin brings the server, so that it needs none.
    fn plan_entry(&self, client: AgentClient, record: &SetupRecord) -> Option<Step> {
        let file = mcp_entry::file(client, &self.folders)?;
        let found = mcp_entry::status(client, &self.folders, &self.entry, record);
        let (state, detail) = match found {
            Err(error) => (StepState::Failed, error.to_string()),
            Ok(EntryState::Installed) => {
                (StepState::Unchanged, "the MCP server is there".to_owned())
            }
            Ok(EntryState::Other) => {
                let detail = "an MCP server named `hob` that you added or changed, or that another home added, is there; Hob leaves it alone";
                (StepState::Skipped, detail.to_owned())
            }
            Ok(EntryState::Outdated) => {
                (StepState::Planned, "let the MCP server run this `hob`".to_owned())
            }
            Ok(EntryState::Absent) if self.plugin_serves(client) => {
                (StepState::Unchanged, "the plugin provides the MCP server".to_owned())
            }
            Ok(EntryState::Absent) => {
                (StepState::Planned, "add `hob mcp`, so that the agent can recall".to_owned())
            }
        };
        Some(Step { file: Some(file), ..Step::new(StepKind::McpEntry(client), state, detail) })
    }

    /// Returns whether Hob's plugin brings an MCP server for this home. The plugin does not name a home, so it serves
    /// the default one.
    fn plugin_serves(&self, client: AgentClient) -> bool {
        self.entry.home.is_none()
            && plugin::finds_hob()
            && plugin::enabled(client, &self.folders).is_some()
    }

    fn plan_service(&self) -> Step {
        let found = self.service.state();
        let (state, detail) = match (&found, found.refusal()) {
            (_, Some(refusal)) => (StepState::Skipped, refusal),
            (ServiceState::NoManager, _) => (
                StepState::Skipped,
                "no systemd of this user is running; start the server yourself: `hob serve`"
                    .to_owned(),
            ),
            (ServiceState::Running, _) if runs_other_build(&self.context.settings.socket) => {
                let detail = "start the service again, so that it runs this build";
                (StepState::Planned, self.with_passphrase_note(detail))
            }
            (ServiceState::Running, _) => {
                (StepState::Unchanged, "the service is running".to_owned())
            }
            (ServiceState::Outdated, _) => {
                let detail = "let the service run this `hob`, and start it again";
                (StepState::Planned, self.with_passphrase_note(detail))
            }
            _ => {
                let detail = "start `hob serve` now and with every session";
                (StepState::Planned, self.with_passphrase_note(detail))
            }
        };
        let file = self.service.files().into_iter().next();
        Step { file, ..Step::new(StepKind::Service, state, detail) }
    }

    fn with_passphrase_note(&self, detail: &str) -> String {
        match service::passphrase_note(&self.context.settings) {
            Some(note) => format!("{detail}. {note}"),
            None => detail.to_owned(),
        }
    }

    /// Does what is missing.
    pub fn apply(&self, mut steps: Vec<Step>) -> anyhow::Result<Vec<Step>> {
        let settings = &self.context.settings;
        settings.home.prepare()?;
        let mut record = SetupRecord::load(&settings.home)?;
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
                // Hooks that were there before are not taken away by an undo.
                if !hooks::has_hooks(client, &self.folders)? {
                    let file = self.folders.settings_file(client);
                    record.note_missing_folders(file.parent().unwrap_or(Path::new("/")));
                    record.note_hooks(client, &self.folders);
                    record.save(&self.context.settings.home)?;
                }
                let report = hooks::install(client, &self.folders, Path::new(&self.hob))?;
                let mut notes = report.notes;
                if let Some(home) = &self.entry.home {
                    notes.push(format!("Start {} with HOB_HOME={home}.", client.name()));
                }
                let added = match client {
                    AgentClient::Opencode => "added the plugin",
                    _ => "added the hooks",
                };
                match notes.is_empty() {
                    true => added.to_owned(),
                    false => format!("{added}. {}", notes.join(" ")),
                }
            }
            StepKind::McpEntry(client) => {
                let save = |record: &SetupRecord| record.save(&self.context.settings.home);
                mcp_entry::install(client, &self.folders, &self.entry, record, &save)?;
                "added `hob mcp`".to_owned()
            }
            StepKind::Import => import::import_past(self.context)?,
            StepKind::Service => {
                let settings = &self.context.settings;
                // The service does not have the passphrase, and would create a key in clear.
                if settings.passphrase.is_some() {
                    keys::data_key(&settings.home, settings.passphrase.as_deref())?;
                }
                let is_running = client::hello(&settings.socket).is_ok();
                let save = |record: &SetupRecord| record.save(&settings.home);
                let started = self.service.install(record, is_running, &save)?;
                if started != Started::NextSession {
                    wait_for_server(&settings.socket);
                }
                let done = match started {
                    Started::NextSession => {
                        "a server runs already; the service takes over with your next session"
                    }
                    Started::Again => "updated the service and started it again",
                    Started::Now => "started `hob serve` as a service",
                };
                self.with_passphrase_note(done)
            }
        })
    }

    /// Recalls a past prompt, as an example.
    pub fn example(&self) -> Option<Value> {
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

/// Waits until a server of this build answers. Without one, the import opens the memory itself.
fn wait_for_server(socket: &Path) {
    let deadline = Instant::now() + START_TIMEOUT;
    let is_there = || client::hello(socket).is_ok_and(|hello| other_build(&hello).is_none());
    while !is_there() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(50));
    }
}
