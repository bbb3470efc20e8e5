//! Separates what a user typed from what Claude Code put into the same message.

/// The elements in which Claude Code wraps whole messages or parts of messages.
const WRAPPERS: &[&str] = &[
    "command-name",
    "command-message",
    "command-args",
    "command-contents",
    "local-command-stdout",
    "local-command-stderr",
    "local-command-caveat",
    "user-memory-input",
    "user-prompt-submit-hook",
    "task-notification",
    "ide_opened_file",
    "ide_selection",
    "ide_diagnostics",
];

/// The elements of what was said or done in the conversation: commands that the user ran from the
/// prompt with their outputs, and messages of other agents. They are turns unless they say nothing.
const SPOKEN: &[&str] = &["bash-input", "bash-stdout", "bash-stderr", "teammate-message"];

const REMINDER: &str = "<system-reminder>";
const REMINDER_END: &str = "</system-reminder>";

/// Returns the part of one text of a user message that the user typed; `None` if there is none.
pub fn typed_by_user(text: &str) -> Option<String> {
    if !text.contains('<') {
        return Some(text.to_owned());
    }
    let rest = without_reminders(text);
    let is_emptied = rest.len() < text.len() && rest.trim().is_empty();
    (!is_emptied && !consists_of_wrappers(&rest)).then_some(rest)
}

/// Returns whether an element of what was said or done in the conversation begins anywhere in a text.
pub fn has_spoken_element(text: &str) -> bool {
    text.match_indices('<').any(|(at, _)| {
        let begins = |name: &&str| {
            let after = text[at + 1..].strip_prefix(*name);
            after.is_some_and(|after| after.starts_with(|c: char| c == '>' || c.is_whitespace()))
        };
        SPOKEN.iter().any(begins)
    })
}

/// Returns whether the text is nothing but elements in which nobody says anything.
fn consists_of_wrappers(text: &str) -> bool {
    let mut rest = text.trim();
    let mut any = false;
    while let Some(after) = after_wrapper(rest) {
        rest = after.trim_start();
        any = true;
    }
    any && rest.is_empty()
}

/// Returns what follows the element at the beginning of the text, if nobody says anything in it.
fn after_wrapper(text: &str) -> Option<&str> {
    let inner = text.strip_prefix('<')?;
    let name = &inner[..inner.find(|c: char| c == '>' || c.is_whitespace())?];
    let end = format!("</{name}>");
    let (element, after) = text.split_once(&end)?;
    let content = element.split_once('>')?.1.trim();
    // Agents of a team also send each other messages that are no words, such as that one is idle.
    let is_silent = content.is_empty() || content.starts_with('{');
    (WRAPPERS.contains(&name) || SPOKEN.contains(&name) && is_silent).then_some(after)
}

/// Returns the text without the reminders that Claude Code puts into it. A reminder has lines of its
/// own or is at the end; a tag inside a sentence or a code fence is something the user wrote.
fn without_reminders(text: &str) -> String {
    let mut out = String::new();
    let mut fences = CodeFences { text, counted: 0, open: false };
    let mut kept = 0;
    let mut from = 0;
    while let Some(close) = text[from..].find(REMINDER_END).map(|at| from + at) {
        let end = close + REMINDER_END.len();
        let opens: Vec<usize> =
            text[from..close].match_indices(REMINDER).map(|(at, _)| from + at).collect();
        let last = opens.last().copied();
        let begins = |open: &usize| {
            let at_the_end = Some(*open) == last && text[end..].trim().is_empty();
            at_the_end || is_on_its_own_line(text, *open)
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

/// Returns whether a tag begins its line, or ends it.
fn is_on_its_own_line(text: &str, open: usize) -> bool {
    let before = text[..open].trim_end_matches([' ', '\t']);
    before.is_empty()
        || before.ends_with('\n')
        || before.ends_with(REMINDER_END)
        || text[open + REMINDER.len()..].starts_with('\n')
}

/// Tracks code fences from the beginning of a text.
struct CodeFences<'a> {
    text: &'a str,
    counted: usize,
    open: bool,
}

impl CodeFences<'_> {
    /// Returns whether `at` is inside a code fence. `at` must not decrease from call to call.
    fn are_open_at(&mut self, at: usize) -> bool {
        for line in self.text[self.counted..at].split_inclusive('\n') {
            let bare = line.trim_start();
            self.open ^= bare.starts_with("```") || bare.starts_with("~~~");
        }
        self.counted = at;
        self.open
    }
}

/// Appends what follows a reminder that ended at `cut`, and closes the gap, so that no empty lines
/// remain of it.
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
