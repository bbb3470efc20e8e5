//! How commands write for a person at a terminal: colours, relative times, short ids, and tables that fit the width.
//! What a program reads (a pipe, a file) stays plain and whole.

use std::borrow::Cow;
use std::io::{IsTerminal, stdout};

use console::{measure_text_width, truncate_str};
use hob_domain::Timestamp;

use crate::printer;
use crate::raw_terminal;

/// How many characters of an id are shown. Commands accept any unambiguous prefix.
const SHORT_ID_CHARS: usize = 12;
/// The width that a column keeps even on a narrow terminal.
const MIN_COLUMN_CHARS: usize = 8;
const COLUMN_GAP: &str = "  ";

/// The reader of standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct View {
    /// The width of the terminal; `None` if standard output is not a terminal.
    pub width: Option<usize>,
    is_coloured: bool,
    now: Timestamp,
}

/// What a piece of text is, which decides its colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paint {
    /// A heading, or what matters most in a line.
    Strong,
    /// What a reader mostly skips: ids, places, reasons.
    Faint,
    /// A word that matches the query.
    Match,
    Good,
    Warning,
    Bad,
    /// What the user said.
    User,
    /// What an agent said.
    Agent,
}

impl Paint {
    /// Returns the parameters of the escape sequence.
    fn code(self) -> &'static str {
        match self {
            Paint::Strong => "1",
            Paint::Faint => "2",
            Paint::Match => "1;33",
            Paint::Good => "32",
            Paint::Warning => "33",
            Paint::Bad => "31",
            Paint::User => "36",
            Paint::Agent => "35",
        }
    }
}

impl View {
    /// Returns how to write to standard output. `$NO_COLOR` and `TERM=dumb` turn colours off.
    pub fn of_stdout() -> View {
        let is_terminal = stdout().is_terminal();
        let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        View {
            width: is_terminal.then(|| usize::from(raw_terminal::size().cols)),
            is_coloured: is_terminal && !is_set("NO_COLOR") && !is_dumb,
            now: Timestamp::now(),
        }
    }

    #[cfg(test)]
    pub fn for_tests(width: Option<usize>, is_coloured: bool) -> View {
        View { width, is_coloured, now: Timestamp::UNIX_EPOCH }
    }

    pub fn is_terminal(&self) -> bool {
        self.width.is_some()
    }

    pub fn is_coloured(&self) -> bool {
        self.is_coloured
    }

    /// Returns a text in a colour, without control characters of its own.
    pub fn paint(&self, paint: Paint, text: &str) -> String {
        let text = printer::clean(text);
        match self.is_coloured && !text.is_empty() {
            true => format!("\x1b[{}m{text}\x1b[m", paint.code()),
            false => text.into_owned(),
        }
    }

    /// Returns a time as a person says it, or as it is if a program reads it.
    pub fn time(&self, rfc3339: &str) -> String {
        match rfc3339.parse::<Timestamp>() {
            Ok(time) if self.is_terminal() => relative(time, self.now),
            _ => printer::one_line(rfc3339),
        }
    }

    /// Returns the beginning of an id, or the whole id if a program reads it.
    pub fn id<'a>(&self, id: &'a str) -> &'a str {
        let end = id.char_indices().nth(SHORT_ID_CHARS).map(|(at, _)| at);
        end.filter(|_| self.is_terminal()).map_or(id, |end| &id[..end])
    }

    /// Returns a path with `~` for the user's home, or as it is if a program reads it.
    pub fn path<'a>(&self, path: &'a str) -> Cow<'a, str> {
        let home = std::env::var("HOME").ok().filter(|home| home.len() > 1);
        let below = home.as_deref().and_then(|home| path.strip_prefix(home));
        match below.filter(|rest| self.is_terminal() && (rest.is_empty() || rest.starts_with('/')))
        {
            Some(rest) => Cow::Owned(format!("~{rest}")),
            None => Cow::Borrowed(path),
        }
    }

    /// Prints rows in columns under a heading.
    pub fn print_table(&self, heading: &[&str], rows: &[Vec<String>]) {
        printer::out_drawing(&self.table(heading, rows));
    }

    /// Returns rows in columns under a heading. On a terminal the widest columns are shortened until a row fits.
    pub fn table(&self, heading: &[&str], rows: &[Vec<String>]) -> String {
        let rows: Vec<Vec<String>> = rows
            .iter()
            .map(|row| row.iter().map(|cell| printer::one_line(cell)).collect())
            .collect();
        let mut widths: Vec<usize> = heading.iter().map(|name| measure_text_width(name)).collect();
        for row in &rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(measure_text_width(cell));
            }
        }
        if let Some(available) = self.width {
            fit(&mut widths, available.saturating_sub(COLUMN_GAP.len() * (heading.len() - 1)));
        }
        let line = |cells: &[String]| {
            let cells = cells.iter().zip(&widths).map(|(cell, width)| cell_text(cell, *width));
            cells.collect::<Vec<String>>().join(COLUMN_GAP).trim_end().to_owned()
        };
        let heading: Vec<String> = heading.iter().map(|name| (*name).to_owned()).collect();
        let mut text = format!("{}\n", self.paint(Paint::Faint, &line(&heading)));
        for row in &rows {
            text.push_str(&line(row));
            text.push('\n');
        }
        text
    }
}

