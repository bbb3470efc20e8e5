//! Checks of the memory: its store, its sentence model, deferred captures, and the hooks of the
//! clients.

use std::time::Duration;

use hob_domain::memory::Principal;
use hob_gateway::Check;
use hob_memory::{SentenceModel, backlog};
use hob_store::PostgresLedger;
use hob_transcript::AgentClient;

use super::check;
use super::ledger::FILE_FIX;
use crate::build_id::RESTART;
use crate::hooks::{self, ClientFolders, HookState};
use crate::inventory::Inventory;
use crate::migration_guard::UsedByServer;
use crate::settings::Resolved;
use crate::socket::client;
use crate::{keys, memory};

/// How many maintenance events the report shows, newest first.
const MAX_EVENTS: usize = 5;
/// How long to wait for a process that is writing into the memory.
const BUSY_TIMEOUT: Duration = Duration::from_secs(1);

pub fn checks(settings: &Resolved) -> Vec<Check> {
    let mut checks = store(settings);
    checks.extend(model(settings));
    checks.push(deferred(settings));
    checks.extend(failed_captures(settings));
    checks.extend(hooks_of_all_clients());
    checks
}

fn store(settings: &Resolved) -> Vec<Check> {
    if !memory::exists(settings) && !settings.home.has_data() {
        return vec![check::passed("memory", "empty: no turns are stored yet")];
    }
    if !memory::exists(settings)
        && let Ok(key) = keys::data_key(&settings.home, settings.passphrase.as_deref())
        && Inventory::new(&settings.home).check_memory(&key).is_ok()
    {
        return vec![check::passed("memory", "empty: no turns are stored yet")];
    }
    if !has_tables(settings) {
        let text = "the first start of `hob serve` creates its tables";
        return vec![check::passed("memory", text)];
    }
    let read = || {
        memory::runtime()?.block_on(async {
            let tools = memory::open(settings, BUSY_TIMEOUT).await?;
            let counts = tools.engine.counts(&Principal::Owner).await?;
            anyhow::Ok((counts, tools.engine.events(MAX_EVENTS).await?))
        })
    };
    let (counts, events) = match read() {
        Ok(read) => read,
        Err(error) if error.is::<UsedByServer>() => {
            return vec![check::warning("memory", format!("{error:#}"), RESTART)];
        }
        Err(error) => {
            let fix = match settings.values.store_url {
                None => FILE_FIX,
                Some(_) => {
                    "do what the message says; all nodes need the same key and the same store.encrypt"
                }
            };
            return vec![check::failed("memory", format!("{error:#}"), fix)];
        }
    };
    let latest = counts.last_ts.map_or(String::new(), |ts| format!("; latest turn: {ts}"));
    let (turns, sessions, projects) = (counts.turns, counts.sessions, counts.projects);
    let text = format!("{turns} turns of {sessions} sessions in {projects} projects{latest}");
    let events = events.into_iter().map(|event| {
        let text = format!("{} {}: {}", event.at, event.kind, event.detail);
        check::warning("event", text, "look at the file that the event names")
    });
    std::iter::once(check::passed("memory", text)).chain(events).collect()
}

/// Returns whether the memory's tables exist and are current. The doctor must not create or migrate
/// them. If the database cannot be asked, returns `true`: the attempt to open it then gives the
/// reason.
fn has_tables(settings: &Resolved) -> bool {
    let Some(url) = &settings.values.store_url else { return true };
    let inspect = || anyhow::Ok(memory::runtime()?.block_on(PostgresLedger::look(url))?);
    inspect().map_or(true, |state| state.schema.is_some_and(|schema| schema >= state.known))
}

fn model(settings: &Resolved) -> Option<Check> {
    let folder = settings.values.memory_model.as_ref()?;
    if let Err(error) = SentenceModel::check(folder) {
        let text = format!("{error}; hob uses the built-in embedding table alone");
        let fix = "set memory.model to a folder with model.safetensors, tokenizer.json and config.json \
                   of a BERT sentence model, or clear it";
        return Some(check::warning("model", text, fix));
    }
    let text = match memory::model_progress(settings) {
        Some(progress) => progress,
        None => format!("`hob serve` uses {}", folder.display()),
    };
    Some(check::passed("model", text))
}

/// Checks that captures which hooks deferred to files are being stored.
fn deferred(settings: &Resolved) -> Check {
    let backlog = backlog(&settings.home.deferred());
    let text = format!(
        "{} files of captured turns wait to be stored ({} bytes)",
        backlog.files, backlog.bytes
    );
    if backlog.files == 0 || client::hello(&settings.socket).is_ok() {
        check::passed("deferred", text)
    } else {
        check::warning("deferred", text, "start `hob serve`: it stores them")
    }
}

/// Reports captures that the server gave up on.
fn failed_captures(settings: &Resolved) -> Option<Check> {
    let folder = settings.home.deferred();
    let failed = backlog(&folder).failed;
    let text = format!("{failed} files of captured turns could not be stored in the memory");
    let fix = format!(
        "look at {}/*.failed.jsonl; to retry a file, remove `.failed` from its name; else delete it",
        folder.display()
    );
    (failed > 0).then(|| check::warning("deferred", text, fix))
}

/// Checks the hooks of each client that is installed on this machine.
fn hooks_of_all_clients() -> Vec<Check> {
    let (Ok(folders), Ok(hob)) = (ClientFolders::from_environment(), std::env::current_exe())
    else {
        return Vec::new();
    };
    let installed = AgentClient::ALL.into_iter().filter(|client| folders.folder(*client).is_dir());
    installed.map(|client| hooks_of(client, &folders, &hob)).collect()
}

fn hooks_of(client: AgentClient, folders: &ClientFolders, hob: &std::path::Path) -> Check {
    let name = client.name();
    let install = format!("run `hob hooks install --client {}`", client.as_str());
    let report = match hooks::status(client, folders, hob) {
        Ok(report) => report,
        Err(error) => return check::warning("hooks", format!("{name}: {error}"), install),
    };
    let file = report.file.display();
    match report.state {
        HookState::Installed if report.notes.is_empty() => {
            check::passed("hooks", format!("{name}: installed in {file}"))
        }
        HookState::Installed => {
            let text = format!("{name}: the hooks in {file} might not work");
            check::warning("hooks", text, report.notes.join(" "))
        }
        HookState::Plugin => {
            let id = report.plugin.unwrap_or_default();
            check::passed("hooks", format!("{name}: the plugin {id} provides the hooks"))
        }
        HookState::Partial { missing } => {
            let text = format!("{name}: {file} has no hooks for {}", missing.join(", "));
            check::warning("hooks", text, install)
        }
        HookState::Outdated { programs } => {
            let text = format!("{name}: the hooks in {file} run {}", programs.join(", "));
            check::warning("hooks", text, install)
        }
        HookState::Absent => {
            let text = format!("{name}: no hooks in {file}, so hob does not capture its sessions");
            check::warning("hooks", text, install)
        }
        HookState::Broken(reason) => {
            let fix = format!("correct that file, then {install}");
            check::warning("hooks", format!("{name}: {file}: {reason}"), fix)
        }
    }
}
