//! The character that Hob puts in front of a prompt that the CLI would take for a command.

/// A blank that is not white space. In front of a word it keeps the word from being a command: newer
/// versions of the CLI trim white space, and remove zero-width characters, before they look for
/// commands.
pub const COMMAND_GUARD: char = '\u{2800}';

/// Returns whether the CLI would take a text for something else than a prompt.
pub fn is_command(text: &str) -> bool {
    let bare =
        text.trim_matches(|c: char| c.is_whitespace() || matches!(c, '\u{200b}'..='\u{200f}'));
    matches!(bare, "exit" | "quit" | ":q" | ":q!" | ":wq" | ":wq!" | "?")
        || bare.starts_with(['/', '!'])
}

/// Removes the guard from a prompt that looks like a command.
pub fn without_guard(text: &str) -> &str {
    text.strip_prefix(COMMAND_GUARD).filter(|rest| is_command(rest)).unwrap_or(text)
}
