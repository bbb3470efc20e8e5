//! `hob remember` and `hob correct`: notes in the memory. Other commands call the memory's tools as these do.

use std::io::Read;

use clap::Args as ClapArgs;
use clap_complete::ArgValueCompleter;
use serde_json::{Map, Value, json};

use super::candidates;
use super::memory_ids::{self, IdsOf};
use super::{Context, Exit};
use crate::memory;
use crate::printer::{self, errln, outln};

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
    #[arg(add = ArgValueCompleter::new(candidates::records))]
    record_id: String,
    /// The correct text; if omitted or `-`, Hob reads it from standard input
    text: Vec<String>,
    /// Print {"record_id":…,"superseded":…}
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
    let record_id = memory_ids::record_id(&context.settings, IdsOf::Owner, &args.record_id)?;
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

/// Calls a tool, of an app's memory or the owner's, and prints its answer.
pub(super) fn call(
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
        Ok(mut answer) if json => {
            mark_app(&mut answer, app);
            printer::out_json(&answer);
        }
        Ok(answer) => print(&answer),
        Err(reason) => {
            errln!("hob: {reason}");
            return Ok(Exit::Failed);
        }
    }
    Ok(Exit::Done)
}

/// Marks the hits or turns of an answer with the app in whose memory they are, if it is an app's.
pub(super) fn mark_app(answer: &mut Value, app: Option<&str>) {
    let Some(app) = app else { return };
    for list in ["hits", "turns"] {
        let turns = answer.get_mut(list).and_then(Value::as_array_mut);
        for turn in turns.into_iter().flatten() {
            turn["app"] = json!(app);
        }
    }
}

/// Adds a project to the arguments of a tool, if there is one.
pub(super) fn insert_project(
    arguments: &mut Map<String, Value>,
    project: Option<&str>,
) -> anyhow::Result<()> {
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
