//! `hob remember`, `hob correct`, `hob timeline` and `hob stats`: the memory's other tools in a terminal.

use std::io::Read;

use clap::Args as ClapArgs;
use hob_mcp::TimelineTurn;
use serde_json::{Map, Value, json};

use super::{Context, Exit, memory_ids};
use crate::memory;
use crate::moment::Moment;
use crate::pager::PagerOptions;
use crate::printer::{self, errln, outln};
use crate::turns_view::Heading;
use crate::view::{Paint, View};

/// Store a note in the memory
#[derive(ClapArgs)]
pub struct RememberArgs {
    /// What to remember, in full sentences; if omitted or `-`, Hob reads it from standard input
    text: Vec<String>,
    /// Folder or name of a project [default: the project of the current folder]
    #[arg(long)]
    project: Option<String>,
    /// Other words by which to find it
    #[arg(long)]
    cue: Option<String>,
    /// Print {"record_id":…,"duplicate":…}
    #[arg(long)]
    json: bool,
}

/// Correct a turn in the memory; the old text is kept but ranks below the correction
#[derive(ClapArgs)]
#[command(after_help = "IDs may be shortened to any unambiguous prefix.")]
pub struct CorrectArgs {
    /// Record ID of the turn to correct, as shown by `hob recall`
    record_id: String,
    /// The correct text; if omitted or `-`, Hob reads it from standard input
    text: Vec<String>,
    /// Print {"record_id":…,"superseded":…}
    #[arg(long)]
    json: bool,
}

/// List turns in chronological order
#[derive(ClapArgs)]
#[command(after_help = "IDs may be shortened to any unambiguous prefix.")]
pub struct TimelineArgs {
    /// Folder or name of a project; "*" lists the turns of all projects [default: the project of the current folder]
    #[arg(long)]
    project: Option<String>,
    /// List what the sessions of this app said, in all its projects, instead of your own memory; IDs must be complete
    #[arg(long, value_name = "NAME", conflicts_with = "project")]
    app: Option<String>,
    /// List only this session
    #[arg(long, value_name = "ID")]
    session_id: Option<String>,
    /// List the turns around this record or time [default: the latest turns]
    #[arg(long, value_name = "RECORD|TIME")]
    around: Option<String>,
    /// Maximum number of turns
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: usize,
    /// Print {"turns":[…]}
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    pager: PagerOptions,
}

/// Count what the memory holds
#[derive(ClapArgs)]
pub struct StatsArgs {
    /// Count what the sessions of this app said, instead of your own memory
    #[arg(long, value_name = "NAME")]
    app: Option<String>,
    /// Print {"turns":…,"sessions":…,…}
    #[arg(long)]
    json: bool,
}

pub fn remember(context: &Context, args: &RememberArgs) -> anyhow::Result<Exit> {
    let mut arguments = Map::new();
    arguments.insert("text".to_owned(), json!(given_text(&args.text)?));
    insert_project(&mut arguments, args.project.as_deref())?;
    if let Some(cue) = &args.cue {
        arguments.insert("cue".to_owned(), json!(cue));
    }
    call(context, None, "memory_capture", arguments, args.json, |answer| {
        let id = answer["record_id"].as_str().unwrap_or_default();
        match answer["duplicate"] == true {
            true => outln!("the memory has it already: {id}"),
            false => outln!("remembered as {id}; `hob forget {id}` takes it back"),
        }
    })
}

pub fn correct(context: &Context, args: &CorrectArgs) -> anyhow::Result<Exit> {
    let record_id = memory_ids::record_id(&context.settings, &args.record_id)?;
    let mut arguments = Map::new();
    arguments.insert("record_id".to_owned(), json!(record_id));
    arguments.insert("text".to_owned(), json!(given_text(&args.text)?));
    call(context, None, "memory_correct", arguments, args.json, |answer| {
        outln!("corrected; the new record is {}", answer["record_id"].as_str().unwrap_or_default());
    })
}

/// Returns the words of the command line, or standard input without them.
fn given_text(words: &[String]) -> anyhow::Result<String> {
    let words = words.join(" ");
    let text = match words.as_str() {
        "" | "-" => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text)?;
            text.trim().to_owned()
        }
        _ => words,
    };
    anyhow::ensure!(!text.trim().is_empty(), "text: must not be empty");
    Ok(text)
}

