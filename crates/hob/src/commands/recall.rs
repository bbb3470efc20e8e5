//! `hob recall`: searches the memory from a terminal.

use std::time::Duration;

use clap::Args as ClapArgs;
use clap_complete::ArgValueCompleter;
use hob_domain::memory::{Principal, RecordId};
use hob_mcp::{Hit, RecallResult};
use serde_json::{Map, Value, json};

use super::candidates;
use super::confirm::OwnersAct;
use super::memory_ids::{self, IdsOf};
use super::notes::{mark_app, project_argument};
use super::recall_screen::{self, Query, Scope};
use super::{Context, Exit, audit};
use crate::memory;
use crate::memory_reader::open_to_read;
use crate::pager::PagerOptions;
use crate::printer::{self, errln};
use crate::settings::Resolved;
use crate::socket::client::{CALL_TIMEOUT, Connection};
use crate::socket::{Answer, Call};
use crate::time_input::Moment;
use crate::turns_view::{Heading, Highlighter, reason_line};
use crate::view::View;

/// Search the memory for turns (prompts and answers) from past sessions
#[derive(ClapArgs)]
pub struct Args {
    /// What to search for: a question, names, paths, an error message
    #[arg(required_unless_present = "interactive", value_name = "QUERY")]
    cue: Vec<String>,
    /// Full-screen search as you type; prints the selected hit
    #[arg(long, short, conflicts_with_all = ["explain", "unseal", "json"])]
    interactive: bool,
    /// Folder or name of a project; "*" searches all projects [default: the Git repository that contains the current folder,
    /// or the folder itself]
    #[arg(long)]
    project: Option<String>,
    /// Search this app's sessions instead of your own memory; without --project, search all of the app's projects
    #[arg(long, value_name = "NAME", add = ArgValueCompleter::new(candidates::apps), conflicts_with_all = ["unseal", "interactive"])]
    app: Option<String>,
    /// Search only this session
    #[arg(long, value_name = "ID", add = ArgValueCompleter::new(candidates::memory_sessions))]
    session_id: Option<String>,
    /// Earliest date or time: yesterday, 2d, 6h, "3 days ago", 2026-11-01 or RFC 3339; dates are in UTC
    #[arg(long, value_name = "TIME", value_parser = Moment::parse)]
    since: Option<Moment>,
    /// Latest date or time
    #[arg(long, value_name = "TIME", value_parser = Moment::parse)]
    until: Option<Moment>,
    /// Maximum number of hits
    #[arg(long, value_name = "N", default_value_t = 10)]
    limit: usize,
    /// Approximate maximum size of all hits together, in tokens
    #[arg(long, value_name = "N", default_value_t = 4000)]
    budget_tokens: usize,
    /// Minimum score of a hit, from 0 to 1; 0 includes very weak matches
    #[arg(long, value_name = "SCORE")]
    min_score: Option<f64>,
    /// Show the features that each hit was ranked by
    #[arg(long)]
    explain: bool,
    /// Show secrets instead of masking them; asks first
    #[arg(long)]
    unseal: bool,
    /// With --unseal, do not ask
    #[arg(long)]
    yes: bool,
    /// Print {"hits":[…],"budget_used":…,"omitted":…,"partial":…}
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    pager: PagerOptions,
}

pub fn run(context: &Context, args: &Args) -> anyhow::Result<Exit> {
    let settings = &context.settings;
    let unsealing = OwnersAct {
        command: "hob recall --unseal",
        question: "Show the secrets in the hits?",
        yes: args.yes,
    };
    if args.unseal && !unsealing.is_confirmed(context)? {
        return Ok(Exit::Failed);
    }
    let mut arguments = search_arguments(settings, args)?;
    if args.interactive {
        return search_on_screen(settings, args, arguments);
    }
    arguments.insert("cue".to_owned(), json!(args.cue.join(" ")));
    let arguments = Value::Object(arguments);
    let answer = match &args.app {
        Some(app) => memory::call_tool_of_app(settings, app, "memory_recall", arguments)?,
        None => memory::call_tool(settings, "memory_recall", arguments)?,
    };
    let value = match answer {
        Ok(value) => value,
        Err(why) => {
            errln!("hob: {why}");
            return Ok(Exit::Failed);
        }
    };
    let mut result: RecallResult = serde_json::from_value(value)?;
    if args.unseal {
        for hit in &mut result.hits {
            match unseal(settings, &hit.record_id) {
                Ok(text) => (hit.text, hit.cut) = (text, false),
                Err(error) => errln!("hob: {}: {error:#}", hit.record_id),
            }
        }
    }
    if args.json {
        let mut value = serde_json::to_value(&result)?;
        mark_app(&mut value, args.app.as_deref());
        printer::out_json(&value);
    } else {
        args.pager.print(settings, &hits_text(&result, args));
    }
    Ok(Exit::Done)
}

