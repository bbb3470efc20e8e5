//! `hob` without a command: shows the state, and what to do next.

use hob_gateway::client::Method;
use hob_transcript::AgentClient;
use serde_json::Value;

use super::{Context, Exit};
use crate::build_id::{RESTART, other_build};
use crate::hooks::{self, ClientFolders};
use crate::memory;
use crate::owner_client;
use crate::printer::{self, outln};
use crate::socket::client;
use crate::view::{Paint, View, counted};

pub fn run(context: &Context) -> anyhow::Result<Exit> {
    let settings = &context.settings;
    let view = View::of_stdout();
    let answer = client::hello(&settings.socket);
    let unresponsive =
        answer.as_ref().err().and_then(|error| settings.home.unresponsive_pid(error));
    let hello = answer.ok();
    let state = match (&hello, unresponsive) {
        (Some(hello), _) => view.paint(Paint::Good, &format!("running (pid {})", hello.pid)),
        (None, Some(pid)) => view.paint(Paint::Warning, &format!("not answering (pid {pid})")),
        (None, None) => view.paint(Paint::Warning, "not running"),
    };
    printer::out_drawing(&format!("hob {}  {state}\n", env!("CARGO_PKG_VERSION")));
    let root = settings.home.root().display().to_string();
    outln!("home      {}", view.path(&root));
    if let Some(other) = hello.as_ref().and_then(other_build) {
        outln!("server    {other}; {RESTART}");
    }
    if let Some(url) = hello.as_ref().and_then(|hello| hello.http.as_ref()) {
        outln!("console   {url}");
    }
    let has_memory = memory::exists(settings);
    let overview = hello.as_ref().and_then(|_| overview(context));
    if let Some(overview) = &overview {
        let sessions = &overview["sessions"];
        let count = |name: &str| sessions[name].as_u64().unwrap_or_default();
        // A turn that waits for its user is busy, but nothing runs.
        let running = count("busy").saturating_sub(count("waiting"));
        let (open, waiting) = (count("open"), count("waiting"));
        outln!("sessions  {open} open, {running} running, {waiting} waiting for an answer");
    }
    if has_memory
        && let Ok(Ok(stats)) =
            memory::call_tool(settings, "memory_stats", Value::Object(Default::default()))
    {
        let latest = stats["last_ts"]
            .as_str()
            .map_or(String::new(), |last| format!(", the latest {}", view.time(last)));
        let count = |name: &str, what: &str| {
            counted(stats[name].as_u64().unwrap_or_default() as usize, what)
        };
        outln!(
            "memory    {} from {}{latest}",
            count("turns", "turn"),
            count("sessions", "session")
        );
    }
    let has_hooks = ClientFolders::from_environment().is_ok_and(|folders| {
        AgentClient::ALL
            .into_iter()
            .any(|client| hooks::has_hooks(client, &folders).unwrap_or(false))
    });
    let is_waited_for = overview.is_some_and(|overview| overview["sessions"]["waiting"] != 0);
    let next = if !has_hooks && hello.is_some() {
        "`hob setup` lets your coding agents remember"
    } else if !has_hooks {
        "`hob setup` lets your coding agents remember, and starts the server"
    } else if unresponsive.is_some() {
        "`hob status` says what to do about a server that does not answer"
    } else if hello.is_none() {
        "`hob serve` starts the server; `hob service install` starts it with your session"
    } else if is_waited_for {
        "`hob allow` or `hob deny` answers the agent that waits"
    } else {
        "`hob recall QUESTION` searches the memory; `hob run PROMPT` asks an agent"
    };
    outln!();
    printer::out_drawing(&format!("{} {next}\n", view.paint(Paint::Strong, "next:")));
    outln!("`hob --help` lists all commands");
    Ok(Exit::Done)
}

/// Returns the server's figures.
fn overview(context: &Context) -> Option<Value> {
    memory::runtime().ok()?.block_on(async {
        let mut client = owner_client::connect(&context.settings.socket).await.ok()?;
        owner_client::request(&mut client, Method::GET, "/admin/overview", None).await.ok()
    })
}
