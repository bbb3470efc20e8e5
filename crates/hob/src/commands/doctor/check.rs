//! Makes checks, and prints them as `hob doctor` does.

use crate::printer;
use crate::view::{Paint, View};
use hob_gateway::{Check, Verdict};
use serde_json::{Value, json};

pub fn passed(name: &str, text: impl Into<String>) -> Check {
    Check { name: name.to_owned(), status: Verdict::Ok, text: text.into(), fix: None }
}

pub fn warning(name: &str, text: impl Into<String>, fix: impl Into<String>) -> Check {
    Check { status: Verdict::Warn, fix: Some(fix.into()), ..passed(name, text) }
}

pub fn failed(name: &str, text: impl Into<String>, fix: impl Into<String>) -> Check {
    Check { status: Verdict::Fail, fix: Some(fix.into()), ..passed(name, text) }
}

/// Returns the check as `hob doctor --json` prints it. The names differ from those of the HTTP API,
/// and both are part of the contract.
pub fn to_json(check: &Check) -> Value {
    let verdict = match check.status {
        Verdict::Ok => "ok",
        Verdict::Warn => "warning",
        Verdict::Fail => "failed",
    };
    let mut value = json!({"name": check.name, "verdict": verdict, "says": check.text});
    if let Some(fix) = &check.fix {
        value["fix"] = json!(fix);
    }
    value
}

/// Returns the check on one line, and its fix on a second one.
pub fn text(view: &View, check: &Check) -> String {
    let mark = match check.status {
        Verdict::Ok => view.paint(Paint::Good, "ok     "),
        Verdict::Warn => view.paint(Paint::Warning, "warning"),
        Verdict::Fail => view.paint(Paint::Bad, "FAILED "),
    };
    let text = format!("{:<9} {}", check.name, check.text);
    let mut lines = format!("{mark}  {}\n", printer::clean(&text));
    if let Some(fix) = &check.fix {
        lines.push_str(&printer::clean(&format!("         {:<9} -> {fix}\n", "")));
    }
    lines
}
