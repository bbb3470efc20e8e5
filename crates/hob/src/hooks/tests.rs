//! Tests of the edit as a function of text, of the files around it, and of random documents.

mod edit;
mod files;
mod plugin_files;
mod property;

use hob_transcript::AgentClient;

use super::hook_spec::hooks_for;
use super::json_edit;

const HOB: &str = "/opt/hob/bin/hob";

fn installed(before: &str) -> String {
    json_edit::install(Some(before), &hooks_for(AgentClient::Claude), HOB).expect("installs")
}

fn uninstalled(text: &str) -> Option<String> {
    json_edit::uninstall(Some(text)).expect("uninstalls")
}
