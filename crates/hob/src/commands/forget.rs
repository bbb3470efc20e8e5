//! `hob forget`: hides records of the memory, restores them, and answers what agents ask to be forgotten.

use std::io::{IsTerminal, stdin};

use clap::{ArgGroup, Args as ClapArgs};
use clap_complete::ArgValueCompleter;
use hob_domain::Timestamp;
use hob_domain::memory::{Forget, Principal, RecordId};
use hob_memory::{ForgetRequest, ForgetRequests};
use serde_json::{Value, json};

use super::candidates;
use super::confirm::{OwnersAct, refuse_agents};
use super::memory_ids::{self, IdsOf};
use super::{Context, Exit, audit};
use crate::hooks::quoted;
use crate::memory;
use crate::printer::{self, errln, outln};
use crate::view::View;

/// How many turns around a record are asked for, to find it among them.
const NEIGHBOURS: usize = 3;
/// How many turns of a session are counted for a question.
const MAX_LISTED_TURNS: usize = 500;
/// How many turns a question shows.
const MAX_SHOWN_TURNS: usize = 5;
/// How much of a turn a question shows, in characters.
const MAX_SHOWN_CHARS: usize = 200;

/// Remove one turn or a whole session from the memory; later imports skip it
#[derive(ClapArgs)]
#[command(after_help = "\
Give RECORD_ID, --session-id, --requests, --confirm or --decline. IDs may be shortened to any unambiguous prefix. What you forget is hidden at once and erased after a day \
(setting `memory.forget_undo_secs`); until then --undo restores it. If the memory has no turn or session with this ID, the exit code is 1. \
An agent cannot \
remove turns from the memory by itself: its MCP tool `memory_forget` only files a request, which you answer with --confirm or \
--decline.")]
#[command(group = ArgGroup::new("what").required(true).args(["record_id", "session_id", "requests", "confirm", "decline"]))]
pub struct Args {
    /// ID of the turn's record, as `hob recall` shows it
    #[arg(add = ArgValueCompleter::new(candidates::records))]
    record_id: Option<String>,
    /// Forget all turns of this session
    #[arg(long, value_name = "ID", add = ArgValueCompleter::new(candidates::memory_sessions))]
    session_id: Option<String>,
    /// Restore the turn or the session instead
    #[arg(long, conflicts_with_all = ["requests", "confirm", "decline"])]
    undo: bool,
    /// List agents' pending requests to forget turns
    #[arg(long)]
    requests: bool,
    /// Forget what this request names
    #[arg(long, value_name = "REQUEST", add = ArgValueCompleter::new(candidates::forget_requests))]
    confirm: Option<String>,
    /// Remove this request and forget nothing
    #[arg(long, value_name = "REQUEST", add = ArgValueCompleter::new(candidates::forget_requests))]
    decline: Option<String>,
    /// Skip the confirmation prompt
    #[arg(long)]
    yes: bool,
    /// Print {"count":…,"undo_until":…}, or {"requests":[…]}
    #[arg(long)]
    json: bool,
}

