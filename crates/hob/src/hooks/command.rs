//! The command line of a hook: how Hob writes its own, and how it recognises it.

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
    /// The program, without quotes.
    pub program: String,
    pub subcommand: Subcommand,
    /// The rest of the command line after the program, with the space before it.
    pub rest: String,
}

/// The file name by which Hob recognises its own program.
pub const PROGRAM_NAME: &str = "hob";

/// Returns the command line that runs `subcommand`.
pub fn command_line(program: &str, subcommand: Subcommand) -> String {
    format!("{} {}", quoted(program), subcommand.name())
}

/// Quotes a word for a POSIX shell. Plain words stay unquoted, because they are easier to read.
pub fn quoted(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_@%+=:,./-".contains(&byte);
    if !word.is_empty() && word.bytes().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Recognises a command line of Hob: the file name of its program is `hob` and its last word is a
/// hook command. The user may have added options between the two.
///
/// A command line with pipes, lists, redirections or substitutions does more than run Hob, so it
/// belongs to the user.
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

/// Splits a simple command into unquoted words, each with the offset of its end. Returns `None` for
/// other commands.
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
