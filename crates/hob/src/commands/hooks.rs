//! `hob hooks install|status|uninstall`: manages Hob's hooks in the settings of the coding agents, and its plugin in
//! OpenCode, which has no hooks.

use anyhow::Context as _;
use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use hob_transcript::AgentClient;
use serde_json::json;

use super::Exit;
use crate::hooks::{self, ClientFolders, HookState, Report};
use crate::printer::{self, errln, outln};

/// Install, show and remove the hooks that capture the sessions of Claude Code, Codex, Gemini CLI and OpenCode
#[derive(ClapArgs)]
pub struct Args {
    #[command(subcommand)]
    action: HooksAction,
}

#[derive(Subcommand)]
enum HooksAction {
    /// Add the hooks to the settings file of the coding agent; nothing else in the file changes, and a copy of the old
    /// file is kept next to it as *.hob-backup. OpenCode has no hooks, so Hob installs a plugin instead, as a separate file
    Install(Options),
    /// Show whether the hooks are installed; exit code 0 if they are, else 1
    Status(Options),
    /// Remove the hooks; all other settings stay unchanged
    Uninstall(Options),
}

#[derive(ClapArgs)]
struct Options {
    /// Client that the command applies to [default: every client found on this machine]
    #[arg(long, value_enum)]
    client: Option<ClientChoice>,
    /// Print {"clients":[…]}
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum ClientChoice {
    /// Claude Code
    Claude,
    /// Codex
    Codex,
    /// Gemini CLI
    Gemini,
    /// OpenCode
    Opencode,
    /// All of them
    All,
}

pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let (HooksAction::Install(options)
    | HooksAction::Status(options)
    | HooksAction::Uninstall(options)) = &args.action;
    let folders = ClientFolders::from_environment()?;
    let hob =
        std::env::current_exe().context("cannot determine the path of the running executable")?;
    let mut reports = Vec::new();
    let mut outcome = Exit::Done;
    for client in clients(options.client, &folders) {
        let report = match &args.action {
            HooksAction::Install(_) => hooks::install(client, &folders, &hob),
            HooksAction::Status(_) => hooks::status(client, &folders, &hob),
            HooksAction::Uninstall(_) => hooks::uninstall(client, &folders),
        };
        match report {
            Ok(report) => {
                let bad = matches!(report.state, HookState::Broken(_))
                    || matches!(args.action, HooksAction::Status(_))
                        && !matches!(report.state, HookState::Installed | HookState::Plugin);
                if bad {
                    outcome = Exit::Failed;
                }
                reports.push(report);
            }
            Err(error) => {
                errln!("hob: {}: {:#}", client.name(), anyhow::Error::from(error));
                outcome = Exit::Failed;
            }
        }
    }
    if options.json {
        let clients: Vec<_> = reports.iter().map(as_json).collect();
        printer::out_json(&json!({"clients": clients}));
    } else {
        reports.iter().for_each(print);
    }
    Ok(outcome)
}

/// Returns the chosen clients. Without a choice these are the ones on this machine, or Claude Code
/// if there is none.
fn clients(which: Option<ClientChoice>, folders: &ClientFolders) -> Vec<AgentClient> {
    match which {
        Some(ClientChoice::Claude) => vec![AgentClient::Claude],
        Some(ClientChoice::Codex) => vec![AgentClient::Codex],
        Some(ClientChoice::Gemini) => vec![AgentClient::Gemini],
        Some(ClientChoice::Opencode) => vec![AgentClient::Opencode],
        Some(ClientChoice::All) => AgentClient::ALL.to_vec(),
        None => {
            let there: Vec<AgentClient> = AgentClient::ALL
                .into_iter()
                .filter(|client| folders.folder(*client).is_dir())
                .collect();
            if there.is_empty() { vec![AgentClient::Claude] } else { there }
        }
    }
}

fn state(report: &Report) -> (&'static str, String) {
    match &report.state {
        HookState::Installed => ("installed", String::new()),
        HookState::Partial { missing } => ("partial", format!("missing: {}", missing.join(", "))),
        HookState::Outdated { programs } => (
            "outdated",
            format!(
                "the hooks call {}, not this program; to make them call this one, run `hob hooks install`",
                programs.join(", ")
            ),
        ),
        HookState::Plugin => ("plugin", "Hob's plugin provides the hooks".to_owned()),
        HookState::Absent => ("absent", String::new()),
        HookState::Broken(reason) => ("broken", reason.clone()),
    }
}

fn as_json(report: &Report) -> serde_json::Value {
    let (state, detail) = state(report);
    json!({
        "client": report.client.as_str(), "file": report.file, "state": state, "detail": detail,
        "changed": report.changed, "backup": report.backup, "notes": report.notes,
        "plugin": report.plugin,
    })
}

fn print(report: &Report) {
    let (state, detail) = state(report);
    let detail = if detail.is_empty() { detail } else { format!(" ({detail})") };
    let changed = if report.changed { ", changed" } else { "" };
    outln!("{:<11} {state}{detail}{changed}  {}", report.client.name(), report.file.display());
    if let Some(backup) = report.backup.as_ref().filter(|_| report.changed) {
        outln!("        backup: {}", backup.display());
    }
    for note in report.notes.iter().chain(&plugin_note(report)) {
        outln!("        note: {note}");
    }
}

/// Returns a sentence about Hob's plugin in the client.
fn plugin_note(report: &Report) -> Option<String> {
    let id = report.plugin.as_ref()?;
    Some(match &report.state {
        HookState::Plugin if report.client == AgentClient::Codex => {
            format!("The plugin {id} is enabled; trust its hooks with `/hooks` in Codex.")
        }
        HookState::Plugin => format!("The plugin {id} is enabled, so the settings need no hooks."),
        HookState::Absent => {
            format!("The plugin {id} is enabled, but finds no `hob` on the PATH.")
        }
        _ => format!(
            "The plugin {id} is also enabled; it does nothing for events that these hooks handle."
        ),
    })
}
