//! The check of the PostgreSQL database.

use hob_gateway::Check;
use hob_store::PostgresLedger;

use super::check;
use crate::memory;
use crate::settings::Resolved;

/// Checks the database that `store.url` names. Returns `None` if the stores are files of the home.
pub fn check(settings: &Resolved) -> Option<Check> {
    let url = settings.values.store_url.as_ref()?;
    let inspect = || anyhow::Ok(memory::runtime()?.block_on(PostgresLedger::look(url))?);
    let state = match inspect() {
        Ok(state) => state,
        Err(error) => {
            let fix = "start the database, or correct store.url in config.toml or $HOB_STORE_URL";
            return Some(check::failed("ledger", format!("{error:#}"), fix));
        }
    };
    let server = format!("{url}: PostgreSQL {}", state.version);
    let known = state.known;
    Some(match state.schema {
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
            check::passed("ledger", text)
        }
    })
}
