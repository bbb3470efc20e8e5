//! The list of all checks.

use hob_gateway::Check;

use super::{agents, backups, check, deep, home, ledger, memory};
use crate::settings::Resolved;

/// How much is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// Databases are opened.
    Quick,
    /// Every page of the databases is verified, and every file is read.
    Deep,
}

/// Runs every check. Blocks; must not be called on an async thread.
pub fn all(settings: &Resolved, depth: Depth) -> Vec<Check> {
    let mut checks = vec![home::folder(settings), home::server(settings)];
    checks.extend(home::read_only(settings));
    checks.extend(settings.warnings.iter().map(|warning| {
        check::warning("settings", warning.clone(), "correct or remove this key in config.toml")
    }));
    checks.push(ledger::check(settings));
    checks.extend(memory::checks(settings));
    checks.extend(backups::check(settings));
    if depth == Depth::Deep {
        checks.extend(deep::checks(settings));
    }
    checks.push(agents::sandbox(settings));
    checks.push(agents::limits(settings));
    checks.extend(agents::installed(settings));
    checks
}
