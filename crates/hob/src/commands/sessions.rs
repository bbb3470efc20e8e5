//! `hob sessions`: lists, shows, follows, cancels and closes sessions.

use clap::{Args as ClapArgs, Subcommand};
use hob_gateway::client::{Client, Method};
use hob_sessions::session::render;
use serde_json::{Value, json};

use super::{Context, Exit};
use crate::memory;
use crate::owner_client::{self, NotRunning};
use crate::printer::{self, errln, outln};

/// List, follow, cancel and close the sessions of all apps
#[derive(ClapArgs)]
#[command(after_help = "\
IDs may be shortened to any unambiguous prefix.

Exit code: 3 if the server is not running.")]
pub struct Args {
    #[command(subcommand)]
    action: SessionsAction,
}

#[derive(Subcommand)]
enum SessionsAction {
    /// List open sessions, oldest first
    List {
        /// List closed sessions, too
        #[arg(long)]
        all: bool,
        /// Print {"count":…,"sessions":[…]}
        #[arg(long)]
        json: bool,
    },
    /// Show one session
    Show {
        /// ID of the session
        id: String,
        /// Print the session as JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the events of a session and follow it until it closes
    Tail {
        /// ID of the session
        id: String,
        /// Start after the event with this number
        #[arg(long, default_value_t = 0)]
        after: u64,
        /// Print the existing events and exit
        #[arg(long)]
        no_follow: bool,
        /// Print one JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Cancel the running turn and keep the session
    Cancel {
        /// ID of the session
        id: String,
        /// Print {"ok":true,"cancelled":…}
        #[arg(long)]
        json: bool,
    },
    /// Close a session and end its agent; the session's log is kept for sessions.hard_ttl_secs
    /// seconds
    Close {
        /// ID of the session
        id: String,
        /// Print {"ok":true,…}
        #[arg(long)]
        json: bool,
    },
}

pub fn run(context: &Context, args: &Args) -> anyhow::Result<Exit> {
    let outcome = memory::runtime()?.block_on(async {
        let mut client = owner_client::connect(&context.settings.socket).await?;
        act(&mut client, &args.action).await
    });
    match outcome {
        Err(error) if error.is::<NotRunning>() => {
            errln!("hob: {error}");
            Ok(Exit::WrongState)
        }
        outcome => outcome,
    }
}

async fn act(client: &mut Client, action: &SessionsAction) -> anyhow::Result<Exit> {
    match action {
        SessionsAction::List { all, json } => {
            let shown = if *all { SessionFilter::All } else { SessionFilter::Open };
            print_sessions(&list(client, shown).await?, *json);
        }
        SessionsAction::Show { id, json } => {
            let session = request(client, Method::GET, id, "").await?;
            if *json {
                printer::out_json(&session);
            } else {
                print_session(&session);
            }
        }
        SessionsAction::Tail { id, after, no_follow, json } => {
            tail(client, id, *after, *no_follow, *json).await?;
        }
        SessionsAction::Cancel { id, json } => {
            let answer = request(client, Method::POST, id, "/cancel").await?;
            match (json, answer["turn_index"].as_u64()) {
                (true, _) => printer::out_json(&answer),
                (false, Some(turn)) => outln!("cancelled turn {turn}"),
                (false, None) => outln!("no turn was running"),
            }
        }
        SessionsAction::Close { id, json } => {
            let answer = request(client, Method::DELETE, id, "").await?;
            match (json, answer["already_closed"] == true) {
                (true, _) => printer::out_json(&answer),
                (false, true) => outln!("the session was already closed"),
                (false, false) => outln!("closed"),
            }
        }
    }
    Ok(Exit::Done)
}

/// Sends a request about the session whose id begins with `id`.
async fn request(
    client: &mut Client,
    method: Method,
    id: &str,
    rest: &str,
) -> anyhow::Result<Value> {
    let id = resolve(client, id).await?;
    owner_client::request(client, method, &path(&id, rest), None).await
}

async fn tail(
    client: &mut Client,
    id: &str,
    after: u64,
    no_follow: bool,
    json: bool,
) -> anyhow::Result<()> {
    if no_follow {
        let rest = format!("/events?after={after}");
        let answer = request(client, Method::GET, id, &rest).await?;
        for event in answer["events"].as_array().into_iter().flatten() {
            print_event(event, json);
        }
        return Ok(());
    }
    let id = resolve(client, id).await?;
    follow(client, &id, after, json).await
}

fn print_sessions(sessions: &[Value], json: bool) {
    if json {
        printer::out_json(&json!({"count": sessions.len(), "sessions": sessions}));
    } else if sessions.is_empty() {
        errln!("no sessions");
    } else {
        let (id, app, agent, state, turns) = ("ID", "APP", "AGENT", "STATE", "TURNS");
        outln!("{id:12} {app:12} {agent:10} {state:8} {turns:>5}  LAST TURN");
        for session in sessions {
            outln!("{}", row(session));
        }
    }
}

/// Which sessions a list contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SessionFilter {
    Open,
    All,
}

async fn list(client: &mut Client, filter: SessionFilter) -> anyhow::Result<Vec<Value>> {
    let answer = owner_client::request(client, Method::GET, "/admin/sessions", None).await?;
    let sessions = answer["sessions"].as_array().cloned().unwrap_or_default();
    let is_listed = |session: &Value| filter == SessionFilter::All || session["state"] != "closed";
    Ok(sessions.into_iter().filter(is_listed).collect())
}

/// Returns the one id that begins with `id`.
pub(super) async fn resolve(client: &mut Client, id: &str) -> anyhow::Result<String> {
    let all = list(client, SessionFilter::All).await?;
    let ids = all.iter().filter_map(|session| session["session_id"].as_str());
    let matching: Vec<&str> = ids.filter(|known| known.starts_with(id)).collect();
    match matching[..] {
        [one] => Ok(one.to_owned()),
        [] => anyhow::bail!("no session has the ID {id}; `hob sessions list --all` shows all"),
        _ => anyhow::bail!("{} IDs begin with {id}; type more characters", matching.len()),
    }
}

fn path(id: &str, rest: &str) -> String {
    format!("/admin/sessions/{id}{rest}")
}

/// Prints events until the session closes, or the server ends the stream.
async fn follow(client: &mut Client, id: &str, after: u64, json: bool) -> anyhow::Result<()> {
    let path = path(id, &format!("/events?after={after}"));
    let mut reply = client.ask(Method::GET, &path, "text/event-stream", None).await?;
    while let Some(event) = reply.next_event().await? {
        let data: Value = serde_json::from_str(&event.data).unwrap_or_default();
        let mut view = json!({"seq": event.id.parse::<u64>().unwrap_or_default(),
            "event": event.event});
        match (event.event.as_str(), data) {
            ("message", message) => view["message"] = message,
            (_, Value::Object(fields)) => {
                // The answer of a turn repeats all its messages.
                for (key, value) in fields.into_iter().filter(|(key, _)| key != "events") {
                    view[key] = value;
                }
            }
            _ => {}
        }
        print_event(&view, json);
    }
    Ok(())
}

fn print_event(event: &Value, json: bool) {
    if json {
        printer::out_json(event);
    } else if let Some(line) = render::event_line(event) {
        outln!("{line}");
    }
}

fn row(session: &Value) -> String {
    let text = |key: &str| session[key].as_str().unwrap_or("-");
    format!(
        "{:12} {:12} {:10} {:8} {:>5}  {}",
        text("session_id").get(..12).unwrap_or_default(),
        text("app"),
        text("agent"),
        text("state"),
        session["turn_count"].to_string(),
        text("last_turn_at"),
    )
}

fn print_session(session: &Value) {
    let keys = [
        "session_id",
        "app",
        "agent",
        "state",
        "cwd",
        "model",
        "permissions",
        "created_at",
        "closed_at",
        "turn_count",
        "last_turn_at",
        "last_event_id",
        "meta",
    ];
    for key in keys {
        let value = match &session[key] {
            Value::String(text) => text.clone(),
            Value::Null => continue,
            other => other.to_string(),
        };
        outln!("{key:14} {}", printer::one_line(&value));
    }
    let usage = &session["usage"];
    outln!(
        "{:14} {} in, {} out, {} cached, ${:.4}",
        "usage",
        usage["input_tokens"],
        usage["output_tokens"],
        usage["cached_read_tokens"],
        usage["cost_usd"].as_f64().unwrap_or_default(),
    );
}
