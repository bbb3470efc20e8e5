//! `hob hooks install|status|uninstall`: Hob's hooks in the settings of Claude Code and Codex.

use anyhow::Context as _;
use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use hob_transcript::AgentClient;
use serde_json::json;

use super::Exit;
use crate::hooks::{self, Places, Report, State};

/// Install, show and remove the hooks by which agents' sessions are remembered
#[derive(ClapArgs)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Add the hooks; other settings stay as they are, byte for byte, and a backup is made
    Install(Options),
    /// Say whether they are installed (exit 0) or not (exit 1)
    Status(Options),
    /// Remove them
    Uninstall(Options),
}

#[derive(ClapArgs)]
struct Options {
    /// Whose settings [default: those that are on this machine]
    #[arg(long, value_enum)]
    client: Option<Which>,
    /// Print {"clients":[…]}
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Which {
    Claude,
    Codex,
    All,
}

pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let (Action::Install(options) | Action::Status(options) | Action::Uninstall(options)) =
        &args.action;
    let places = Places::from_environment()?;
    let hob = std::env::current_exe().context("where is this executable?")?;
    let mut reports = Vec::new();
    let mut outcome = Exit::Done;
    for client in clients(options.client, &places) {
        let report = match &args.action {
            Action::Install(_) => hooks::install(client, &places, &hob),
            Action::Status(_) => hooks::status(client, &places, &hob),
            Action::Uninstall(_) => hooks::uninstall(client, &places),
        };
        match report {
            Ok(report) => {
                let bad = matches!(report.state, State::Broken(_))
                    || matches!(args.action, Action::Status(_)) && report.state != State::Installed;
                if bad {
                    outcome = Exit::Failed;
                }
                reports.push(report);
            }
            Err(error) => {
                eprintln!("hob: {}: {:#}", client.name(), anyhow::Error::from(error));
                outcome = Exit::Failed;
            }
        }
    }
    if options.json {
        let clients: Vec<_> = reports.iter().map(as_json).collect();
        println!("{}", json!({"clients": clients}));
    } else {
        reports.iter().for_each(print);
    }
    Ok(outcome)
}

/// Without a choice it is those that are there; where none is, Claude Code.
fn clients(which: Option<Which>, places: &Places) -> Vec<AgentClient> {
    match which {
        Some(Which::Claude) => vec![AgentClient::Claude],
        Some(Which::Codex) => vec![AgentClient::Codex],
        Some(Which::All) => AgentClient::ALL.to_vec(),
        None => {
            let there: Vec<AgentClient> = AgentClient::ALL
                .into_iter()
                .filter(|client| places.folder(*client).is_dir())
                .collect();
            if there.is_empty() { vec![AgentClient::Claude] } else { there }
        }
    }
}

fn state(report: &Report) -> (&'static str, String) {
    match &report.state {
        State::Installed => ("installed", String::new()),
        State::Partial { missing } => ("partial", format!("missing: {}", missing.join(", "))),
        State::Outdated { programs } => {
            ("outdated", format!("they call {}; install again", programs.join(", ")))
        }
        State::Absent => ("absent", String::new()),
        State::Broken(why) => ("broken", why.clone()),
    }
}

fn as_json(report: &Report) -> serde_json::Value {
    let (state, detail) = state(report);
    json!({
        "client": report.client.as_str(), "file": report.file, "state": state, "detail": detail,
        "changed": report.changed, "backup": report.backup, "notes": report.notes,
    })
}

fn print(report: &Report) {
    let (state, detail) = state(report);
    let detail = if detail.is_empty() { detail } else { format!(" ({detail})") };
    let changed = if report.changed { ", changed" } else { "" };
    println!("{:<7} {state}{detail}{changed}  {}", report.client.name(), report.file.display());
    if let Some(backup) = report.backup.as_ref().filter(|_| report.changed) {
        println!("        backup: {}", backup.display());
    }
    for note in &report.notes {
        println!("        note: {note}");
    }
}
