//! What `hob doctor` says about the database that the ledger is kept in.

use hob_store::PostgresLedger;

use super::doctor::Check;
use crate::memory;
use crate::settings::Resolved;

/// Nothing where it is a file of the home, which is looked at with the others.
pub fn check(settings: &Resolved) -> Option<Check> {
    let url = settings.store.as_ref()?;
    let look = || anyhow::Ok(memory::runtime()?.block_on(PostgresLedger::look(url))?);
    Some(match look() {
        Err(error) => Check::failed(
            "ledger",
            format!("{error:#}"),
            "start the database, or correct store.url in config.toml or HOB_STORE_URL",
        ),
        Ok(state) => {
            let server = format!("{url}: PostgreSQL {}", state.version);
            match state.schema {
                None => {
                    Check::ok("ledger", format!("{server}; tables are made at the first start"))
                }
                Some(found) if found > state.known => Check::failed(
                    "ledger",
                    format!(
                        "{server}; schema {found} of a newer hob, this one knows {}",
                        state.known
                    ),
                    "update this hob",
                ),
                Some(found) if found < state.known => Check::ok(
                    "ledger",
                    format!("{server}; schema {found} becomes {} at the next start", state.known),
                ),
                Some(found) => {
                    let nodes = state.nodes;
                    let text = format!("{server}, schema {found}; nodes heard of: {nodes}");
                    Check::ok("ledger", text)
                }
            }
        }
    })
}
