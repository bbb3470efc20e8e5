//! Writes our entries in the manner of the document around them.

use super::command;
use super::json_scan::{self, Container};
use super::wanted::{Wanted, json_string};

/// How the lines around an entry are broken and indented.
#[derive(Debug, Clone)]
pub struct Layout {
    /// `None` writes all on one line.
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
    /// The layout for an entry at `at`, in a container that already holds something or in none.
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

    /// A whole document for a file that does not exist.
    pub fn document(&self, wanted: &[Wanted], hob: &str) -> String {
        let (inner, outer) = (self.gap(1), self.gap(0));
        let newline = self.newline.unwrap_or_default();
        format!("{{{inner}{}{outer}}}{newline}", self.hooks_at(1, wanted, hob))
    }

    /// A whole document for a file that exists and is blank; the single blanks mark it as such.
    pub fn document_in_blank_file(&self, wanted: &[Wanted], hob: &str) -> String {
        format!("{{ {} }}", self.hooks(wanted, hob))
    }

    /// The member `hooks` with all wanted events.
    pub fn hooks(&self, wanted: &[Wanted], hob: &str) -> String {
        self.hooks_at(0, wanted, hob)
    }

    /// The member for one event.
    pub fn event(&self, wanted: &Wanted, hob: &str) -> String {
        self.event_at(0, wanted, hob)
    }

    /// One element of an event's list.
    pub fn group(&self, wanted: &Wanted, hob: &str) -> String {
        self.group_at(0, wanted, hob)
    }

    fn hooks_at(&self, depth: usize, wanted: &[Wanted], hob: &str) -> String {
        let events: Vec<String> =
            wanted.iter().map(|wanted| self.event_at(depth + 1, wanted, hob)).collect();
        let (inner, outer) = (self.gap(depth + 1), self.gap(depth));
        format!("\"hooks\": {{{inner}{}{outer}}}", events.join(&format!(",{inner}")))
    }

    fn event_at(&self, depth: usize, wanted: &Wanted, hob: &str) -> String {
        let (inner, outer) = (self.gap(depth + 1), self.gap(depth));
        let group = self.group_at(depth + 1, wanted, hob);
        format!("{}: [{inner}{group}{outer}]", json_string(wanted.event))
    }

    fn group_at(&self, depth: usize, wanted: &Wanted, hob: &str) -> String {
        let command = json_string(&command::command_line(hob, wanted.subcommand));
        let timeout = wanted.timeout_seconds;
        let [outer, first, second, third] = [0, 1, 2, 3].map(|more| self.line_break(depth + more));
        let next = self.gap(depth + 3);
        format!(
            "{{{first}\"hooks\": [{second}{{{third}\"type\": \"command\",{next}\"command\": \
             {command},{next}\"timeout\": {timeout}{second}}}{first}]{outer}}}"
        )
    }

    /// A line break, or nothing where all is on one line.
    fn line_break(&self, depth: usize) -> String {
        self.newline
            .map(|newline| format!("{newline}{}{}", self.base, self.unit.repeat(depth)))
            .unwrap_or_default()
    }

    /// A line break, or a blank where all is on one line.
    fn gap(&self, depth: usize) -> String {
        if self.newline.is_some() { self.line_break(depth) } else { " ".to_owned() }
    }
}

/// The blanks at the start of the line in which `at` lies.
fn line_indent(text: &str, at: usize) -> &str {
    let start = text[..at].rfind('\n').map_or(json_scan::body_start(text), |newline| newline + 1);
    let line = &text[start..at];
    &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
}
