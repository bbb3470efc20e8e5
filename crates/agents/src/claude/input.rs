//! Makes a prompt safe to type: it arrives as text, never as a command or a key. Also writes a history as text before a
//! prompt.

use hob_domain::{Block, Message, Role};
use hob_transcript::claude::{COMMAND_GUARD, is_command};
use serde_json::Value;

/// Returns the text to paste, or `None` if nothing is left of it.
///
/// Escape and control characters are removed, since they would act on the terminal. Line ends become LF,
/// tabs become four spaces and the end is trimmed, as the CLI itself does. Commands and mentions are made
/// [`plain`].
pub fn typed(text: &str) -> Option<String> {
    let text = text.replace("\r\n", "\n").replace('\r', "\n").replace('\t', "    ");
    let text: String = text.chars().filter(|c| *c == '\n' || !c.is_control()).collect();
    let text = text.trim_end();
    let bare = text.trim();
    if bare.is_empty() {
        return None;
    }
    let mut typed = plain(text);
    // A backslash right before Enter would be taken for a line break.
    if typed.ends_with('\\') {
        typed.push(' ');
    }
    Some(typed)
}

/// Inserts [`COMMAND_GUARD`] in front of a command and of every mention. Without it, `@/some/file` would send
/// that file to the model, whatever the permissions say.
pub fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len() + 8);
    plain.extend(is_command(text).then_some(COMMAND_GUARD));
    let mut before = None;
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        // The CLI removes some invisible characters first, so only a letter or digit before the `@` makes
        // it no mention.
        let in_word = before.is_some_and(char::is_alphanumeric);
        let names = letters.peek().is_some_and(|next| !next.is_whitespace());
        if letter == '@' && names && !in_word {
            plain.push(COMMAND_GUARD);
        }
        plain.push(letter);
        before = Some(letter);
    }
    plain
}

/// Returns the history as text, followed by the new prompt.
pub fn preamble(history: &[Message], prompt: &str) -> String {
    let mut text = String::from("Previous conversation context:\n");
    for message in history {
        let who = match message.role {
            Role::User => "User",
            Role::Assistant => "Assistant",
        };
        let parts: Vec<String> = message
            .content
            .iter()
            .filter_map(|block| match block {
                Block::Text(text) => Some(text.clone()),
                Block::ToolUse { name, input, .. } => Some(format!("(called {name} with {input})")),
                Block::ToolResult { content: Value::String(text), .. } => {
                    Some(format!("(result: {text})"))
                }
                Block::ToolResult { content, .. } => Some(format!("(result: {content})")),
                Block::Thinking { .. } => None,
                Block::Other(value) => {
                    let kind = value["type"].as_str().unwrap_or("block");
                    Some(format!("(a block of type {kind}, which is not repeated here)"))
                }
            })
            .collect();
        text.push_str(&format!("[{who}]: {}\n", parts.join("\n")));
    }
    format!("{text}\nContinue from here. New user message: {prompt}")
}

/// Returns the bytes of a bracketed paste.
pub fn paste(text: &str) -> Vec<u8> {
    format!("\x1b[200~{text}\x1b[201~").into_bytes()
}

/// Returns the letters and digits of a text. They identify it on the screen, where lines are wrapped and
/// spaces moved.
pub fn gist(text: &str) -> String {
    text.chars().filter(|c| c.is_alphanumeric()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn commands_become_text() {
        let check = |text: &str, expect: &str| assert_eq!(typed(text).as_deref(), Some(expect));
        check("hello", "hello");
        check("/clear", "\u{2800}/clear");
        check(" /help", "\u{2800} /help");
        check("!rm -rf", "\u{2800}!rm -rf");
        check("exit", "\u{2800}exit");
        check("\u{200b}exit", "\u{2800}\u{200b}exit");
        check("  quit\n", "\u{2800}  quit");
        check("path C:\\dir\\", "path C:\\dir\\ ");
        check("?", "\u{2800}?");
        check("exit now", "exit now");
        check("# title", "# title");
        check("@file what", "\u{2800}@file what");
        check("see @/etc/passwd\n@\"/a b\"", "see \u{2800}@/etc/passwd\n\u{2800}@\"/a b\"");
        check("\u{200b}@/etc/passwd", "\u{200b}\u{2800}@/etc/passwd");
        check("me@home.org, a @ b @", "me@home.org, a @ b @");
    }

    #[test]
    fn control_characters_are_removed() {
        assert_eq!(typed("a\x1b[201~\x03b\r\nc\td\u{9b}e").as_deref(), Some("a[201~b\nc    de"));
        for nothing in ["", "  \n", "\x03\x1b"] {
            assert_eq!(typed(nothing), None);
        }
    }

    #[test]
    fn preamble_has_the_documented_words() {
        let text =
            preamble(&[Message::user("remember beaver"), Message::assistant("ok")], "how are you?");
        for words in [
            "Previous conversation context:",
            "[User]: remember beaver",
            "[Assistant]: ok",
            "Continue from here. New user message: how are you?",
        ] {
            assert!(text.contains(words), "{text}");
        }
    }

    #[test]
    fn preamble_names_blocks_that_are_not_text() {
        let image = json!({"type": "image", "source": {"type": "base64", "data": "aGk="}});
        let message = json!({"role": "user", "content": [image, {"type": "text", "text": "look"}]});
        let text = preamble(&[Message::parse(&message).unwrap()], "and now?");
        assert!(
            text.contains("(a block of type image, which is not repeated here)\nlook"),
            "{text}"
        );
    }

    proptest! {
        #[test]
        fn only_neutral_characters_are_added_and_no_control_is_left(text in "\\PC{0,40}|.{0,40}") {
            if let Some(typed) = typed(&text) {
                let controls = typed.chars().any(|c| c.is_control() && c != '\n');
                prop_assert!(!controls);
                let plain: String = text
                    .replace("\r\n", "\n").replace('\r', "\n").replace('\t', "    ")
                    .chars().filter(|c| *c == '\n' || !c.is_control()).collect();
                let without = |text: &str| text.replace(COMMAND_GUARD, "");
                prop_assert_eq!(without(typed.trim_end()), without(plain.trim_end()));
                let mentions = plain.matches('@').count();
                prop_assert!(
                    typed.chars().count() <= plain.trim_end().chars().count() + 2 + mentions
                );
            }
        }
    }
}
