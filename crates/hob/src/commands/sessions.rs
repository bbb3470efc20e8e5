//! `hob sessions`: lists, shows, follows, cancels and closes sessions.

use std::path::Path;

use clap::{Args as ClapArgs, Subcommand};
use clap_complete::ArgValueCompleter;
use hob_gateway::client::{Client, Method};
use serde_json::{Value, json};

use super::candidates;
use super::{Context, Exit};
use crate::memory;
use crate::owner_client::{self, NotRunning};
use crate::pager::PagerOptions;
use crate::printer::{self, errln, outln};
use crate::settings::Resolved;
use crate::tail_view::TailView;
use crate::view::View;

/// How many of the latest turns are looked at for the one that a live message begins.
const MAX_QUEUED_TURNS: usize = 50;

/// List, follow and close sessions (yours and those of all apps), or cancel their running turns
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
        #[command(flatten)]
        pager: PagerOptions,
    },
    /// Show one session
    Show {
        /// ID of the session
        #[arg(add = ArgValueCompleter::new(candidates::sessions))]
        id: String,
        /// Print the session as JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        pager: PagerOptions,
    },
    /// Print a session as a conversation and follow it until it closes
    Tail {
        /// ID of the session
        #[arg(add = ArgValueCompleter::new(candidates::sessions))]
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
        #[command(flatten)]
        pager: PagerOptions,
    },
    /// Cancel the running turn and keep the session
    Cancel {
        /// ID of the session
        #[arg(add = ArgValueCompleter::new(candidates::sessions))]
        id: String,
        /// Print {"ok":true,"cancelled":…}
        #[arg(long)]
        json: bool,
    },
    /// Close a session and end its agent; the session's log is kept for sessions.hard_ttl_secs
    /// seconds
    Close {
        /// ID of the session
        #[arg(add = ArgValueCompleter::new(candidates::sessions))]
        id: String,
        /// Print {"ok":true,…}
        #[arg(long)]
        json: bool,
    },
}

pub fn run(context: &Context, args: &Args) -> anyhow::Result<Exit> {
    let outcome = memory::runtime()?.block_on(async {
        let mut client = owner_client::connect(&context.settings.socket).await?;
        act(&mut client, &context.settings, &args.action).await
    });
    match outcome {
        Err(error) if error.is::<NotRunning>() => {
            errln!("hob: {error}");
            Ok(Exit::WrongState)
        }
        outcome => outcome,
    }
}

