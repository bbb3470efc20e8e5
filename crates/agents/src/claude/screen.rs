//! Recognises what the terminal shows: the prompt, a dialog, or neither yet.

use std::sync::Arc;
use std::time::Instant;

use hob_terminal::Terminal;
use hob_transcript::claude::COMMAND_GUARD;

use super::input::gist;

/// The prompt: `❯` and a no-break space. Menus and dialogs use an ordinary space.
const PROMPT: &str = "❯\u{a0}";

/// A snapshot of the terminal's screen.
pub struct Screen {
    pub terminal: Arc<Terminal>,
    contents: String,
    /// The output position of the snapshot.
    pub position: u64,
    pub dialog_since: Option<Instant>,
}

impl Screen {
    pub fn new(terminal: Arc<Terminal>) -> Screen {
        Screen { terminal, contents: String::new(), position: 0, dialog_since: None }
    }

    /// Takes a new snapshot.
    pub fn update(&mut self) {
        (self.position, self.contents) = self.terminal.screen_text();
    }

    pub fn contents(&self) -> &str {
        &self.contents
    }

    pub fn view(&self) -> View {
        view(&self.contents)
    }

    pub fn summary(&self) -> String {
        summary(&self.contents)
    }
}

/// The state of the program, as its screen shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum View {
    /// Nothing that Hob recognises.
    Unknown,
    /// The input box with its text.
    Prompt { text: String },
    /// A dialog that blocks the program.
    Dialog(Dialog),
}

impl View {
    pub fn is_dialog(&self) -> bool {
        matches!(self, View::Dialog(_))
    }
}

/// Returns whether a turn runs: the screen then says how to interrupt it.
pub fn is_busy(contents: &str) -> bool {
    contents.contains("esc to interrupt")
}

/// A dialog with its name and advice on how to avoid it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dialog {
    pub name: String,
    pub advice: String,
}

/// For each dialog: text that identifies it, its name, and advice.
const DIALOGS: &[(&str, &str, &str)] = &[
    (
        "trust this folder",
        "workspace trust",
        "Run `hob claude prepare` for this folder, or set an API key for the agent.",
    ),
    (
        "Accessing workspace",
        "workspace trust",
        "Run `hob claude prepare` for this folder, or set an API key for the agent.",
    ),
    (
        "custom API key",
        "custom API key",
        "Let Hob prepare its own configuration folder for this key.",
    ),
    (
        "Bypass Permissions mode",
        "bypass permissions warning",
        "Accept it once in a terminal, or use another permission mode.",
    ),
    ("Settings Error", "settings error", "Correct the settings file that it names."),
    ("Configuration error", "configuration error", "Correct or remove .claude.json."),
    (
        "external CLAUDE.md",
        "external CLAUDE.md imports",
        "Answer it once in a terminal in this folder.",
    ),
    ("New MCP server", "new MCP server", "Set enableAllProjectMcpServers in the settings."),
    (
        "Select login method",
        "login",
        "Log in once with `claude` in a terminal, or set an API key for the agent.",
    ),
    (
        "Choose the text style",
        "onboarding",
        "Start `claude` once in a terminal, or set an API key for the agent.",
    ),
    (
        "Welcome to Claude Code",
        "onboarding",
        "Start `claude` once in a terminal, or set an API key for the agent.",
    ),
    ("Do you want to", "permission", "Choose a permission mode or allowed tools that do not ask."),
    (
        "requires approval",
        "permission",
        "Choose a permission mode or allowed tools that do not ask.",
    ),
    ("Rewind", "rewind", ""),
];

/// Classifies the text of a screen.
pub fn view(contents: &str) -> View {
    let lines: Vec<&str> = contents.lines().collect();
    let is_choice = |line: &str| {
        let line = line.trim_start().trim_start_matches(['│', '┃']).trim_start();
        line.strip_prefix("❯ ").is_some_and(|rest| {
            let digits = rest.trim_start().trim_start_matches(|c: char| c.is_ascii_digit());
            digits.len() < rest.trim_start().len() && digits.starts_with('.')
        })
    };
    let dialog_at = lines.iter().rposition(|line| is_choice(line));
    let prompt_at =
        lines.iter().rposition(|line| line.trim_start_matches(['│', ' ']).starts_with(PROMPT));
    match (dialog_at, prompt_at) {
        (Some(dialog), prompt) if prompt.is_none_or(|prompt| prompt < dialog) => {
            View::Dialog(named(contents))
        }
        (_, Some(at)) => {
            let first = lines[at].trim_start_matches(['│', ' ']).trim_start_matches(PROMPT);
            let rest = lines[at + 1..].iter().take_while(|line| !is_rule(line));
            let text: Vec<&str> = std::iter::once(first).chain(rest.copied()).collect();
            View::Prompt { text: text.join("\n").trim().to_owned() }
        }
        _ => View::Unknown,
    }
}

