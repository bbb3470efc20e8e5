//! Tells what a user said from what a program put into the same message.

/// In front of a prompt it is Hob's own, put there so that the prompt is not taken for a command.
const NEUTRAL: char = '\u{2800}';

/// What Claude Code puts whole messages or parts of messages into.
const CLAUDE_WRAPPERS: &[&str] = &[
    "command-name",
    "command-message",
    "command-args",
    "command-contents",
    "local-command-stdout",
    "local-command-stderr",
    "local-command-caveat",
    "bash-input",
    "bash-stdout",
    "bash-stderr",
    "user-memory-input",
    "user-prompt-submit-hook",
    "task-notification",
    "teammate-message",
    "ide_opened_file",
    "ide_selection",
    "ide_diagnostics",
];

const REMINDER: &str = "<system-reminder>";
const REMINDER_END: &str = "</system-reminder>";

/// What is left of one text of a user message of Claude Code; `None` when nothing of it is the user's.
pub fn of_the_user(text: &str) -> Option<String> {
    if !text.contains('<') {
        return Some(text.to_owned());
    }
    let rest = without_reminders(text);
    let emptied = rest.len() < text.len() && rest.trim().is_empty();
    (!emptied && !consists_of(&rest, CLAUDE_WRAPPERS)).then_some(rest)
}

/// Takes out the character that Hob puts in front of a prompt that looks like a command.
pub fn without_neutral(text: &str) -> &str {
    text.strip_prefix(NEUTRAL).filter(|rest| is_command(rest)).unwrap_or(text)
}

/// The same rule by which the character is put there.
fn is_command(text: &str) -> bool {
    let bare =
        text.trim_matches(|c: char| c.is_whitespace() || matches!(c, '\u{200b}'..='\u{200f}'));
    matches!(bare, "exit" | "quit" | ":q" | ":q!" | ":wq" | ":wq!" | "?")
        || bare.starts_with(['/', '!'])
}

/// Whether the text is nothing but elements of these names.
fn consists_of(text: &str, names: &[&str]) -> bool {
    let mut rest = text.trim();
    let mut any = false;
    while let Some(after) = after_element(rest, names) {
        rest = after.trim_start();
        any = true;
    }
    any && rest.is_empty()
}

/// What follows the element that the text begins with, if it is one of these.
fn after_element<'a>(text: &'a str, names: &[&str]) -> Option<&'a str> {
    let inner = text.strip_prefix('<')?;
    let name = &inner[..inner.find(|c: char| c == '>' || c.is_whitespace())?];
    if !names.contains(&name) {
        return None;
    }
    let end = format!("</{name}>");
    text.find(&end).map(|at| &text[at + end.len()..])
}

/// The text without the reminders that the program puts into it. A reminder stands on lines of its
/// own or at the end; a tag within a sentence or within a code fence is something the user wrote.
fn without_reminders(text: &str) -> String {
    let mut out = String::new();
    let mut fences = Fences { text, counted: 0, open: false };
    let mut kept = 0;
    let mut from = 0;
    while let Some(close) = text[from..].find(REMINDER_END).map(|at| from + at) {
        let end = close + REMINDER_END.len();
        let opens: Vec<usize> =
            text[from..close].match_indices(REMINDER).map(|(at, _)| from + at).collect();
        let last = opens.last().copied();
        let begins = |open: &usize| {
            let at_the_end = Some(*open) == last && text[end..].trim().is_empty();
            at_the_end || stands_alone(text, *open)
        };
        from = end;
        let Some(open) = opens.into_iter().find(begins) else { continue };
        if fences.are_open_at(open) {
            continue;
        }
        join(&mut out, &text[kept..open], kept);
        kept = end;
    }
    join(&mut out, &text[kept..], kept);
    if kept > 0 && text[kept..].trim().is_empty() {
        out.truncate(out.trim_end().len());
    }
    out
}

/// Whether a tag begins its line, or ends it.
fn stands_alone(text: &str, open: usize) -> bool {
    let before = text[..open].trim_end_matches([' ', '\t']);
    before.is_empty()
        || before.ends_with('\n')
        || before.ends_with(REMINDER_END)
        || text[open + REMINDER.len()..].starts_with('\n')
}

/// Counts code fences from the beginning of a text on.
struct Fences<'a> {
    text: &'a str,
    counted: usize,
    open: bool,
}

impl Fences<'_> {
    /// Whether `at`, which is never before the last one asked for, is within a code fence.
    fn are_open_at(&mut self, at: usize) -> bool {
        for line in self.text[self.counted..at].split_inclusive('\n') {
            let bare = line.trim_start();
            self.open ^= bare.starts_with("```") || bare.starts_with("~~~");
        }
        self.counted = at;
        self.open
    }
}

/// Adds what follows a reminder that ended at `cut`, and closes the gap, so that no empty lines tell
/// of it.
fn join(out: &mut String, piece: &str, cut: usize) {
    if cut > 0 && out.trim().is_empty() {
        out.clear();
        out.push_str(piece.trim_start());
    } else if cut > 0 && out.ends_with('\n') {
        out.push_str(piece.strip_prefix('\n').unwrap_or(piece));
    } else {
        out.push_str(piece);
    }
}
