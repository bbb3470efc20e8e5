//! `hob run`: sends one prompt from the terminal and shows the answer as it comes.

use std::io::{BufRead, IsTerminal, Read};

use clap::{Args as ClapArgs, ValueEnum};
use clap_complete::ArgValueCompleter;
use hob_gateway::client::{Client, Method, Reply, StreamEvent};
use hob_sessions::session::{event_text, update_of};
use serde_json::{Value, json};

use super::candidates;
use super::sessions::resolve;
use super::{Context, Exit};
use crate::memory;
use crate::owner_client::{self, NotRunning};
use crate::printer::{self, errln};
use crate::tail_view::detail_text;

/// Send a prompt to an agent and show its answer live
#[derive(ClapArgs)]
#[command(after_help = "\
Prints the answer on standard output and everything else on standard error. The agent works in the current folder \
and, apart from temporary files, can write only there. Ctrl-C cancels the turn.

Exit code: 1 if the turn fails or is cancelled, 3 if the server is not running.")]
pub struct Args {
    /// Prompt; if omitted or `-`, Hob reads it from standard input
    prompt: Vec<String>,
    /// Agent to use [default: the setting sessions.default_agent]
    #[arg(long, add = ArgValueCompleter::new(candidates::agents))]
    agent: Option<String>,
    /// Model name, as the agent spells it
    #[arg(long)]
    model: Option<String>,
    /// Continue this session; its ID may be shortened
    #[arg(long, value_name = "ID", add = ArgValueCompleter::new(candidates::sessions), conflicts_with_all = ["agent", "model", "permissions"])]
    session: Option<String>,
    /// How to answer the agent's permission requests [default: `ask` if run in a terminal, otherwise `deny`]
    #[arg(long, value_enum)]
    permissions: Option<PermissionPolicy>,
    /// Keep the session open and print its ID
    #[arg(long)]
    keep: bool,
    /// Print the turn's answer as one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PermissionPolicy {
    /// Reject every request
    Deny,
    /// Ask on this terminal
    Ask,
    /// Allow every request
    Allow,
}

pub fn run(context: &Context, args: &Args) -> anyhow::Result<Exit> {
    let prompt = prompt(args)?;
    let outcome = memory::runtime()?.block_on(ask(context, args, &prompt));
    match outcome {
        Err(error) if error.is::<NotRunning>() => {
            errln!("hob: {error}");
            Ok(Exit::WrongState)
        }
        outcome => outcome,
    }
}

fn prompt(args: &Args) -> anyhow::Result<String> {
    let words = args.prompt.join(" ");
    if !words.is_empty() && words != "-" {
        return Ok(words);
    }
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    anyhow::ensure!(!text.trim().is_empty(), "prompt: must not be empty");
    Ok(text)
}

async fn ask(context: &Context, args: &Args, prompt: &str) -> anyhow::Result<Exit> {
    let socket = &context.settings.socket;
    let mut client = owner_client::connect(socket).await?;
    let session = match &args.session {
        Some(id) => resolve(&mut client, id).await?,
        None => create(&mut client, context, args).await?,
    };
    let path = format!("/sessions/{session}/turn");
    let body = json!({"prompt": prompt});
    // The first connection is busy with the stream.
    let mut control = owner_client::connect(socket).await?;
    let mut printer = AnswerPrinter::new(args);
    let reply = client.ask(Method::POST, &path, "text/event-stream", Some(&body)).await?;
    let answer = follow(reply, &mut control, &session, &mut printer).await?;
    let ok = answer["ok"] == true;
    if args.json {
        printer::out_json(&answer);
    } else {
        printer.end();
        if !ok {
            errln!("hob: {}", answer["error"].as_str().unwrap_or("the turn failed"));
        } else if answer["stop_reason"] != "end_turn" {
            errln!(
                "hob: the agent ended the turn early: {}",
                answer["stop_reason"].as_str().unwrap_or("-")
            );
        }
    }
    if args.keep {
        errln!("session {session}");
    } else if args.session.is_none() {
        owner_client::request(&mut control, Method::DELETE, &format!("/sessions/{session}"), None)
            .await?;
    }
    let is_cancelled = answer["stop_reason"] == "cancelled";
    Ok(if ok && !is_cancelled { Exit::Done } else { Exit::Failed })
}

