//! The checks and settings for the console, with secrets masked.

use std::sync::Arc;

use hob_domain::{AgentSpec, Driver};
use hob_gateway::{Check, Doctor, SettingRow};
use hob_memory::redact;

use super::checks::Depth;
use super::{agents, checks};
use crate::settings::Resolved;

/// The doctor of the home that this server serves.
pub struct HomeDoctor(pub Arc<Resolved>);

impl Doctor for HomeDoctor {
    fn checks(&self) -> Vec<Check> {
        let mask_texts = |check: Check| Check {
            text: masked(&check.text),
            fix: check.fix.as_deref().map(masked),
            ..check
        };
        checks::all(&self.0, Depth::Quick).into_iter().map(mask_texts).collect()
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
        agent.driver == Driver::Demo || agents::program_of(agent).is_some()
    }
}

/// Masks secrets. Secrets are not settings, but a user may have written one into an agent's
/// command.
fn masked(text: &str) -> String {
    redact::mask(text).text
}
