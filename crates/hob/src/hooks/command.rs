//! The command line of a hook: how ours is written, and how ours is told from everybody else's.

/// The commands of Hob that a client calls as a hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subcommand {
    SessionStart,
    CaptureTurn,
}

impl Subcommand {
    pub fn name(self) -> &'static str {
        match self {
            Self::SessionStart => "session-start",
            Self::CaptureTurn => "capture-turn",
        }
    }
}

/// A command line that runs Hob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HobCommand {
    /// The program as it would be run, without quotes.
    pub program: String,
    pub subcommand: Subcommand,
    /// What follows the program, with the blank before it.
    pub rest: String,
}

/// The file name by which a program counts as Hob.
pub const PROGRAM_NAME: &str = "hob";

/// The command line that runs `subcommand`.
pub fn command_line(program: &str, subcommand: Subcommand) -> String {
    format!("{} {}", quoted(program), subcommand.name())
}

/// The text as one word of a POSIX shell; plain words stay as they are, because people read them.
pub fn quoted(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_@%+=:,./-".contains(&byte);
    if !word.is_empty() && word.bytes().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Reads a command line as one of ours: its program is called `hob` and its last word is one of
/// the hook commands. Options between the two are somebody's own choice and stay ours.
///
/// Anything with pipes, lists, redirections or substitutions does more than run Hob, so it belongs
/// to the person who wrote it.
pub fn recognise(command: &str) -> Option<HobCommand> {
    let words = words(command)?;
    let [(program, program_end), .., (last, _)] = words.as_slice() else { return None };
    let subcommand = [Subcommand::SessionStart, Subcommand::CaptureTurn]
        .into_iter()
        .find(|subcommand| subcommand.name() == last)?;
    let file_name = program.rsplit('/').next()?;
    (file_name == PROGRAM_NAME).then(|| HobCommand {
        program: program.clone(),
        subcommand,
        rest: command[*program_end..].trim_end().to_owned(),
    })
}

/// Splits a simple command into words without quotes, each with the place where it ends.
fn words(command: &str) -> Option<Vec<(String, usize)>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut characters = command.char_indices().peekable();
    while let Some((at, character)) = characters.next() {
        match character {
            ' ' | '\t' => words.extend(word.take().map(|word| (word, at))),
            ';' | '|' | '&' | '<' | '>' | '(' | ')' | '`' | '\n' | '\r' => return None,
            '#' if word.is_none() => return None,
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match characters.next()?.1 {
                        '\'' => break,
                        quoted => word.push(quoted),
                    }
                }
            }
            '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match characters.next()?.1 {
                        '"' => break,
                        '`' => return None,
                        '\\' => match characters.next()?.1 {
                            escaped @ ('"' | '\\' | '$' | '`') => word.push(escaped),
                            other => word.extend(['\\', other]),
                        },
                        quoted => word.push(quoted),
                    }
                }
            }
            '\\' => word.get_or_insert_default().push(characters.next()?.1),
            plain => word.get_or_insert_default().push(plain),
        }
    }
    words.extend(word.map(|word| (word, command.len())));
    Some(words)
}
