//! `hob allow` and `hob deny`: answer an agent's permission request.

use clap::Args as ClapArgs;
use clap_complete::ArgValueCompleter;
use hob_gateway::client::{Client, Method};
use serde_json::{Value, json};

use super::candidates;
use super::confirm::refuse_agents;
use super::sessions::{list_open, resolve};
use super::{Context, Exit};
use crate::memory;
use crate::owner_client::{self, NotRunning};
use crate::printer::{self, errln, outln};
use crate::tail_view::detail_text;

/// How far back a waiting request is looked for, in events. An agent that asks does nothing else meanwhile.
const MAX_EVENTS_BACK: u64 = 500;

// The command line describes the two commands that take these arguments.
#[derive(ClapArgs)]
#[command(after_help = "\
Without SESSION, answers the only pending request; if there are several, lists them. IDs may be shortened to any \
unambiguous prefix.

Exit code: 3 if the server is not running.")]
pub struct Args {
    /// ID of the session whose agent is asking
    #[arg(add = ArgValueCompleter::new(candidates::sessions))]
    session: Option<String>,
    /// ID of another answer that the agent offers, for example "always for this tool". `--list --json` shows the IDs. Without --option, the answer covers this one request only
    #[arg(long, value_name = "OPTION")]
    option: Option<String>,
    /// List pending requests without answering any
    #[arg(long, conflicts_with = "option")]
    list: bool,
    /// Print {"answered":{…}}, or {"waiting":[…]}
    #[arg(long)]
    json: bool,
}

#[derive(ClapArgs)]
pub struct AllowArgs {
    #[command(flatten)]
    args: Args,
    /// Fields of the form that the agent wants filled in, as a JSON object; `--list --json` shows the form
    #[arg(long, value_name = "JSON", conflicts_with = "list")]
    content: Option<String>,
}

/// What the owner decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Allow,
    Deny,
}

impl Verdict {
    fn command(self) -> &'static str {
        match self {
            Verdict::Allow => "hob allow",
            Verdict::Deny => "hob deny",
        }
    }

    /// Fails if an option of a request does the opposite.
    fn check_option(self, request: &Value, option: &str) -> anyhow::Result<()> {
        let options = request["options"].as_array().into_iter().flatten();
        let chosen = options.into_iter().find(|offered| offered["option"] == option);
        let kind = chosen.and_then(|chosen| chosen["kind"].as_str()).unwrap_or(option);
        let (opposite, command) = match self {
            Verdict::Allow => ("reject", "hob deny"),
            Verdict::Deny => ("allow", "hob allow"),
        };
        anyhow::ensure!(
            !kind.starts_with(opposite),
            "{option}: this command does not accept this option; use `{command}`"
        );
        Ok(())
    }

    /// Returns the kind of option that decides this request only.
    fn option(self) -> &'static str {
        match self {
            Verdict::Allow => "allow_once",
            Verdict::Deny => "reject_once",
        }
    }
}

pub fn allow(context: &Context, args: &AllowArgs) -> anyhow::Result<Exit> {
    let content = args.content.as_deref().map(serde_json::from_str).transpose();
    let content = content.map_err(|error| anyhow::anyhow!("--content: not JSON: {error}"))?;
    run(context, &args.args, Verdict::Allow, content)
}

pub fn deny(context: &Context, args: &Args) -> anyhow::Result<Exit> {
    run(context, args, Verdict::Deny, None)
}

fn run(
    context: &Context,
    args: &Args,
    verdict: Verdict,
    content: Option<Value>,
) -> anyhow::Result<Exit> {
    // An agent must not answer its own question.
    refuse_agents(context, verdict.command())?;
    let outcome = memory::runtime()?.block_on(async {
        let mut client = owner_client::connect(&context.settings.socket).await?;
        answer(&mut client, args, verdict, content).await
    });
    match outcome {
        Err(error) if error.is::<NotRunning>() => {
            errln!("hob: {error}");
            Ok(Exit::WrongState)
        }
        outcome => outcome,
    }
}

