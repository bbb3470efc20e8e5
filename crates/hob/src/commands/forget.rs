//! `hob forget`: hides records of the memory, restores them, and answers what agents ask to be forgotten.

use clap::{ArgGroup, Args as ClapArgs};
use hob_domain::Timestamp;
use hob_domain::memory::{Forget, Principal, RecordId};
use hob_memory::{ForgetRequest, ForgetRequests};
use serde_json::{Value, json};

use super::confirm::{OwnersAct, refuse_agents};
use super::{Context, Exit};
use crate::hooks::quoted;
use crate::memory;
use crate::printer::{self, errln, outln};

/// Remove one turn or a whole session from the memory; later imports skip it
#[derive(ClapArgs)]
#[command(after_help = "\
Give RECORD_ID, --session-id, --requests, --confirm or --decline. What you forget is hidden at once and erased after a day \
(setting `memory.forget_undo_secs`); until then --undo restores it. Agents cannot forget your turns: `memory_forget` only \
files a request.")]
#[command(group = ArgGroup::new("what").required(true).args(["record_id", "session_id", "requests", "confirm", "decline"]))]
pub struct Args {
    /// ID of the turn's record, as `hob recall` shows it
    record_id: Option<String>,
    /// Forget all turns of this session
    #[arg(long, value_name = "ID")]
    session_id: Option<String>,
    /// Restore the turn or the session instead
    #[arg(long, conflicts_with_all = ["requests", "confirm", "decline"])]
    undo: bool,
    /// List what agents ask to be forgotten
    #[arg(long)]
    requests: bool,
    /// Forget what this request names
    #[arg(long, value_name = "REQUEST")]
    confirm: Option<String>,
    /// Remove this request and forget nothing
    #[arg(long, value_name = "REQUEST")]
    decline: Option<String>,
    /// Do not ask
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
        Some(id) => match requests.all().into_iter().find(|request| request.id == *id) {
            Some(request) => Some(request),
            None => {
                errln!("hob: no request has the ID {id}; `hob forget --requests` lists them");
                return Ok(Exit::Failed);
            }
        },
        None => None,
    };
    if let (Some(request), Some(_)) = (&request, &args.decline) {
        requests.remove(request)?;
        print_count(&json!({"count": 0}), args.json, "removed the request");
        return Ok(Exit::Done);
    }
    let (record_id, session_id) = match &request {
        Some(request) => (request.record_id.clone(), request.session_id.clone()),
        None => (args.record_id.clone(), args.session_id.clone()),
    };
    if args.undo {
        return undo(context, args);
    }
    let question = match (&record_id, &session_id) {
        (Some(id), _) => format!("Forget the record {id}?"),
        (None, session) => {
            format!("Forget all turns of session {}?", session.as_deref().unwrap_or(""))
        }
    };
    let act = OwnersAct { command: "hob forget", question: &question, yes: args.yes };
    if !act.is_confirmed(context)? {
        return Ok(Exit::Failed);
    }
    let undo_command = match (&record_id, &session_id) {
        (Some(id), _) => format!("hob forget --undo {}", quoted(id)),
        (None, session) => {
            format!("hob forget --undo --session-id {}", quoted(session.as_deref().unwrap_or("")))
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
        let what = if count == 1 { "it" } else { "them" };
        format!("; until {until}, `{undo_command}` restores {what}")
    });
    let text = match count {
        0 => "nothing was forgotten: the memory has no such turns".to_owned(),
        1 => format!("forgot 1 record{undo}"),
        count => format!("forgot {count} records{undo}"),
    };
    print_count(&value, args.json, &text);
    Ok(Exit::Done)
}

/// Restores what was forgotten.
fn undo(context: &Context, args: &Args) -> anyhow::Result<Exit> {
    let value = match change(context, args.record_id.clone(), args.session_id.clone(), true)? {
        Ok(value) => value,
        Err(reason) => {
            errln!("hob: {reason}");
            return Ok(Exit::Failed);
        }
    };
    let text = match value["count"].as_u64().unwrap_or_default() {
        0 => "nothing was restored: these turns were erased, or never forgotten".to_owned(),
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
    memory::runtime()?.block_on(async {
        let tools = memory::open(&context.settings, memory::STORE_BUSY_TIMEOUT).await?;
        let (engine, now) = (&tools.engine, Timestamp::now());
        let count = match undo {
            true => engine.undo_forget(&Principal::Owner, &what, now).await?,
            false => engine.forget(&Principal::Owner, &what, now).await?,
        };
        Ok(Ok(engine.forget_answer(count, undo, now)))
    })
}

fn list(requests: &[ForgetRequest], json: bool) {
    if json {
        printer::out_json(&json!({"requests": requests}));
        return;
    }
    for ForgetRequest { id, at, record_id, session_id, project } in requests {
        let what = match (record_id, session_id) {
            (Some(id), _) => format!("record {id}"),
            (None, session) => format!("session {}", session.as_deref().unwrap_or_default()),
        };
        let project = project.as_ref().map_or(String::new(), |p| format!(", asked from {p}"));
        // What an agent wrote must not look like another line.
        let line = format!("{id}  {at}  {what}{project}").replace(['\n', '\r', '\t'], " ");
        outln!("{line}");
    }
    if requests.is_empty() {
        outln!("no agent asks to forget anything");
    }
}

fn print_count(value: &Value, json: bool, text: &str) {
    if json {
        printer::out_json(value);
    } else {
        outln!("{text}");
    }
}
