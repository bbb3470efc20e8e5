//! What `hob doctor` says about the memory.

use std::time::Duration;

use hob_domain::memory::Speaker;
use hob_memory::{SentenceModel, backlog};
use hob_store::PostgresLedger;

use super::doctor::Check;
use crate::hooks::{self, Client, Places, State};
use crate::memory;
use crate::settings::Resolved;
use crate::socket::client;

/// How many of the latest events are shown.
const EVENTS: usize = 5;
/// How long others may keep the memory busy.
const BUSY: Duration = Duration::from_secs(1);

pub fn checks(settings: &Resolved) -> Vec<Check> {
    let mut checks = store(settings);
    checks.extend(model(settings));
    checks.push(waiting(settings));
    checks.extend(set_aside(settings));
    checks.extend(hook_states());
    checks
}

fn store(settings: &Resolved) -> Vec<Check> {
    if !memory::exists(settings) {
        return vec![Check::ok("memory", "nothing is remembered yet")];
    }
    let read = || {
        memory::runtime()?.block_on(async {
            let tools = memory::open(settings, BUSY).await?;
            let counts = tools.engine.counts(&Speaker::Owner).await?;
            anyhow::Ok((counts, tools.engine.events(EVENTS).await?))
        })
    };
    if !has_tables(settings) {
        return vec![Check::ok("memory", "its tables are made at the first start")];
    }
    let (counts, events) = match read() {
        Ok(read) => read,
        Err(error) => {
            let fix = match settings.store {
                None => {
                    "if the key or HOB_PASSPHRASE has changed, bring it back; else restore the file"
                }
                Some(_) => {
                    "do what it says; all nodes need the same key and the same store.encrypt"
                }
            };
            return vec![Check::failed("memory", format!("{error:#}"), fix)];
        }
    };
    let last = counts.last_ts.map_or("never".to_owned(), |ts| ts.to_string());
    let says = format!(
        "{} turns of {} sessions in {} projects; the latest {last}",
        counts.turns, counts.sessions, counts.projects
    );
    let events = events.into_iter().map(|event| {
        let says = format!("{} {}: {}", event.at, event.kind, event.detail);
        Check::warning(
            "event",
            says,
            "look at the file it names; it is told once and then kept here",
        )
    });
    std::iter::once(Check::ok("memory", says)).chain(events).collect()
}

/// Whether there is something to look at: the doctor makes nothing. What else may be wrong is said by the attempt.
fn has_tables(settings: &Resolved) -> bool {
    let Some(url) = &settings.store else { return true };
    let look = || anyhow::Ok(memory::runtime()?.block_on(PostgresLedger::look(url))?);
    look().map_or(true, |state| state.schema.is_some_and(|schema| schema >= state.known))
}

fn model(settings: &Resolved) -> Option<Check> {
    let folder = settings.memory_model.as_ref()?;
    if let Err(error) = SentenceModel::check(folder) {
        let says = format!("{error}; the built-in table is used alone");
        let fix = "set memory.model to a folder with model.safetensors, tokenizer.json and config.json \
                   of a BERT sentence model, or to nothing";
        return Some(Check::warning("model", says, fix));
    }
    let says = match memory::model_progress(settings) {
        Some(progress) => progress,
        None => format!("{} is used while `hob serve` runs", folder.display()),
    };
    Some(Check::ok("model", says))
}

fn waiting(settings: &Resolved) -> Check {
    let waiting = backlog(&settings.home.deferred());
    let says = format!("{} captures wait to be stored ({} bytes)", waiting.files, waiting.bytes);
    if waiting.files == 0 || client::hello(&settings.socket).is_ok() {
        Check::ok("deferred", says)
    } else {
        Check::warning("deferred", says, "start `hob serve`, which stores them")
    }
}

fn set_aside(settings: &Resolved) -> Option<Check> {
    let folder = settings.home.deferred();
    let failed = backlog(&folder).failed;
    let says = format!("{failed} captures could not be stored and were set aside");
    let fix = format!(
        "look at {}/*.failed.jsonl; rename one to *.jsonl to have it tried again, or remove it",
        folder.display()
    );
    (failed > 0).then(|| Check::warning("deferred", says, fix))
}

fn hook_states() -> Vec<Check> {
    let (Ok(places), Ok(hob)) = (Places::from_environment(), std::env::current_exe()) else {
        return Vec::new();
    };
    let there = Client::ALL.into_iter().filter(|client| places.folder(*client).is_dir());
    there.map(|client| hook_state(client, &places, &hob)).collect()
}

fn hook_state(client: Client, places: &Places, hob: &std::path::Path) -> Check {
    let name = client.name();
    let install = format!("hob hooks install --client {}", client.id());
    let report = match hooks::status(client, places, hob) {
        Ok(report) => report,
        Err(error) => return Check::warning("hooks", format!("{name}: {error}"), install),
    };
    let file = report.file.display();
    match report.state {
        State::Installed if report.notes.is_empty() => {
            Check::ok("hooks", format!("{name}: installed in {file}"))
        }
        State::Installed => {
            let says = format!("{name}: installed, but {}", report.notes.join("; "));
            Check::warning("hooks", says, "see the note")
        }
        State::Partial { missing } => {
            let says = format!("{name}: {} are missing in {file}", missing.join(", "));
            Check::warning("hooks", says, install)
        }
        State::Outdated { programs } => {
            let says = format!("{name}: they call {}", programs.join(", "));
            Check::warning("hooks", says, install)
        }
        State::Absent => {
            Check::warning("hooks", format!("{name}: its sessions are not remembered"), install)
        }
        State::Broken(why) => Check::warning(
            "hooks",
            format!("{name}: {file}: {why}"),
            "mend that file, then install",
        ),
    }
}
