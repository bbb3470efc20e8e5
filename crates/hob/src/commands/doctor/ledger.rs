//! The check of the ledger: a file of the home, or a PostgreSQL database.

use hob_gateway::Check;
use hob_store::{Access, PostgresLedger, StoreUrl};

use super::check;
use crate::inventory::Inventory;
use crate::settings::Resolved;
use crate::{keys, memory};

/// What to do about a file that cannot be opened.
pub const FILE_FIX: &str = "do what the message says; `hob doctor --deep` looks for further damage, and transcripts of agents can be imported \
     again with `hob import`";

/// What to do about a role that row-level security does not bind.
const ROLE_FIX: &str =
    "connect as an ordinary role that owns the tables (docs/postgresql.md, \"Row-level security\")";

/// Checks that the ledger can be opened.
pub fn check(settings: &Resolved) -> Check {
    match &settings.values.store_url {
        Some(url) => database(url),
        None => file(settings),
    }
}

fn file(settings: &Resolved) -> Check {
    let home = &settings.home;
    if !home.has_data() {
        return check::passed("ledger", "empty: no apps and sessions are stored yet");
    }
    let access = if home.is_read_only() { Access::ReadOnly } else { Access::ReadWrite };
    let look = || {
        let key = keys::data_key(home, settings.passphrase.as_deref())?;
        Inventory::new(home).check_ledger(&key)?;
        if !home.ledger().exists() {
            return Ok("empty: no apps and sessions are stored yet".to_owned());
        }
        let tables = ["apps", "sessions"];
        let state = hob_store::inspect_database(&home.ledger(), &key, access, &tables)?;
        let rows: Vec<String> =
            state.rows.iter().map(|(table, count)| format!("{count} {table}")).collect();
        anyhow::Ok(format!("{}: {}", home.ledger().display(), rows.join(", ")))
    };
    match look() {
        Ok(text) => check::passed("ledger", text),
        Err(error) => check::failed("ledger", format!("{error:#}"), FILE_FIX),
    }
}

fn database(url: &StoreUrl) -> Check {
    let inspect = || anyhow::Ok(memory::runtime()?.block_on(PostgresLedger::look(url))?);
    let state = match inspect() {
        Ok(state) => state,
        Err(error) => {
            let fix = "start the database, or correct store.url in config.toml or $HOB_STORE_URL";
            return check::failed("ledger", format!("{error:#}"), fix);
        }
    };
    let server = format!("{url}: PostgreSQL {}", state.version);
    let known = state.known;
    match state.schema {
        None => {
            let text = format!("{server}; the first start of `hob serve` creates the tables");
            check::passed("ledger", text)
        }
        Some(found) if found > known => {
            let text = format!("{server}; schema {found} is newer than this hob ({known})");
            check::failed("ledger", text, "update this hob")
        }
        Some(found) if found < known => {
            let text = format!("{server}; the next start migrates schema {found} to {known}");
            check::passed("ledger", text)
        }
        Some(found) => {
            let text = format!("{server}, schema {found}; {} known nodes", state.nodes);
            if state.bypasses_row_security {
                let text = format!(
                    "{text}; row-level security does not bind Hob's role, which is a superuser or has BYPASSRLS"
                );
                return check::warning("ledger", text, ROLE_FIX);
            }
            check::passed("ledger", text)
        }
    }
}
