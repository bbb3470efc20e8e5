//! How turns of the memory look on a terminal.

use std::collections::HashSet;

use hob_domain::memory::NOTE_SESSION;
use hob_mcp::Hit;
use hob_memory::Analyser;

use crate::printer;
use crate::view::{Paint, View};

/// Marks the words of a text that match a query.
pub struct Highlighter {
    analyser: Analyser,
    terms: HashSet<String>,
}

impl Highlighter {
    pub fn new(query: &str) -> Highlighter {
        let analyser = Analyser::default();
        let terms = analyser.content_terms(query).into_iter().collect();
        Highlighter { analyser, terms }
    }

    /// Returns a line with the matching words in the colour of a match.
    pub fn line(&self, view: &View, line: &str) -> String {
        if !view.is_coloured() {
            return printer::clean(line).into_owned();
        }
        let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '\'');
        let mut out = String::new();
        let mut rest = line;
        while !rest.is_empty() {
            let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            let is_match = self.analyser.terms(word).iter().any(|term| self.terms.contains(term));
            let end = word.trim_end_matches(|c: char| !c.is_alphanumeric()).len();
            let (word, punctuation) = word.split_at(end);
            match is_match {
                true => out.push_str(&view.paint(Paint::Match, word)),
                false => out.push_str(&printer::clean(word)),
            }
            out.push_str(&printer::clean(punctuation));
            let gap = after.find(is_part).unwrap_or(after.len());
            let (gap, after) = after.split_at(gap);
            out.push_str(&printer::clean(gap));
            rest = after;
        }
        out
    }
}

/// Returns a hit's id and why it was found.
pub fn reason_line(view: &View, hit: &Hit) -> String {
    let reason = format!("[{}] {}", view.id(&hit.record_id), hit.reason);
    view.paint(Paint::Faint, &printer::one_line(&reason))
}

/// What the heading of a turn says.
pub struct Heading<'a> {
    pub ts: &'a str,
    pub role: &'a str,
    pub origin: &'a str,
    pub project: &'a str,
    pub worktree: Option<&'a str>,
    pub session_id: &'a str,
    /// The app in whose memory the turn is; `None` for the owner's.
    pub app: Option<&'a str>,
}

impl<'a> Heading<'a> {
    pub fn of_hit(hit: &'a Hit) -> Heading<'a> {
        Heading {
            ts: &hit.ts,
            role: &hit.role,
            origin: &hit.origin,
            project: &hit.project,
            worktree: hit.worktree.as_deref(),
            session_id: &hit.session_id,
            app: None,
        }
    }

    pub fn line(&self, view: &View) -> String {
        let paint = if self.role == "user" { Paint::User } else { Paint::Agent };
        let origin = match self.origin {
            "user" | "agent" | "" => String::new(),
            origin => format!(" ({origin})"),
        };
        let app = self.app.map_or(String::new(), |app| format!(" (app {app})"));
        let tree = self.worktree.map_or(String::new(), |tree| format!(" (in {tree})"));
        // A note belongs to no session of an agent.
        let session = match self.session_id.starts_with(NOTE_SESSION) {
            true => String::new(),
            false => format!("  session {}", view.id(self.session_id)),
        };
        let place = format!("{}{tree}{session}", view.path(self.project));
        format!(
            "{}  {}  {}",
            view.paint(Paint::Strong, &view.time(self.ts)),
            view.paint(paint, &printer::one_line(&format!("{}{origin}{app}", self.role))),
            view.paint(Paint::Faint, &printer::one_line(&place)),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inflected_words_match_and_stop_words_do_not() {
        let coloured = View::for_tests(Some(80), true);
        let line =
            Highlighter::new("when is the release").line(&coloured, "The releases.\x1b are here");
        assert_eq!(line, "The \x1b[1;33mreleases\x1b[m. are here");
    }
}