pub fn run(context: &Context, args: &Args) -> anyhow::Result<Exit> {
    refuse_agents(context, "hob forget")?;
    let requests = ForgetRequests::new(context.settings.home.forget_requests());
    if args.requests {
        list(&requests.all(), args.json);
        return Ok(Exit::Done);
    }
    let request = match args.confirm.as_ref().or(args.decline.as_ref()) {
        Some(id) => Some(requested(requests.all(), id)?),
        None => None,
    };
    if let (Some(request), Some(_)) = (&request, &args.decline) {
        requests.remove(request)?;
        print_count(&json!({"count": 0}), args.json, "removed the request");
        return Ok(Exit::Done);
    }
    if args.undo {
        return undo(context, args);
    }
    let (record_id, session_id) = match &request {
        // An agent's request names an ID as it is.
        Some(request) => (request.record_id.clone(), request.session_id.clone()),
        None => named(context, args, IdsOf::Owner)?,
    };
    if !args.yes && stdin().is_terminal() {
        print_turns(context, record_id.as_deref(), session_id.as_deref());
    }
    let view = View::of_stdout();
    let question = match (&record_id, &session_id) {
        (Some(id), _) => format!("Forget the record {}?", printer::one_line(id)),
        (None, session) => {
            let session = printer::one_line(session.as_deref().unwrap_or(""));
            format!("Forget all turns of session {session}?")
        }
    };
    let act = OwnersAct { command: "hob forget", question: &question, yes: args.yes };
    if !act.is_confirmed(context)? {
        return Ok(Exit::Failed);
    }
    let undo_command = match (&record_id, &session_id) {
        (Some(id), _) => format!("hob forget --undo {}", quoted(id)),
        (None, session) => {
            let session = quoted(session.as_deref().unwrap_or(""));
            format!("hob forget --undo --session-id {session}")
        }
    };
    let value = match change(context, record_id, session_id, false)? {
        Ok(value) => value,
        Err(reason) => {
            errln!("hob: {reason}");
            return Ok(Exit::Failed);
        }
    };
    if let Some(request) = &request {
        requests.remove(request)?;
    }
    let count = value["count"].as_u64().unwrap_or_default();
    let undo = value["undo_until"].as_str().map_or(String::new(), |until| {
        let (are, them) = if count == 1 { ("it is", "it") } else { ("they are", "them") };
        let when = match view.is_terminal() {
            true => view.time(until),
            false => format!("at {until}"),
        };
        format!("; {are} erased {when}, and until then `{undo_command}` restores {them}")
    });
    if count == 0 && request.is_none() {
        let reason = "nothing was forgotten: the memory has no such turns";
        return Ok(found_nothing(&value, args.json, reason));
    }
    let text = match count {
        0 => "nothing was forgotten: the memory has no such turns any more".to_owned(),
        1 => format!("forgot 1 record{undo}"),
        count => format!("forgot {count} records{undo}"),
    };
    print_count(&value, args.json, &text);
    Ok(Exit::Done)
}

/// Returns the one request whose ID begins with `id`.
fn requested(requests: Vec<ForgetRequest>, id: &str) -> anyhow::Result<ForgetRequest> {
    let mut matching = requests.into_iter().filter(|request| request.id.starts_with(id));
    match (matching.next(), matching.next()) {
        (Some(request), None) => Ok(request),
        (Some(_), Some(_)) => {
            anyhow::bail!("several requests have IDs that begin with {id}; type more characters")
        }
        (None, _) => {
            anyhow::bail!("no request has the ID {id}; `hob forget --requests` lists them")
        }
    }
}

/// Returns the record or the session that the arguments name, among these turns.
fn named(
    context: &Context,
    args: &Args,
    turns: IdsOf<'_>,
) -> anyhow::Result<(Option<String>, Option<String>)> {
    let settings = &context.settings;
    let record = args.record_id.as_deref().map(|id| memory_ids::record_id(settings, turns, id));
    let session = args.session_id.as_deref().map(|id| memory_ids::session_id(settings, turns, id));
    Ok((record.transpose()?, session.transpose()?))
}

/// Shows what a confirmation would forget, so that the owner does not have to know IDs by heart. Who wrote a request or
/// a turn could otherwise choose what the question looks like, so every turn is one line without control characters.
fn print_turns(context: &Context, record_id: Option<&str>, session_id: Option<&str>) {
    let arguments = match (record_id, session_id) {
        (Some(id), _) => json!({"project": "*", "around": id, "limit": NEIGHBOURS}),
        (None, session) => json!({"session_id": session, "limit": MAX_LISTED_TURNS}),
    };
    let answer = memory::call_tool(&context.settings, "memory_timeline", arguments);
    // If the memory cannot say, the question alone has to do.
    let Ok(Ok(answer)) = answer else { return };
    let turns = answer["turns"].as_array().cloned().unwrap_or_default();
    let is_meant = |turn: &&Value| record_id.is_none_or(|id| turn["record_id"] == id);
    let turns: Vec<&Value> = turns.iter().filter(is_meant).collect();
    let view = View::of_stdout();
    for turn in turns.iter().take(MAX_SHOWN_TURNS) {
        let text = |field: &str| printer::one_line(turn[field].as_str().unwrap_or_default());
        let line = turn["text"].as_str().unwrap_or_default().trim().lines().next();
        let line = printer::one_line(line.unwrap_or_default());
        let line: String = line.chars().take(MAX_SHOWN_CHARS).collect();
        errln!("  {}  {:<9}  {line}", view.time(&text("ts")), text("role"));
    }
    match turns.len().saturating_sub(MAX_SHOWN_TURNS) {
        0 => {}
        _ if turns.len() >= MAX_LISTED_TURNS => errln!("  and more turns"),
        more => errln!("  and {more} more turns"),
    }
}

