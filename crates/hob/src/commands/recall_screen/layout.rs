//! Draws the screen: the query, a list of hits, and a preview of the selected one.

use console::{measure_text_width, truncate_str};
use hob_child::Size;

use super::state::{Scope, State};
use crate::printer;
use crate::turns_view::{Heading, Highlighter, reason_line};
use crate::view::{Paint, View};

const CLEAR_LINE: &str = "\x1b[K";
const KEYS: &str = "↑↓ select · PgUp PgDn scroll · Tab all projects · Enter print · Esc quit";
/// The lines of the query, of the rule above the preview, and of the keys.
const FIXED_LINES: usize = 3;

/// Returns the screen as text with escape sequences, and moves the cursor behind the query.
pub fn draw(state: &mut State, view: &View, size: Size) -> String {
    let (rows, columns) = (usize::from(size.rows), usize::from(size.cols));
    let list_rows = (rows.saturating_sub(FIXED_LINES) / 3).clamp(1, state.hits.len().max(1));
    let preview_rows = rows.saturating_sub(FIXED_LINES + list_rows);
    let highlighter = Highlighter::new(&state.words);
    let mut lines = vec![query_line(state, view)];
    lines.extend(list(state, view, &highlighter, list_rows));
    lines.push(view.paint(Paint::Faint, &"─".repeat(columns)));
    lines.extend(preview(state, view, &highlighter, columns, preview_rows));
    lines.resize(rows.saturating_sub(1), String::new());
    lines.push(view.paint(Paint::Faint, KEYS));
    let mut screen = String::from("\x1b[?25l\x1b[H");
    for (row, line) in lines.iter().take(rows).enumerate() {
        let end = if row + 1 < rows { "\r\n" } else { "" };
        screen.push_str(&format!("{}{CLEAR_LINE}{end}", truncate_str(line, columns, "…")));
    }
    let column = (measure_text_width(&printer::one_line(&state.words)) + 3).min(columns);
    screen.push_str(&format!("\x1b[1;{column}H\x1b[?25h"));
    screen
}

fn query_line(state: &State, view: &View) -> String {
    let scope = match state.scope {
        Scope::Given => "",
        Scope::All => ", all projects",
    };
    let found = match (&state.error, state.is_searching, state.words.trim().is_empty()) {
        (Some(error), ..) => error.clone(),
        (_, _, true) => format!("type to search{scope}"),
        (_, true, _) => format!("searching…{scope}"),
        _ if state.hits.len() == 1 => format!("1 hit{scope}"),
        _ => format!("{} hits{scope}", state.hits.len()),
    };
    let paint = if state.error.is_some() { Paint::Bad } else { Paint::Faint };
    let found = view.paint(paint, &printer::one_line(&found));
    format!("> {}   {found}", printer::one_line(&state.words))
}

/// Returns a line for each hit, with the selected one among them.
fn list(state: &State, view: &View, highlighter: &Highlighter, rows: usize) -> Vec<String> {
    let first = (state.selected + 1).saturating_sub(rows);
    let hits = state.hits.iter().enumerate().skip(first).take(rows);
    hits.map(|(index, hit)| {
        let mark = if index == state.selected { "▌ " } else { "  " };
        let paint = if hit.role == "user" { Paint::User } else { Paint::Agent };
        let first_line = hit.text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
        format!(
            "{mark}{}  {}  {}",
            view.paint(Paint::Faint, &format!("{:>10}", view.time(&hit.ts))),
            view.paint(paint, &format!("{:<9}", printer::one_line(&hit.role))),
            highlighter.line(view, &printer::one_line(first_line)),
        )
    })
    .collect()
}

/// Returns the selected hit, and keeps the scrolled lines within its text.
fn preview(
    state: &mut State,
    view: &View,
    highlighter: &Highlighter,
    columns: usize,
    rows: usize,
) -> Vec<String> {
    let Some(hit) = state.hits.get(state.selected) else { return Vec::new() };
    let mut lines = vec![Heading::of_hit(hit).line(view), reason_line(view, hit)];
    let text = hit.text.trim_end().lines();
    let wrapped: Vec<String> =
        text.flat_map(|line| wrap(&printer::one_line(line), columns)).collect();
    let text_rows = rows.saturating_sub(lines.len());
    state.scrolled = state.scrolled.min(wrapped.len().saturating_sub(text_rows));
    let shown = wrapped.iter().skip(state.scrolled).take(text_rows);
    lines.extend(shown.map(|line| highlighter.line(view, line)));
    lines.truncate(rows);
    lines
}

/// Splits a line at spaces into lines of a width, and inside of words that are longer.
fn wrap(line: &str, width: usize) -> Vec<String> {
    let width = width.max(1);
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in line.split_inclusive(' ') {
        let length = measure_text_width(word.trim_end());
        if used > 0 && used + length > width {
            lines.push(String::new());
            used = 0;
        }
        for c in word.chars() {
            let char_width = measure_text_width(c.encode_utf8(&mut [0; 4]));
            if used + char_width > width && c != ' ' {
                lines.push(String::new());
                used = 0;
            }
            if let Some(last) = lines.last_mut() {
                last.push(c);
            }
            used += char_width;
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::super::state::tests::hit;
    use super::*;

    #[test]
    fn long_lines_are_wrapped_at_spaces_and_inside_of_long_words() {
        assert_eq!(wrap("one two three", 7), ["one two ", "three"]);
        assert_eq!(wrap("abcdefgh", 3), ["abc", "def", "gh"]);
        assert_eq!(wrap("日本語", 4), ["日本", "語"]);
        assert_eq!(wrap("", 4), [""]);
    }

    #[test]
    fn screen_fits_its_terminal() {
        let view = View::for_tests(Some(40), false);
        let mut state = State::new("login".to_owned());
        state.hits = (0..20).map(|n| hit(&format!("login {n} {}", "long ".repeat(400)))).collect();
        (state.selected, state.scrolled) = (15, 10_000);
        for (rows, cols) in [(24, 80), (10, 40), (4, 20), (1, 1)] {
            let screen = draw(&mut state, &view, Size { rows, cols });
            let lines: Vec<&str> = screen.split("\r\n").collect();
            assert!(lines.len() <= usize::from(rows), "{screen}");
            for line in lines {
                assert!(measure_text_width(line) <= usize::from(cols), "{line}");
            }
        }
        let screen = draw(&mut state, &view, Size { rows: 24, cols: 80 });
        assert!(screen.contains("▌") && screen.contains("login 15"), "{screen}");
        assert!(screen.contains("20 hits"), "{screen}");
    }
}
