//! `hob export`: prints the memory as JSON lines.

use std::io::Write;
use std::time::Duration;

use clap::Args as ClapArgs;
use clap_complete::ArgValueCompleter;
use hob_domain::AppName;
use hob_domain::memory::Principal;
use hob_memory::locate_project;
use serde_json::json;

use super::candidates;
use super::confirm::{OwnersAct, refuse_agents};
use super::memory_ids::{self, IdsOf};
use super::{Context, Exit, audit};
use crate::inventory::Inventory;
use crate::memory_reader::open_to_read;
use crate::printer::{self, errln};
use crate::{keys, memory};

/// How many records are read from the store at a time.
const PAGE_RECORDS: usize = 500;

/// Print the memory as JSON lines, one turn per line, in the order they were stored
#[derive(ClapArgs)]
pub struct Args {
    /// Print only turns from the project that contains this folder
    #[arg(long, value_name = "DIR")]
    project: Option<std::path::PathBuf>,
    /// Print the turns of this app's sessions instead of your own memory
    #[arg(long, value_name = "NAME", add = ArgValueCompleter::new(candidates::apps), conflicts_with = "unseal")]
    app: Option<String>,
    /// Print only turns from this session
    #[arg(long, value_name = "ID", add = ArgValueCompleter::new(candidates::memory_sessions))]
    session_id: Option<String>,
    /// Print secrets instead of masking them; asks first
    #[arg(long)]
    unseal: bool,
    /// With --unseal, do not ask
    #[arg(long)]
    yes: bool,
    /// No effect: the output is always JSON
    #[arg(long)]
    json: bool,
}

pub fn run(context: &Context, args: &Args) -> anyhow::Result<Exit> {
    let settings = &context.settings;
    refuse_agents(context, "hob export")?;
    let unsealing = OwnersAct {
        command: "hob export --unseal",
        question: "Print the secrets in the memory?",
        yes: args.yes,
    };
    if args.unseal && !unsealing.is_confirmed(context)? {
        return Ok(Exit::Failed);
    }
    if !memory::exists(settings) {
        // Perhaps it is lost.
        let home = &settings.home;
        if home.has_data() {
            let key = keys::data_key(home, settings.passphrase.as_deref())?;
            Inventory::new(home).check_memory(&key)?;
        }
        return Ok(Exit::Done);
    }
    let app = args.app.as_deref().map(AppName::new).transpose()?;
    let principal = match &app {
        Some(app) => Principal::App(app.as_str().to_owned()),
        None => Principal::Owner,
    };
    let runtime = memory::runtime()?;
    let tools = runtime.block_on(open_to_read(settings, Duration::from_secs(5)))?;
    if let Some(app) = &app
        && runtime.block_on(tools.engine.counts(&principal))?.turns == 0
    {
        errln!("hob: the memory has no turns of an app {app}; `hob app list` shows the apps");
        return Ok(Exit::Failed);
    }
    let turns = IdsOf::of(args.app.as_deref());
    let session = args.session_id.as_deref().map(|id| memory_ids::session_id(settings, turns, id));
    let session = session.transpose()?;
    // Not before the memory is open: it refuses a database into which a migration still goes.
    let target = args.app.as_deref().unwrap_or_default();
    audit::record(settings, if args.unseal { "export_unsealed" } else { "export" }, target);
    let project = args.project.as_ref().map(|folder| locate_project(folder).project);
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let mut after = 0;
    loop {
        let page = runtime.block_on(tools.engine.page(&principal, after, PAGE_RECORDS))?;
        let Some(last) = page.last() else { break };
        after = last.seq;
        for record in &page {
            let wanted = project.as_ref().is_none_or(|project| *project == record.place.project)
                && session.as_ref().is_none_or(|session| *session == record.session);
            if !wanted {
                continue;
            }
            let text = if args.unseal { tools.engine.unseal(record) } else { None };
            let mut line = json!({
                "record_id": record.id, "session_id": record.session,
                "project": record.place.project, "worktree": record.place.worktree,
                "role": record.role, "tier": record.tier, "ts": record.ts.to_string(),
                "client": record.client, "source": record.source, "cue": record.cue,
                "supersedes": record.supersedes, "superseded_by": record.superseded_by,
                "text": text.as_ref().unwrap_or(&record.text),
            });
            if let Some(app) = &app {
                line["app"] = json!(app);
            }
            let line = printer::json_line(&line);
            out.write_all(line.as_bytes()).unwrap_or_else(|error| printer::end_unwritten(&error));
        }
    }
    out.flush().unwrap_or_else(|error| printer::end_unwritten(&error));
    Ok(Exit::Done)
}