/// Returns the arguments of the search, without its query.
fn search_arguments(settings: &Resolved, args: &Args) -> anyhow::Result<Map<String, Value>> {
    let mut arguments = Map::new();
    arguments.insert("limit".to_owned(), json!(args.limit));
    arguments.insert("budget_tokens".to_owned(), json!(args.budget_tokens));
    if let Some(project) = args.project.as_deref().or(args.app.as_ref().map(|_| "*")) {
        arguments.insert("project".to_owned(), json!(project_argument(project)?));
    }
    if let Some(session) = &args.session_id {
        let turns = IdsOf::of(args.app.as_deref());
        let session = memory_ids::session_id(settings, turns, session)?;
        arguments.insert("session_id".to_owned(), json!(session));
    }
    for (name, moment) in [("since", &args.since), ("until", &args.until)] {
        if let Some(moment) = moment {
            arguments.insert(name.to_owned(), json!(moment.as_str()));
        }
    }
    if args.explain {
        arguments.insert("explain".to_owned(), json!(true));
    }
    if let Some(min_score) = args.min_score {
        arguments.insert("min_score".to_owned(), json!(min_score));
    }
    Ok(arguments)
}

/// Searches while the user types, and prints the hit that the user chooses.
fn search_on_screen(
    settings: &Resolved,
    args: &Args,
    arguments: Map<String, Value>,
) -> anyhow::Result<Exit> {
    let search = |query: &Query| {
        let mut arguments = arguments.clone();
        arguments.insert("cue".to_owned(), json!(query.words));
        if query.scope == Scope::All {
            arguments.insert("project".to_owned(), json!("*"));
        }
        let found = memory::call_tool(settings, "memory_recall", Value::Object(arguments));
        let value = found.map_err(|error| format!("{error:#}"))??;
        let result: RecallResult = serde_json::from_value(value).map_err(|e| e.to_string())?;
        Ok(result.hits)
    };
    if let Some(chosen) = recall_screen::run(args.cue.join(" "), search)? {
        let view = View::of_stdout();
        printer::out_drawing(&hit_text(&view, &Highlighter::new(""), &chosen, None));
    }
    Ok(Exit::Done)
}

/// Returns the original text of a record, from the server or from the store.
fn unseal(settings: &Resolved, record_id: &str) -> anyhow::Result<String> {
    if let Ok(mut connection) =
        Connection::open_home(&settings.socket, &settings.home, CALL_TIMEOUT)
    {
        let call = Call::Unseal { record_id: record_id.to_owned() };
        return match connection.call(&call, Duration::from_secs(5))? {
            Answer::Text(text) => Ok(text),
            Answer::Refused(why) => anyhow::bail!("{why}"),
            other => anyhow::bail!("unexpected response from the server: {other:?}"),
        };
    }
    let text = memory::runtime()?.block_on(async {
        let tools = open_to_read(settings, Duration::from_secs(5)).await?;
        let found = tools.engine.record(&Principal::Owner, &RecordId::new(record_id)).await?;
        let record = found.ok_or_else(|| anyhow::anyhow!("no record has the ID {record_id}"))?;
        tools.engine.unseal(&record).ok_or_else(|| {
            anyhow::anyhow!("cannot decrypt the secrets of {record_id} with this key")
        })
    })?;
    audit::record(settings, "unseal", record_id);
    Ok(text)
}

fn hits_text(result: &RecallResult, args: &Args) -> String {
    let view = View::of_stdout();
    let highlighter = Highlighter::new(&args.cue.join(" "));
    let shown = |hit: &Hit| hit_text(&view, &highlighter, hit, args.app.as_deref());
    let mut text: String = result.hits.iter().map(shown).collect();
    let omitted = match result.omitted {
        0 => String::new(),
        omitted => format!(", {omitted} more not shown (--limit, --budget-tokens)"),
    };
    let hits = if result.hits.len() == 1 { "hit" } else { "hits" };
    text.push_str(&format!("{} {hits}{omitted}\n", result.hits.len()));
    if result.hits.is_empty() {
        text.push_str(&advice(args));
    }
    if result.partial {
        text.push_str(
            "some captured turns are not searchable yet; `hob serve` makes them searchable\n",
        );
    }
    text
}

/// Returns what finds more, if a search finds nothing.
fn advice(args: &Args) -> String {
    let is_everywhere = args.project.as_deref() == Some("*") || args.app.is_some();
    let ways = [
        (!is_everywhere, "`--project '*'` searches all projects"),
        (args.since.is_some() || args.until.is_some(), "no --since or --until, all times"),
        (args.min_score != Some(0.0), "`--min-score 0` shows weak matches too"),
    ];
    let ways: Vec<&str> =
        ways.into_iter().filter_map(|(helps, way)| helps.then_some(way)).collect();
    match ways.is_empty() {
        true => String::new(),
        false => format!("nothing matches; {}\n", ways.join("; ")),
    }
}

fn hit_text(view: &View, highlighter: &Highlighter, hit: &Hit, app: Option<&str>) -> String {
    let heading = Heading { app, ..Heading::of_hit(hit) }.line(view);
    let reason = reason_line(view, hit);
    let mut text = format!("{heading}\n  {reason}\n");
    for (name, value) in &hit.features {
        text.push_str(&format!("    {} {value:.3}\n", printer::one_line(name)));
    }
    for line in hit.text.trim_end().lines() {
        text.push_str(&format!("  | {}\n", highlighter.line(view, line)));
    }
    if hit.cut {
        text.push_str(
            "  (a passage of a longer turn; `hob recall --budget-tokens` shows more of it)\n",
        );
    }
    text.push('\n');
    text
}
