//! What the screen shows, and what each key changes.

use console::Key;
use hob_mcp::Hit;

const CTRL_N: char = '\u{e}';
const CTRL_P: char = '\u{10}';
const CTRL_U: char = '\u{15}';
const CTRL_W: char = '\u{17}';
/// How many lines of the preview a page key moves.
const PAGE_LINES: usize = 10;

/// Which projects are searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// The projects that the command line asked for.
    Given,
    All,
}

/// A search to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    pub words: String,
    pub scope: Scope,
}

/// What follows a key.
#[derive(Debug, PartialEq)]
pub enum Next {
    /// Draw the screen again.
    Draw,
    /// Search, and draw again.
    Search(Query),
    /// Leave the screen and print this hit.
    Print(Box<Hit>),
    Quit,
}

/// The state of the screen.
#[derive(Debug)]
pub struct State {
    pub words: String,
    pub scope: Scope,
    pub hits: Vec<Hit>,
    pub selected: usize,
    /// How many lines of the preview are above its first shown line.
    pub scrolled: usize,
    /// Why the last search failed.
    pub error: Option<String>,
    /// Whether a search runs whose hits are not shown yet.
    pub is_searching: bool,
}

impl State {
    pub fn new(words: String) -> State {
        State {
            words,
            scope: Scope::Given,
            hits: Vec::new(),
            selected: 0,
            scrolled: 0,
            error: None,
            is_searching: false,
        }
    }

    pub fn selected_hit(&self) -> Option<&Hit> {
        self.hits.get(self.selected)
    }

    pub fn query(&self) -> Query {
        Query { words: self.words.trim().to_owned(), scope: self.scope }
    }

    /// Shows the answer of a search, unless another search has begun since.
    pub fn show(&mut self, query: &Query, answer: Result<Vec<Hit>, String>) {
        if *query != self.query() {
            return;
        }
        (self.hits, self.error) = match answer {
            Ok(hits) => (hits, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        (self.selected, self.scrolled, self.is_searching) = (0, 0, false);
    }

    pub fn press(&mut self, key: &Key) -> Next {
        match key {
            Key::Escape | Key::CtrlC => return Next::Quit,
            Key::Enter => {
                return self
                    .selected_hit()
                    .map_or(Next::Draw, |hit| Next::Print(Box::new(hit.clone())));
            }
            Key::ArrowUp | Key::Char(CTRL_P) => self.select(self.selected.saturating_sub(1)),
            Key::ArrowDown | Key::Char(CTRL_N) => self.select(self.selected + 1),
            Key::PageUp => self.scrolled = self.scrolled.saturating_sub(PAGE_LINES),
            Key::PageDown => self.scrolled += PAGE_LINES,
            Key::Tab => {
                self.scope = match self.scope {
                    Scope::Given => Scope::All,
                    Scope::All => Scope::Given,
                };
                return self.search();
            }
            Key::Backspace if self.words.pop().is_some() => return self.search(),
            Key::Char(CTRL_U) => {
                self.words.clear();
                return self.search();
            }
            Key::Char(CTRL_W) => {
                let kept = self.words.trim_end().rfind(' ').map_or(0, |space| space + 1);
                self.words.truncate(kept);
                return self.search();
            }
            Key::Char(c) if !c.is_control() => {
                self.words.push(*c);
                return self.search();
            }
            _ => {}
        }
        Next::Draw
    }

    fn select(&mut self, hit: usize) {
        (self.selected, self.scrolled) = (hit.min(self.hits.len().saturating_sub(1)), 0);
    }

    fn search(&mut self) -> Next {
        let query = self.query();
        if query.words.is_empty() {
            self.show(&query, Ok(Vec::new()));
            return Next::Draw;
        }
        self.is_searching = true;
        Next::Search(query)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;

    pub fn hit(text: &str) -> Hit {
        let hit = json!({"record_id": "0123456789abcdef", "text": text, "role": "user", "origin": "user",
            "session_id": "s1", "project": "/src/shop", "ts": "2026-11-15T05:00:00Z", "score": 0.9,
            "reason": "matches login"});
        serde_json::from_value(hit).unwrap()
    }

    #[test]
    fn typing_searches_and_a_late_answer_of_an_older_query_is_dropped() {
        let mut state = State::new(String::new());
        let first = Query { words: "a".to_owned(), scope: Scope::Given };
        assert_eq!(state.press(&Key::Char('a')), Next::Search(first.clone()));
        let Next::Search(second) = state.press(&Key::Char('b')) else { panic!("no search") };
        state.show(&first, Ok(vec![hit("old")]));
        assert!(state.hits.is_empty() && state.is_searching);
        state.show(&second, Ok(vec![hit("one"), hit("two")]));
        assert_eq!((state.hits.len(), state.is_searching), (2, false));
        state.press(&Key::ArrowDown);
        state.press(&Key::ArrowDown);
        assert_eq!(state.press(&Key::Enter), Next::Print(Box::new(hit("two"))));
    }

    #[test]
    fn editing_keys_change_the_query() {
        let mut state = State::new("why did it fail".to_owned());
        state.press(&Key::Char(CTRL_W));
        assert_eq!(state.words, "why did it ");
        state.press(&Key::Backspace);
        assert_eq!(state.words, "why did it");
        let all = Query { words: "why did it".to_owned(), scope: Scope::All };
        assert_eq!(state.press(&Key::Tab), Next::Search(all));
        assert_eq!(state.press(&Key::Char(CTRL_U)), Next::Draw);
        assert_eq!((state.press(&Key::Escape), state.words.as_str()), (Next::Quit, ""));
    }
}
