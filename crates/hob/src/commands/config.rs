//! `hob config get|set`: shows settings, and changes them in `config.toml`.

use clap::{Args as ClapArgs, Subcommand};
use clap_complete::ArgValueCompleter;
use serde_json::json;

use super::confirm::refuse_agents;
use super::{Context, Exit, audit, candidates};
use crate::config_edit;
use crate::pager::PagerOptions;
use crate::printer::{self, errln, outln};
use crate::settings::{self, Row};
use crate::socket::client;
use crate::view::View;

/// Show and change settings
#[derive(ClapArgs)]
pub struct Args {
    #[command(subcommand)]
    action: ConfigAction,
}

#[derive(Subcommand)]
enum ConfigAction {
    /// Print the value of a setting, or all settings with their sources
    Get {
        /// Key of the setting, for example sessions.max_live
        #[arg(add = ArgValueCompleter::new(candidates::settings))]
        key: Option<String>,
        /// Print {"settings":[…]}
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        pager: PagerOptions,
    },
    /// Write a setting into config.toml; everything else in the file stays as it is
    Set {
        /// Key of the setting, for example sessions.max_live
        #[arg(add = ArgValueCompleter::new(candidates::settings))]
        key: String,
        /// Value; a list is written as TOML: '["a", "b"]'
        #[arg(allow_hyphen_values = true)]
        value: String,
        /// Print {"key":…,"value":…,"source":…}
        #[arg(long)]
        json: bool,
    },
}

pub fn run(context: &Context, args: &Args) -> anyhow::Result<Exit> {
    match &args.action {
        ConfigAction::Get { key, json: false, pager } if key.is_none() => {
            let table = settings_table(&View::of_stdout(), &context.settings.rows);
            pager.print(&context.settings, &table);
            Ok(Exit::Done)
        }
        ConfigAction::Get { key, json, .. } => {
            Ok(get(&context.settings.rows, key.as_deref(), *json))
        }
        ConfigAction::Set { key, value, json } => set(context, key, value, *json),
    }
}

fn as_json(row: &Row) -> serde_json::Value {
    json!({"key": row.key, "value": row.value, "source": row.source.to_string()})
}

fn get(rows: &[Row], key: Option<&str>, json: bool) -> Exit {
    let found: Vec<&Row> = rows.iter().filter(|row| key.is_none_or(|key| row.key == key)).collect();
    if let (Some(key), true) = (key, found.is_empty()) {
        errln!("hob: no setting has the key {key}; `hob config get` lists all");
        return Exit::Failed;
    }
    if json {
        let settings: Vec<_> = found.iter().map(|row| as_json(row)).collect();
        printer::out_json(&json!({"settings": settings}));
    } else {
        found.iter().for_each(|row| outln!("{}", row.value));
    }
    Exit::Done
}

fn settings_table(view: &View, rows: &[Row]) -> String {
    let cells = |row: &Row| vec![row.key.clone(), row.value.clone(), row.source.to_string()];
    let rows: Vec<Vec<String>> = rows.iter().map(cells).collect();
    view.table(&["SETTING", "VALUE", "SOURCE"], &rows)
}

fn set(context: &Context, key: &str, value: &str, json: bool) -> anyhow::Result<Exit> {
    refuse_agents(context, "hob config set")?;
    let home = &context.settings.home;
    if !settings::SETTINGS.iter().any(|setting| setting.key == key) {
        errln!(
            "hob: no setting has the key {key}; `hob config get` lists all settings. To configure agents and apps, edit {}",
            home.config().display()
        );
        return Ok(Exit::Failed);
    }
    home.prepare()?;
    config_edit::set(home, key, value)?;
    // The value may be a secret.
    audit::note(home, "config_set", key);
    let after = settings::load(Vec::new())?;
    let Some(row) = after.rows.iter().find(|row| row.key == key) else {
        anyhow::bail!(
            "{key} was written to config.toml, but is not found when the file is read again; this is a bug in Hob, please report it"
        );
    };
    if json {
        printer::out_json(&as_json(row));
    } else {
        outln!("{key} = {} (from {})", row.value, row.source);
    }
    if row.source != settings::Source::File {
        errln!(
            "hob: saved to config.toml, but the change has no effect: the value from {} takes precedence",
            row.source
        );
    }
    if client::hello(&context.settings.socket).is_ok() {
        errln!("hob: restart the server for the change to take effect");
    }
    Ok(Exit::Done)
}
