//! `hob sessions`: what runs, what was said, and how to end it.

use clap::{Args as ClapArgs, Subcommand};
use hob_gateway::client::{Client, Method};
use hob_sessions::session::render;
use serde_json::{Value, json};

use super::{Context, Exit};
use crate::memory;
use crate::owner_client::{self, NotRunning};

/// Look at sessions of all apps, follow them, and end them
#[derive(ClapArgs)]
#[command(after_help = "\
An ID may be cut short as long as it fits one session. Exits 3 when hob is not running.")]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// List sessions, oldest first; closed ones with --all
    List {
        /// Closed ones too
        #[arg(long)]
        all: bool,
        /// Print {"count":…,"sessions":[…]}
        #[arg(long)]
        json: bool,
    },
    /// Show one session
    Show {
        id: String,
        /// Print the session as JSON
        #[arg(long)]
        json: bool,
    },
    /// Print a session's events and go on as they come, until it is closed
    Tail {
        id: String,
        /// Begin after this event
        #[arg(long, default_value_t = 0)]
        after: u64,
        /// Print the events that are there and leave
        #[arg(long)]
        no_follow: bool,
        /// Print one JSON object a line
        #[arg(long)]
        json: bool,
    },
    /// End the running turn and keep the session
    Cancel {
        id: String,
        /// Print {"ok":true,"cancelled":…}
        #[arg(long)]
        json: bool,
    },
    /// Close a session: its agent is ended, its log stays for a while
    Close {
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
            eprintln!("hob: {error}");
            Ok(Exit::WrongState)
        }
        outcome => outcome,
    }
}

async fn act(client: &mut Client, action: &Action) -> anyhow::Result<Exit> {
    match action {
        Action::List { all, json } => {
            let sessions = list(client, *all).await?;
            if *json {
                println!("{}", json!({"count": sessions.len(), "sessions": sessions}));
            } else if sessions.is_empty() {
                eprintln!("there is no session");
            } else {
                println!(
                    "{:12} {:12} {:10} {:8} {:>5}  LAST TURN",
                    "ID", "APP", "AGENT", "STATE", "TURNS"
                );
                for session in &sessions {
                    println!("{}", row(session));
                }
            }
        }
        Action::Show { id, json } => {
            let id = resolve(client, id).await?;
            let session = owner_client::ask(client, Method::GET, &path(&id, ""), None).await?;
            if *json {
                println!("{session}");
            } else {
                print_session(&session);
            }
        }
        Action::Tail { id, after, no_follow, json } => {
            let id = resolve(client, id).await?;
            if *no_follow {
                let path = path(&id, &format!("/events?after={after}"));
                let answer = owner_client::ask(client, Method::GET, &path, None).await?;
                for event in answer["events"].as_array().into_iter().flatten() {
                    print_event(event, *json);
                }
            } else {
                follow(client, &id, *after, *json).await?;
            }
        }
        Action::Cancel { id, json } => {
            let id = resolve(client, id).await?;
            let answer =
                owner_client::ask(client, Method::POST, &path(&id, "/cancel"), None).await?;
            match (json, answer["turn_index"].as_u64()) {
                (true, _) => println!("{answer}"),
                (false, Some(turn)) => println!("turn {turn} was cancelled"),
                (false, None) => println!("nothing was running"),
            }
        }
        Action::Close { id, json } => {
            let id = resolve(client, id).await?;
            let answer = owner_client::ask(client, Method::DELETE, &path(&id, ""), None).await?;
            match (json, answer["already_closed"] == true) {
                (true, _) => println!("{answer}"),
                (false, true) => println!("it was closed already"),
                (false, false) => println!("closed"),
            }
        }
    }
    Ok(Exit::Done)
}

async fn list(client: &mut Client, closed_too: bool) -> anyhow::Result<Vec<Value>> {
    let answer = owner_client::ask(client, Method::GET, "/admin/sessions", None).await?;
    let sessions = answer["sessions"].as_array().cloned().unwrap_or_default();
    Ok(sessions.into_iter().filter(|s| closed_too || s["state"] != "closed").collect())
}

/// A whole id from the beginning of one.
pub(super) async fn resolve(client: &mut Client, id: &str) -> anyhow::Result<String> {
    let all = list(client, true).await?;
    let ids = all.iter().filter_map(|session| session["session_id"].as_str());
    let fitting: Vec<&str> = ids.filter(|known| known.starts_with(id)).collect();
    match fitting[..] {
        [one] => Ok(one.to_owned()),
        [] => anyhow::bail!("there is no session {id}"),
        _ => anyhow::bail!("{} sessions begin with {id}", fitting.len()),
    }
}

fn path(id: &str, rest: &str) -> String {
    format!("/admin/sessions/{id}{rest}")
}

/// Prints events until the session is closed, or the reader goes away.
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
                // The answer repeats every message of its turn.
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
        println!("{event}");
    } else if let Some(line) = render::event(event) {
        println!("{line}");
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
        println!("{key:14} {value}");
    }
    let usage = &session["usage"];
    println!(
        "{:14} {} in, {} out, {} cached, ${:.4}",
        "usage",
        usage["input_tokens"],
        usage["output_tokens"],
        usage["cached_read_tokens"],
        usage["cost_usd"].as_f64().unwrap_or_default(),
    );
}