pub fn timeline(context: &Context, args: &TimelineArgs) -> anyhow::Result<Exit> {
    let mut arguments = Map::new();
    arguments.insert("limit".to_owned(), json!(args.limit));
    let project = if args.app.is_some() { Some("*") } else { args.project.as_deref() };
    insert_project(&mut arguments, project)?;
    if let Some(session) = &args.session_id {
        let session = match args.app {
            Some(_) => session.clone(),
            None => memory_ids::session_id(&context.settings, session)?,
        };
        arguments.insert("session_id".to_owned(), json!(session));
    }
    if let Some(around) = &args.around {
        let around = match (Moment::parse(around), &args.app) {
            (Ok(moment), _) => moment.as_str().to_owned(),
            (Err(_), Some(_)) => around.clone(),
            (Err(_), None) => memory_ids::record_id(&context.settings, around)?,
        };
        arguments.insert("around".to_owned(), json!(around));
    }
    let app = args.app.as_deref();
    call(context, app, "memory_timeline", arguments, args.json, |answer| {
        let turns: Vec<TimelineTurn> =
            serde_json::from_value(answer["turns"].clone()).unwrap_or_default();
        if turns.is_empty() {
            errln!("no turns; `--project '*'` lists those of all projects");
        }
        let view = View::of_stdout();
        let text: String = turns.iter().map(|turn| turn_text(&view, turn)).collect();
        args.pager.print(&context.settings, &text);
    })
}

fn turn_text(view: &View, turn: &TimelineTurn) -> String {
    let heading = Heading {
        ts: &turn.ts,
        role: &turn.role,
        origin: "",
        project: &turn.project,
        worktree: None,
        session_id: &turn.session_id,
    };
    let id = view.paint(Paint::Faint, &format!("[{}]", view.id(&turn.record_id)));
    let mut text = format!("{}  {id}\n", heading.line(view));
    for line in turn.text.trim_end().lines() {
        text.push_str(&format!("  {}\n", printer::clean(line)));
    }
    text.push('\n');
    text
}

pub fn stats(context: &Context, args: &StatsArgs) -> anyhow::Result<Exit> {
    call(context, args.app.as_deref(), "memory_stats", Map::new(), args.json, |answer| {
        let view = View::of_stdout();
        for key in ["turns", "sessions", "projects", "sealed", "superseded", "forgotten"] {
            outln!("{key:<12} {}", answer[key]);
        }
        if let Some(last) = answer["last_ts"].as_str() {
            outln!("{:<12} {}", "latest turn", view.time(last));
        }
        let backlog = &answer["backlog"];
        outln!("{:<12} {} files, {} bytes", "waiting", backlog["files"], backlog["bytes"]);
        outln!("{:<12} {}", "health", answer["health"].as_str().unwrap_or_default());
    })
}

/// Calls a tool, of an app's memory or the owner's, and prints its answer.
fn call(
    context: &Context,
    app: Option<&str>,
    tool: &str,
    arguments: Map<String, Value>,
    json: bool,
    print: impl FnOnce(&Value),
) -> anyhow::Result<Exit> {
    let (settings, arguments) = (&context.settings, Value::Object(arguments));
    let answer = match app {
        Some(app) => memory::call_tool_of_app(settings, app, tool, arguments)?,
        None => memory::call_tool(settings, tool, arguments)?,
    };
    match answer {
        Ok(answer) if json => printer::out_json(&answer),
        Ok(answer) => print(&answer),
        Err(reason) => {
            errln!("hob: {reason}");
            return Ok(Exit::Failed);
        }
    }
    Ok(Exit::Done)
}

fn insert_project(arguments: &mut Map<String, Value>, project: Option<&str>) -> anyhow::Result<()> {
    if let Some(project) = project {
        arguments.insert("project".to_owned(), json!(project_argument(project)?));
    }
    Ok(())
}

/// Returns a project as the tools take it. A relative folder is relative to the current one.
pub fn project_argument(project: &str) -> anyhow::Result<String> {
    Ok(match project.starts_with('.') || project.contains('/') {
        true => std::path::absolute(project)?.to_string_lossy().into_owned(),
        false => project.to_owned(),
    })
}
