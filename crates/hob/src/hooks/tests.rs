//! Tests of the edit as a function of text, of the files around it, and of random documents.

mod edit;
mod files;
mod property;

use super::clients::Client;
use super::json_edit;

const HOB: &str = "/opt/hob/bin/hob";

fn installed(before: &str) -> String {
    json_edit::install(Some(before), &Client::Claude.wanted(), HOB).expect("installs")
}

fn uninstalled(text: &str) -> Option<String> {
    json_edit::uninstall(Some(text)).expect("uninstalls")
}