/// Restores what was forgotten.
fn undo(context: &Context, args: &Args) -> anyhow::Result<Exit> {
    // The server restores whole IDs by itself. Only shortened ones need the memory in this process.
    let mut answer = change(context, args.record_id.clone(), args.session_id.clone(), true)?;
    if answer.as_ref().is_ok_and(|value| value["count"] == 0) {
        let (record_id, session_id) = named(context, args, IdsOf::Forgotten)?;
        if (&record_id, &session_id) != (&args.record_id, &args.session_id) {
            answer = change(context, record_id, session_id, true)?;
        }
    }
    let value = match answer {
        Ok(value) => value,
        Err(reason) => {
            errln!("hob: {reason}");
            return Ok(Exit::Failed);
        }
    };
    let text = match value["count"].as_u64().unwrap_or_default() {
        0 => {
            let reason = "nothing was restored: these turns were erased, or never forgotten";
            return Ok(found_nothing(&value, args.json, reason));
        }
        1 => "restored 1 record".to_owned(),
        count => format!("restored {count} records"),
    };
    print_count(&value, args.json, &text);
    Ok(Exit::Done)
}

/// Forgets or restores through the server, or in this process.
fn change(
    context: &Context,
    record_id: Option<String>,
    session_id: Option<String>,
    undo: bool,
) -> anyhow::Result<Result<Value, String>> {
    let what = match (&record_id, &session_id) {
        (Some(id), _) => Forget::Record(RecordId::new(id.as_str())),
        (None, session) => Forget::Session(session.clone().unwrap_or_default()),
    };
    let call = crate::socket::Call::Forget { record_id, session_id, undo };
    if let Some(answer) = memory::call_server(&context.settings, &call)? {
        return Ok(answer);
    }
    context.settings.home.prepare()?;
    let target = match &what {
        Forget::Record(id) => id.as_str(),
        Forget::Session(session) => session,
    };
    let answer = memory::runtime()?.block_on(async {
        let tools = memory::open(&context.settings, memory::STORE_BUSY_TIMEOUT).await?;
        let (engine, now) = (&tools.engine, Timestamp::now());
        let count = match undo {
            true => engine.undo_forget(&Principal::Owner, &what, now).await?,
            false => engine.forget(&Principal::Owner, &what, now).await?,
        };
        anyhow::Ok(engine.forget_answer(count, undo, now))
    })?;
    audit::record(&context.settings, if undo { "undo_forget" } else { "forget" }, target);
    Ok(Ok(answer))
}

fn list(requests: &[ForgetRequest], json: bool) {
    if json {
        printer::out_json(&json!({"requests": requests}));
        return;
    }
    let view = View::of_stdout();
    for ForgetRequest { id, at, record_id, session_id, project } in requests {
        let at = view.time(&at.to_string());
        let what = match (record_id, session_id) {
            (Some(id), _) => format!("record {}", view.id(id)),
            (None, session) => {
                format!("session {}", view.id(session.as_deref().unwrap_or_default()))
            }
        };
        let project = project.as_ref();
        let project = project.map_or(String::new(), |p| format!(", asked from {}", view.path(p)));
        // What an agent wrote must not look like another line.
        let id = view.id(id);
        let line = format!("{id}  {at}  {what}{project}").replace(['\n', '\r', '\t'], " ");
        outln!("{line}");
    }
    if requests.is_empty() {
        outln!("no agent asks to forget anything");
    }
}

/// Says that there is nothing which the command could change.
fn found_nothing(value: &Value, json: bool, reason: &str) -> Exit {
    if json {
        printer::out_json(value);
    }
    errln!("hob: {reason}");
    Exit::Failed
}

fn print_count(value: &Value, json: bool, text: &str) {
    if json {
        printer::out_json(value);
    } else {
        outln!("{text}");
    }
}
