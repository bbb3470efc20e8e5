//! `hob agents`: the agents of the settings.

use clap::Args as ClapArgs;
use serde_json::json;

use super::doctor::program_of;
use super::{Context, Exit};
use crate::pager::PagerOptions;
use crate::printer;
use crate::view::View;

/// List the configured agents, and whether each is installed
#[derive(ClapArgs)]
pub struct Args {
    /// Print {"agents":[…]}
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    pager: PagerOptions,
}

pub fn run(context: &Context, args: &Args) -> anyhow::Result<Exit> {
    let settings = &context.settings;
    let mut values = Vec::new();
    let mut rows = Vec::new();
    for (name, agent) in &settings.agents {
        let is_default = *name == settings.default_agent;
        // The demo agent is part of Hob and has no command.
        let is_installed = agent.command.is_empty() || program_of(agent).is_some();
        values.push(json!({
            "agent": name.as_str(), "default": is_default, "installed": is_installed,
            "driver": agent.driver.as_str(), "sandbox": agent.sandbox.as_str(),
            "command": agent.command, "install": agent.install,
        }));
        let state = match (is_installed, agent.install.is_empty()) {
            (true, _) => "installed".to_owned(),
            (false, true) => "not found".to_owned(),
            (false, false) => format!("not found: {}", agent.install),
        };
        let default = if is_default { " (default)" } else { "" };
        rows.push(vec![
            format!("{name}{default}"),
            agent.driver.as_str().to_owned(),
            agent.sandbox.as_str().to_owned(),
            state,
        ]);
    }
    if args.json {
        printer::out_json(&json!({"agents": values}));
    } else {
        let view = View::of_stdout();
        let mut text = view.table(&["AGENT", "DRIVER", "SANDBOX", "STATE"], &rows);
        let config = settings.home.config().display().to_string();
        let config = printer::one_line(&view.path(&config));
        text.push_str(&format!("\n`[agents.NAME]` in {config} adds and changes agents\n"));
        args.pager.print(settings, &text);
    }
    Ok(Exit::Done)
}