async fn create(client: &mut Client, context: &Context, args: &Args) -> anyhow::Result<String> {
    let agent = args.agent.as_deref().unwrap_or(context.settings.default_agent.as_str());
    let cwd = std::env::current_dir()?.display().to_string();
    let policy = args.permissions.unwrap_or(match std::io::stdin().is_terminal() {
        true => PermissionPolicy::Ask,
        false => PermissionPolicy::Deny,
    });
    let policy = policy.to_possible_value().map(|value| value.get_name().to_owned());
    let mut body = json!({"agent": agent, "cwd": cwd, "permissions": policy,
        "meta": {"from": "hob run"}});
    if let Some(model) = &args.model {
        body["model"] = json!(model);
    }
    let session = owner_client::request(client, Method::POST, "/sessions", Some(&body)).await?;
    Ok(session["session_id"].as_str().unwrap_or_default().to_owned())
}

/// Shows the stream, and returns the answer of the turn.
async fn follow(
    mut reply: Reply<'_>,
    control: &mut Client,
    session: &str,
    printer: &mut AnswerPrinter,
) -> anyhow::Result<Value> {
    if reply.status >= 400 {
        let answer = reply.json().await?;
        anyhow::bail!("{}", answer["error"].as_str().unwrap_or("the server refused the request"));
    }
    let mut cancelled = false;
    loop {
        let event = tokio::select! {
            event = reply.next_event() => event?,
            _ = tokio::signal::ctrl_c(), if !cancelled => {
                cancelled = true;
                let path = format!("/sessions/{session}/cancel");
                owner_client::request(control, Method::POST, &path, None).await?;
                continue;
            }
        };
        let Some(StreamEvent { event, data, .. }) = event else {
            anyhow::bail!(
                "lost the connection to the server; the turn may still be running: check with `hob sessions tail {session}`"
            );
        };
        let data: Value = serde_json::from_str(&data).unwrap_or_default();
        match event.as_str() {
            "turn" => return Ok(data),
            "message" => printer.show(&data),
            "permission" if data["status"] == "asked" => {
                let is_form = data["form"].is_object();
                let option = if is_form { "reject_once" } else { printer.choose(&data) };
                if is_form {
                    printer.note(&format!(
                        "hob: the agent asks: {} This command declines such forms; start the session over HTTP or in the console to answer them.",
                        printer::one_line(data["title"].as_str().unwrap_or_default())
                    ));
                }
                let request = data["request_id"].as_str().unwrap_or_default();
                let path = format!("/sessions/{session}/permissions/{request}");
                let body = json!({"option": option});
                if let Err(error) =
                    owner_client::request(control, Method::POST, &path, Some(&body)).await
                {
                    // Another client may have answered it; the turn goes on.
                    printer.note(&format!("hob: {error}"));
                }
            }
            "stalled" => {
                printer.note(&format!("({})", data["message"].as_str().unwrap_or("stalled")));
            }
            _ => {}
        }
    }
}

/// Shows the answer as it comes.
struct AnswerPrinter {
    /// Whether anything is printed; `false` with --json.
    shows: bool,
    /// Whether the cursor is in the middle of a line.
    in_line: bool,
}

impl AnswerPrinter {
    fn new(args: &Args) -> AnswerPrinter {
        AnswerPrinter { shows: !args.json, in_line: false }
    }

    fn show(&mut self, message: &Value) {
        let update = update_of(message);
        match update["sessionUpdate"].as_str() {
            Some("agent_message_chunk") => {
                self.write(update["content"]["text"].as_str().unwrap_or_default());
            }
            Some("tool_call") => self.note(&format!("[{}]", event_text::tool_title(update))),
            _ => {}
        }
    }

    fn write(&mut self, text: &str) {
        if self.shows && !text.is_empty() {
            printer::out(text);
            self.in_line = !text.ends_with('\n');
        }
    }

    fn note(&mut self, text: &str) {
        if self.shows {
            self.end();
            errln!("{text}");
        }
    }

    fn end(&mut self) {
        if self.in_line {
            self.write("\n");
        }
    }

    /// Asks the user; any answer but `y` is a no.
    fn choose(&mut self, ask: &Value) -> &'static str {
        self.end();
        let title = printer::one_line(ask["title"].as_str().unwrap_or("?"));
        let after = match detail_text(ask) {
            detail if detail.is_empty() => ". ".to_owned(),
            detail => format!("\n{detail}"),
        };
        printer::err(&format!("The agent asks for permission: {title}{after}Allow? [y/N] "));
        let mut line = String::new();
        let _ = std::io::stdin().lock().read_line(&mut line);
        if line.trim().eq_ignore_ascii_case("y") { "allow_once" } else { "reject_once" }
    }
}