/// Shortens the widest columns until all of them fit.
fn fit(widths: &mut [usize], available: usize) {
    while widths.iter().sum::<usize>() > available {
        let Some(widest) = widths.iter_mut().max() else { return };
        if *widest <= MIN_COLUMN_CHARS {
            return;
        }
        *widest -= 1;
    }
}

/// Returns a cell in its width, which is a number of columns: some characters take two. What does not fit ends with an
/// ellipsis.
fn cell_text(cell: &str, width: usize) -> String {
    let cell = truncate_str(cell, width, "…");
    let gap = width.saturating_sub(measure_text_width(&cell));
    format!("{cell}{}", " ".repeat(gap))
}

/// Returns a number with the noun for it: "1 turn", "2 turns".
pub fn counted(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// Returns a time relative to now, in words.
fn relative(time: Timestamp, now: Timestamp) -> String {
    let seconds = now.as_second() - time.as_second();
    let date = || time.to_string().chars().take("2026-11-01".len()).collect::<String>();
    let (count, unit) = match seconds.unsigned_abs() {
        0..=44 => return "now".to_owned(),
        seconds @ 45..=5399 => ((seconds + 30) / 60, "min"),
        seconds @ 5400..=129_599 => ((seconds + 1800) / 3600, "h"),
        seconds @ 129_600..=2_591_999 => ((seconds + 43_200) / 86_400, "days"),
        _ => return date(),
    };
    if seconds >= 0 { format!("{count} {unit} ago") } else { format!("in {count} {unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_795_000_000;

    fn view(width: Option<usize>) -> View {
        View { width, is_coloured: false, now: Timestamp::from_second(NOW).unwrap() }
    }

    #[test]
    fn times_are_relative_on_a_terminal_only() {
        let check = |before: i64, expect: &str| {
            let time = Timestamp::from_second(NOW - before).unwrap().to_string();
            assert_eq!(view(Some(80)).time(&time), expect);
            assert_eq!(view(None).time(&time), time);
        };
        check(0, "now");
        check(60, "1 min ago");
        check(61, "1 min ago");
        check(125, "2 min ago");
        check(170, "3 min ago");
        check(7200, "2 h ago");
        check(3 * 86_400, "3 days ago");
        check(-600, "in 10 min");
        let old = Timestamp::from_second(NOW - 90 * 86_400).unwrap().to_string();
        assert_eq!(view(Some(80)).time(&old), old[..10]);
    }

    #[test]
    fn tables_fit_the_width_and_stay_whole_in_a_pipe() {
        let rows = vec![vec!["a".repeat(40), "x\ny".to_owned()], vec!["b".into(), "z".into()]];
        let narrow = view(Some(20)).table(&["NAME", "WHAT"], &rows);
        assert!(narrow.lines().all(|line| line.chars().count() <= 20), "{narrow}");
        assert!(narrow.contains('…') && narrow.contains("x y"), "{narrow}");
        let whole = view(None).table(&["NAME", "WHAT"], &rows);
        assert!(whole.contains(&"a".repeat(40)), "{whole}");
    }

    /// A character of East Asian scripts takes two columns, so that a count of characters breaks the columns after it.
    #[test]
    fn columns_of_wide_characters_stay_in_line() {
        let rows = vec![
            vec!["日本語の長い名前".to_owned(), "one".to_owned()],
            vec!["plain".to_owned(), "two".to_owned()],
        ];
        let column = |table: &str, word: &str| {
            let line = table.lines().find(|line| line.ends_with(word)).unwrap();
            measure_text_width(line.strip_suffix(word).unwrap())
        };
        for width in [None, Some(80), Some(15)] {
            let table = view(width).table(&["NAME", "WHAT"], &rows);
            assert_eq!(column(&table, "one"), column(&table, "two"), "{width:?}:\n{table}");
            let most = width.unwrap_or(usize::MAX);
            assert!(table.lines().all(|line| measure_text_width(line) <= most), "{table}");
        }
        assert!(view(Some(15)).table(&["NAME", "WHAT"], &rows).contains("日本語の…"));
    }

    #[test]
    fn colours_are_hobs_own_only() {
        let coloured = View { is_coloured: true, ..view(Some(80)) };
        assert_eq!(coloured.paint(Paint::Bad, "a\x1b[2Jb"), "\x1b[31ma[2Jb\x1b[m");
        assert_eq!(view(Some(80)).paint(Paint::Bad, "a\x1bb"), "ab");
        assert_eq!(coloured.id("0123456789abcdef"), "0123456789ab");
        assert_eq!(view(None).id("0123456789abcdef"), "0123456789abcdef");
    }
}