async fn answer(
    client: &mut Client,
    args: &Args,
    verdict: Verdict,
    content: Option<Value>,
) -> anyhow::Result<Exit> {
    let waiting = waiting(client, args.session.as_deref()).await?;
    if args.list {
        print_list(&waiting, args.json);
        return Ok(Exit::Done);
    }
    let request = match &waiting[..] {
        [one] => one,
        [] => {
            errln!("hob: no agent is waiting for an answer");
            return Ok(Exit::Failed);
        }
        several => {
            errln!(
                "hob: {} agents are waiting for an answer; specify one of these sessions:",
                several.len()
            );
            print_list(&waiting, args.json);
            return Ok(Exit::Failed);
        }
    };
    let text = |field: &str| request[field].as_str().unwrap_or_default();
    let request_id = match &request["request_id"] {
        Value::String(id) => id.clone(),
        other => other.to_string(),
    };
    let path = format!("/admin/sessions/{}/permissions/{request_id}", text("session_id"));
    let option = args.option.as_deref().unwrap_or(verdict.option());
    verdict.check_option(request, option)?;
    let mut body = json!({"option": option});
    if let Some(content) = content {
        body["content"] = content;
    }
    owner_client::request(client, Method::POST, &path, Some(&body)).await?;
    if args.json {
        let mut answered = request.clone();
        answered["option"] = json!(option);
        printer::out_json(&json!({"answered": answered}));
    } else {
        let done = if verdict == Verdict::Allow { "allowed" } else { "denied" };
        outln!("{done}: {}", printer::one_line(text("title")));
        printer::out(&detail_text(request));
    }
    Ok(Exit::Done)
}

/// Returns the requests that wait, in one session or in all.
async fn waiting(client: &mut Client, session: Option<&str>) -> anyhow::Result<Vec<Value>> {
    let id = match session {
        Some(session) => Some(resolve(client, session).await?),
        None => None,
    };
    let mut waiting = Vec::new();
    for session in list_open(client).await? {
        let session_id = session["session_id"].as_str().unwrap_or_default();
        if id.as_deref().is_some_and(|id| id != session_id) || session["state"] != "running" {
            continue;
        }
        let last = session["last_event_id"].as_u64().unwrap_or_default();
        let after = last.saturating_sub(MAX_EVENTS_BACK);
        let path = format!("/admin/sessions/{session_id}");
        let events = owner_client::events_after(client, &path, after).await?;
        for request in open_requests(&events) {
            waiting.push(json!({"session_id": session_id, "app": session["app"],
                "agent": session["agent"], "request_id": request["request_id"],
                "title": request["title"], "detail": request["detail"], "options": request["options"],
                "form": request["form"]}));
        }
    }
    Ok(waiting)
}

/// Returns the requests of a log that nobody has answered.
fn open_requests(events: &[Value]) -> Vec<&Value> {
    let requests = || events.iter().filter(|event| event["event"] == "permission");
    let is_answered = |id: &Value| {
        requests().any(|event| event["status"] != "asked" && event["request_id"] == *id)
    };
    requests()
        .filter(|event| event["status"] == "asked" && !is_answered(&event["request_id"]))
        .collect()
}

fn print_list(waiting: &[Value], json: bool) {
    if json {
        printer::out_json(&json!({"waiting": waiting}));
        return;
    }
    for request in waiting {
        let text = |field: &str| printer::one_line(request[field].as_str().unwrap_or_default());
        outln!("{}  {}  {}: {}", text("session_id"), text("app"), text("agent"), text("title"));
        printer::out(&detail_text(request));
    }
    if waiting.is_empty() {
        outln!("no agent is waiting for an answer");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answered_requests_do_not_wait() {
        let event = |id: &str, status: &str| json!({"event": "permission", "request_id": id, "status": status});
        let events = [event("1", "asked"), event("1", "answered"), event("2", "asked")];
        let open: Vec<&Value> = open_requests(&events).iter().map(|e| &e["request_id"]).collect();
        assert_eq!(open, [&json!("2")]);
    }
}
