//! The list of all checks.

use hob_gateway::Check;

use super::{agents, check, home, ledger, memory};
use crate::settings::Resolved;

/// Runs every check. Blocks; must not be called on an async thread.
pub fn all(settings: &Resolved) -> Vec<Check> {
    let mut checks = vec![home::folder(settings), home::server(settings)];
    checks.extend(settings.warnings.iter().map(|warning| {
        check::warning("settings", warning.clone(), "correct or remove this key in config.toml")
    }));
    checks.extend(ledger::check(settings));
    checks.extend(memory::checks(settings));
    checks.push(agents::sandbox(settings));
    checks.extend(agents::installed(settings));
    checks
}
