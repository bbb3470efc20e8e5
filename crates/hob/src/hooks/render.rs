//! Writes Hob's entries in the format of the document around them.

use super::command;
use super::hook_spec::{HookSpec, json_string};
use super::json_scan::{self, Container};

/// The line breaks and the indentation around an entry.
#[derive(Debug, Clone)]
pub struct Layout {
    /// `None` writes the entry on one line.
    newline: Option<&'static str>,
    /// The indentation of the line on which the entry starts.
    base: String,
    /// The indentation of one level.
    unit: String,
}

impl Default for Layout {
    fn default() -> Self {
        Self { newline: Some("\n"), base: String::new(), unit: "  ".to_owned() }
    }
}

impl Layout {
    /// Returns the layout for an entry at offset `at`. `neighbours` is the container if it already
    /// has items.
    pub fn at(text: &str, at: usize, neighbours: Option<&Container>) -> Self {
        let root = json_scan::root(text).filter(|root| !root.items.is_empty());
        let is_one_line =
            |container: &Container| !text[container.open..container.close].contains('\n');
        let newline =
            if neighbours.is_some_and(is_one_line) || root.as_ref().is_some_and(is_one_line) {
                None
            } else {
                let first = text.find('\n').unwrap_or(0);
                Some(if text[..first].ends_with('\r') { "\r\n" } else { "\n" })
            };
        let unit = root.and_then(|root| {
            let first = root.items.first()?.start();
            let (_, indent) = json_scan::blanks_before(text, first).rsplit_once('\n')?;
            Some(indent.strip_prefix(line_indent(text, root.open)).unwrap_or(indent).to_owned())
        });
        let base = line_indent(text, at).to_owned();
        Self { newline, base, unit: unit.unwrap_or_else(|| "  ".to_owned()) }
    }

    /// Returns a whole document, for a file that does not exist.
    pub fn document(&self, specs: &[HookSpec], hob: &str) -> String {
        let (inner, outer) = (self.gap(1), self.gap(0));
        let newline = self.newline.unwrap_or_default();
        format!("{{{inner}{}{outer}}}{newline}", self.hooks_at(1, specs, hob))
    }

    /// Returns a whole document, for a file that exists and is blank. Single spaces inside its
    /// braces mark it.
    pub fn document_in_blank_file(&self, specs: &[HookSpec], hob: &str) -> String {
        format!("{{ {} }}", self.hooks(specs, hob))
    }

    /// Returns the member `hooks` with all events.
    pub fn hooks(&self, specs: &[HookSpec], hob: &str) -> String {
        self.hooks_at(0, specs, hob)
    }

    /// Returns the member for one event.
    pub fn event(&self, spec: &HookSpec, hob: &str) -> String {
        self.event_at(0, spec, hob)
    }

    /// Returns one element of an event's list.
    pub fn group(&self, spec: &HookSpec, hob: &str) -> String {
        self.group_at(0, spec, hob)
    }

    fn hooks_at(&self, depth: usize, specs: &[HookSpec], hob: &str) -> String {
        let events: Vec<String> =
            specs.iter().map(|spec| self.event_at(depth + 1, spec, hob)).collect();
        let (inner, outer) = (self.gap(depth + 1), self.gap(depth));
        format!("\"hooks\": {{{inner}{}{outer}}}", events.join(&format!(",{inner}")))
    }

    fn event_at(&self, depth: usize, spec: &HookSpec, hob: &str) -> String {
        let (inner, outer) = (self.gap(depth + 1), self.gap(depth));
        let group = self.group_at(depth + 1, spec, hob);
        format!("{}: [{inner}{group}{outer}]", json_string(spec.event))
    }

    fn group_at(&self, depth: usize, spec: &HookSpec, hob: &str) -> String {
        let command = json_string(&command::command_line(hob, spec.subcommand));
        let timeout = spec.timeout;
        let [outer, first, second, third] = [0, 1, 2, 3].map(|more| self.line_break(depth + more));
        let next = self.gap(depth + 3);
        format!(
            "{{{first}\"hooks\": [{second}{{{third}\"type\": \"command\",{next}\"command\": \
             {command},{next}\"timeout\": {timeout}{second}}}{first}]{outer}}}"
        )
    }

    /// Returns a line break and indentation, or nothing for an entry on one line.
    fn line_break(&self, depth: usize) -> String {
        self.newline
            .map(|newline| format!("{newline}{}{}", self.base, self.unit.repeat(depth)))
            .unwrap_or_default()
    }

    /// Returns a line break and indentation, or a space for an entry on one line.
    fn gap(&self, depth: usize) -> String {
        if self.newline.is_some() { self.line_break(depth) } else { " ".to_owned() }
    }
}

/// Returns the white space at the start of the line that holds `at`.
fn line_indent(text: &str, at: usize) -> &str {
    let start = text[..at].rfind('\n').map_or(json_scan::body_start(text), |newline| newline + 1);
    let line = &text[start..at];
    &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
}