async fn act(
    client: &mut Client,
    settings: &Resolved,
    action: &SessionsAction,
) -> anyhow::Result<Exit> {
    match action {
        SessionsAction::List { all, json, pager } => {
            let shown = if *all { SessionFilter::All } else { SessionFilter::Open };
            let sessions = list(client, shown).await?;
            match *json {
                true => {
                    printer::out_json(&json!({"count": sessions.len(), "sessions": sessions}));
                }
                false if sessions.is_empty() => errln!("no sessions"),
                false => pager.print(settings, &sessions_text(&sessions)),
            }
        }
        SessionsAction::Show { id, json, pager } => {
            let session = request(client, Method::GET, id, "").await?;
            match *json {
                true => printer::out_json(&session),
                false => pager.print(settings, &session_text(&View::of_stdout(), &session)),
            }
        }
        SessionsAction::Tail { id, after, no_follow, json, pager } => {
            let id = resolve(client, id).await?;
            // In a pipe each page is printed when it arrives.
            if *no_follow && !json && View::of_stdout().is_terminal() {
                let mut tail = Tail::new(TailOutput::Collected(String::new()));
                tail.catch_up(client, &id, *after).await?;
                pager.print(settings, &tail.end());
            } else {
                let output = if *json { TailOutput::Json } else { TailOutput::Text };
                let mut tail = Tail::new(output);
                let after = tail.catch_up(client, &id, *after).await?;
                if !no_follow {
                    tail.follow(client, &id, after, &settings.socket).await?;
                }
                tail.end();
            }
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

/// Returns the open sessions of all apps.
pub(super) async fn list_open(client: &mut Client) -> anyhow::Result<Vec<Value>> {
    list(client, SessionFilter::Open).await
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

/// Where the events of a session go.
enum TailOutput {
    /// Standard output, as JSON lines.
    Json,
    /// Standard output, as a conversation.
    Text,
    /// A text, as a conversation.
    Collected(String),
}

/// Shows the events of a session.
struct Tail {
    output: TailOutput,
    view: TailView,
    /// The turn that has begun last.
    turn: u64,
}

impl Tail {
    fn new(output: TailOutput) -> Tail {
        Tail { output, view: TailView::new(View::of_stdout()), turn: 0 }
    }

    fn write(&mut self, drawing: &str) {
        match &mut self.output {
            TailOutput::Collected(text) => text.push_str(drawing),
            TailOutput::Json | TailOutput::Text => printer::out_drawing(drawing),
        }
    }

    /// Shows the stored events after this number. Returns the number of the last one.
    async fn catch_up(&mut self, client: &mut Client, id: &str, after: u64) -> anyhow::Result<u64> {
        let mut after = after;
        loop {
            let path = path(id, &format!("/events?after={after}"));
            let page = owner_client::request(client, Method::GET, &path, None).await?;
            let events = page["events"].as_array().cloned().unwrap_or_default();
            let Some(last) = events.last() else { return Ok(after) };
            after = last["seq"].as_u64().unwrap_or(after);
            for event in &events {
                self.show(client, id, event).await?;
            }
        }
    }

    /// Shows events until the session closes, or the server ends the stream.
    async fn follow(
        &mut self,
        client: &mut Client,
        id: &str,
        after: u64,
        socket: &Path,
    ) -> anyhow::Result<()> {
        // The stream takes up its connection.
        let mut control = owner_client::connect(socket).await?;
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
            self.show(&mut control, id, &view).await?;
        }
        Ok(())
    }

    async fn show(&mut self, client: &mut Client, id: &str, event: &Value) -> anyhow::Result<()> {
        if let TailOutput::Json = self.output {
            printer::out_json(event);
            return Ok(());
        }
        if self.view.begins_turn(event)
            && let Some(turn) = self.begun_turn(client, id, event).await?
        {
            self.turn = turn["turn_index"].as_u64().unwrap_or_default();
            let prompt = self.view.prompt(turn["prompt"].as_str().unwrap_or_default());
            self.write(&prompt);
        }
        let drawing = self.view.next(event);
        self.write(&drawing);
        Ok(())
    }

    /// Returns the turn that an event begins. A live message does not name its turn; turns run one after the other.
    async fn begun_turn(
        &self,
        client: &mut Client,
        id: &str,
        event: &Value,
    ) -> anyhow::Result<Option<Value>> {
        let before = match event["turn_index"].as_u64() {
            Some(turn) => format!("&before={}", turn + 1),
            None => String::new(),
        };
        let limit = if before.is_empty() { MAX_QUEUED_TURNS } else { 1 };
        let path = path(id, &format!("/turns?limit={limit}{before}"));
        let answer = owner_client::request(client, Method::GET, &path, None).await?;
        let turns = answer["turns"].as_array().cloned().unwrap_or_default();
        let is_next = |turn: &&Value| turn["turn_index"].as_u64().is_some_and(|n| n > self.turn);
        // A reader that starts in the middle knows no turn yet.
        let begun = match self.turn {
            0 => turns.iter().find(|turn| turn["state"] == "running").or(turns.last()),
            _ => turns.iter().find(is_next),
        };
        Ok(begun.cloned())
    }

    /// Ends the last line. Returns the text, if it was collected.
    fn end(&mut self) -> String {
        let end = self.view.end_of_line();
        self.write(&end);
        match &mut self.output {
            TailOutput::Collected(text) => std::mem::take(text),
            TailOutput::Json | TailOutput::Text => String::new(),
        }
    }
}

fn sessions_text(sessions: &[Value]) -> String {
    let view = View::of_stdout();
    let rows: Vec<Vec<String>> = sessions.iter().map(|session| row(&view, session)).collect();
    let heading = ["ID", "APP", "AGENT", "STATE", "TURNS", "LAST TURN", "FOLDER"];
    view.table(&heading, &rows)
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

fn row(view: &View, session: &Value) -> Vec<String> {
    let text = |key: &str| session[key].as_str().unwrap_or("-");
    let state = if session["waiting"] == true { "waiting" } else { text("state") };
    vec![
        view.id(text("session_id")).to_owned(),
        text("app").to_owned(),
        text("agent").to_owned(),
        state.to_owned(),
        session["turn_count"].to_string(),
        view.time(text("last_turn_at")),
        view.path(text("cwd")).into_owned(),
    ]
}

fn session_text(view: &View, session: &Value) -> String {
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
    let mut shown = String::new();
    let mut add = |key: &str, value: &str| {
        shown.push_str(&format!("{key:14} {}\n", printer::one_line(value)));
    };
    for key in keys {
        match (key, &session[key]) {
            (_, Value::Null) => {}
            ("session_id", Value::String(id)) => add(key, view.id(id)),
            ("cwd", Value::String(path)) => add(key, &view.path(path)),
            ("created_at" | "closed_at" | "last_turn_at", Value::String(time)) => {
                add(key, &view.time(time));
            }
            (_, Value::String(text)) => add(key, text),
            (_, other) => add(key, &other.to_string()),
        }
    }
    let usage = &session["usage"];
    let used = format!(
        "{} in, {} out, {} cached, {}",
        usage["input_tokens"],
        usage["output_tokens"],
        usage["cached_read_tokens"],
        cost_in_words(usage),
    );
    add("usage", &used);
    shown
}

/// Returns the cost of a session. Some agents, such as Codex, report only tokens.
fn cost_in_words(usage: &Value) -> String {
    let cost = usage["cost_usd"].as_f64().unwrap_or_default();
    let has_tokens = usage["input_tokens"] != 0 || usage["output_tokens"] != 0;
    if cost == 0.0 && has_tokens { "no cost reported".to_owned() } else { format!("${cost:.4}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_without_a_cost_are_no_cost_of_zero() {
        let check = |input: u64, cost: f64, expect: &str| {
            let usage = json!({"input_tokens": input, "output_tokens": 0, "cost_usd": cost});
            assert_eq!(cost_in_words(&usage), expect);
        };
        check(10, 0.25, "$0.2500");
        check(10, 0.0, "no cost reported");
        check(0, 0.0, "$0.0000");
    }
}
