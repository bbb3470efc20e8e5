//! The command itself: runs the checks and prints them.

use clap::Args as ClapArgs;
use hob_gateway::Verdict;
use serde_json::{Value, json};

use super::checks::Depth;
use super::{check, checks};
use crate::commands::{Context, Exit};
use crate::pager::PagerOptions;
use crate::printer;
use crate::settings::Resolved;
use crate::settings::registry::SETTINGS;
use crate::view::View;

/// Check Hob's home folder and this machine, and print every setting with its source
#[derive(ClapArgs)]
#[command(
    after_help = "Exit code: 1 if a check failed, else 0. Warnings do not count as failures."
)]
pub struct Args {
    /// Also check every database page, every uploaded file, and the turns in `deferred-captures/` (captured, but not yet in the database); takes longer
    #[arg(long)]
    deep: bool,
    /// Print {"checks":[…],"settings":[…]}
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    pager: PagerOptions,
}

pub fn run(context: &Context, args: &Args) -> anyhow::Result<Exit> {
    let settings = &context.settings;
    let depth = if args.deep { Depth::Deep } else { Depth::Quick };
    let checks = checks::all(settings, depth);
    if args.json {
        let checks: Vec<Value> = checks.iter().map(check::to_json).collect();
        printer::out_json(&json!({"checks": checks, "settings": settings_as_json(settings)}));
    } else {
        let view = View::of_stdout();
        let mut text: String = checks.iter().map(|check| check::text(&view, check)).collect();
        text.push_str(&settings_text(settings));
        args.pager.print(settings, &text);
    }
    let failed = checks.iter().any(|check| check.status == Verdict::Fail);
    Ok(if failed { Exit::Failed } else { Exit::Done })
}

fn settings_as_json(settings: &Resolved) -> Vec<Value> {
    let row = |row: &crate::settings::Row| {
        let help = SETTINGS.iter().find(|setting| setting.key == row.key).map(|s| s.help);
        json!({"key": row.key, "value": row.value, "source": row.source.to_string(), "help": help})
    };
    settings.rows.iter().map(row).collect()
}

fn settings_text(settings: &Resolved) -> String {
    let mut text = "\nsettings\n".to_owned();
    let width = settings.rows.iter().map(|row| row.key.len()).max().unwrap_or_default();
    for row in &settings.rows {
        let line = format!("  {:<width$}  {}  ({})\n", row.key, row.value, row.source);
        text.push_str(&printer::clean(&line));
    }
    text
}