/// Returns whether the input box shows this text, or the placeholder of a long paste.
pub fn box_shows(view: &View, typed: &str) -> bool {
    position_in_box(view, typed).is_some()
}

/// Returns whether the input box shows this text or placeholder, and no other text before it.
pub fn box_begins_with(view: &View, typed: &str) -> bool {
    position_in_box(view, typed) == Some(0)
}

/// Returns where the letters and digits of a text begin among those in the input box.
fn position_in_box(view: &View, typed: &str) -> Option<usize> {
    let View::Prompt { text } = view else { return None };
    // A long paste may show its own beginning before the placeholder.
    if text.contains("[Pasted text") {
        return Some(0);
    }
    let wanted: String = gist(typed).chars().take(24).collect();
    // A text without letters and digits is searched as it is.
    if wanted.is_empty() {
        let bare = typed.trim_matches(|c: char| c.is_whitespace() || c == COMMAND_GUARD);
        let at = text.find(bare.lines().next().unwrap_or_default())?;
        return Some(gist(&text[..at]).len());
    }
    gist(text).find(&wanted)
}

/// Returns the last lines of the screen without empty lines, for messages.
pub fn summary(contents: &str) -> String {
    let lines: Vec<&str> =
        contents.lines().map(str::trim).filter(|line| !line.is_empty() && !is_rule(line)).collect();
    let text = lines[lines.len().saturating_sub(12)..].join(" / ");
    text.chars().take(600).collect()
}

fn named(contents: &str) -> Dialog {
    // The text may be wrapped between any two words.
    let flat = contents.split_whitespace().collect::<Vec<_>>().join(" ");
    match DIALOGS.iter().find(|(words, ..)| flat.contains(words)) {
        Some((_, name, advice)) => {
            Dialog { name: (*name).to_owned(), advice: (*advice).to_owned() }
        }
        None => Dialog { name: format!("unknown ({})", summary(contents)), advice: String::new() },
    }
}

fn is_rule(line: &str) -> bool {
    let line = line.trim();
    line.chars().count() >= 8
        && line.chars().all(|c| matches!(c, '─' | '━' | '╭' | '╮' | '╰' | '╯'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompt(text: &str) -> View {
        View::Prompt { text: text.to_owned() }
    }

    #[test]
    fn input_box_and_its_text_are_read() {
        let screen =
            "Claude Code\n\n────────────\n❯\u{a0}hello\n  world\n────────────\n ? for shortcuts";
        assert_eq!(view(screen), prompt("hello\n  world"));
        assert!(box_shows(&view(screen), "hello\nworld"));
        assert!(!box_shows(&view(screen), "other"));
        assert!(box_begins_with(&view(screen), "hello\nworld"));
        assert!(box_shows(&view(screen), "world") && !box_begins_with(&view(screen), "world"));
        assert!(!box_begins_with(&prompt("old ?"), "\u{2800}?"));
        // An earlier prompt stays on the screen above the box.
        let later = format!("❯\u{a0}old\n\n● answer\n{screen}");
        assert_eq!(view(&later), prompt("hello\n  world"));
        let pasted = "────────────\n❯\u{a0}[Pasted text #1 +59 lines]\n────────────";
        assert!(box_shows(&view(pasted), "anything"));
        assert!(box_shows(&prompt("?"), "\u{2800}?"));
        assert_eq!(view("starting up"), View::Unknown);
    }

    #[test]
    fn dialogs_are_named() {
        let check = |screen: &str, name: &str| match view(screen) {
            View::Dialog(dialog) => assert_eq!(dialog.name, name),
            other => panic!("{other:?}"),
        };
        check("Accessing workspace\n\n❯ 1. Yes, I trust this folder\n  2. No", "workspace trust");
        check("Bash command\n Do you want to proceed?\n ❯ 1. Yes\n   3. No", "permission");
        check(
            "WARNING: running in Bypass\nPermissions mode\n❯ 1. No, exit",
            "bypass permissions warning",
        );
        check("Something new\n❯ 1. Go\n", "unknown (Something new / ❯ 1. Go)");
        // A dialog over an older prompt.
        check("❯\u{a0}run it\n\nDo you want to proceed?\n❯ 1. Yes", "permission");
    }

    #[test]
    fn a_numbered_list_in_the_box_is_no_dialog() {
        assert_eq!(view("────────────\n❯\u{a0}1. first\n────────────"), prompt("1. first"));
    }
}
