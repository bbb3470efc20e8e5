//! What `hob doctor` says, for the console.

use std::sync::Arc;

use hob_domain::{AgentSpec, Driver};
use hob_gateway::{Check, Doctor, SettingRow, Verdict};
use hob_memory::redact;

use super::doctor;
use crate::settings::Resolved;

/// The same checks on the home that is served.
pub(super) struct HomeDoctor(pub Arc<Resolved>);

impl Doctor for HomeDoctor {
    fn checks(&self) -> Vec<Check> {
        let told = doctor::checks(&self.0).into_iter().map(|check| Check {
            name: check.name.to_owned(),
            status: match check.verdict {
                doctor::Verdict::Ok => Verdict::Ok,
                doctor::Verdict::Warning => Verdict::Warn,
                doctor::Verdict::Failed => Verdict::Fail,
            },
            text: masked(&check.says),
            fix: check.fix.as_deref().map(masked),
        });
        told.collect()
    }

    fn settings(&self) -> Vec<SettingRow> {
        let rows = self.0.rows.iter().map(|row| SettingRow {
            key: row.key.clone(),
            value: masked(&row.value),
            source: row.source.to_string(),
        });
        rows.collect()
    }

    fn is_installed(&self, agent: &AgentSpec) -> bool {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let program = agent.command.first().map(String::as_str).unwrap_or_default();
        agent.driver == Driver::Demo || doctor::find_program(program, &path).is_some()
    }
}

/// Secrets are not settings, but somebody may have written one into an agent's command.
fn masked(text: &str) -> String {
    redact::mask(text).text
}
