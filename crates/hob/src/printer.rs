//! Prints to standard output and standard error.
//!
//! Most of what commands print was written by others: agents, apps, transcripts, file names. Control characters in it
//! could move the cursor, change the clipboard or forge a question. So all output passes through here, and only line
//! feeds and tabs remain. A reader that closes the pipe early ends the command quietly. An output that cannot be written
//! for another reason, such as a full disk, ends it with an error.

use std::borrow::Cow;
use std::io::{self, Write};

use serde_json::Value;

/// Prints a line to standard output.
macro_rules! outln {
    () => { $crate::printer::out("\n") };
    ($($part:tt)*) => { $crate::printer::out(&format!("{}\n", format_args!($($part)*))) };
}

/// Prints a line to standard error.
macro_rules! errln {
    ($($part:tt)*) => { $crate::printer::err(&format!("{}\n", format_args!($($part)*))) };
}

pub(crate) use {errln, outln};

/// Prints text to standard output.
pub fn out(text: &str) {
    write_out(&clean(text));
}

/// Prints text to standard error.
pub fn err(text: &str) {
    // There is no other place to report an error of standard error.
    let _ = write(io::stderr().lock(), &clean(text));
}

/// Prints the output of a hook, which must not fail for it.
pub fn try_out(text: &str) {
    let _ = write(io::stdout().lock(), &clean(text));
}

/// Prints a JSON value as one line to standard output. Characters that a terminal might act on are escaped, so that
/// nothing of the value is lost.
pub fn out_json(value: &Value) {
    write_out(&json_line(value));
}

/// Returns a JSON value as one line, with its line feed, as [`out_json`] prints it.
pub fn json_line(value: &Value) -> String {
    format!("{}\n", escaped(&value.to_string()))
}

/// Prints what Hob itself has drawn, with its escape sequences.
pub fn out_drawing(text: &str) {
    write_out(text);
}

/// Ends the process because standard output cannot be written: quietly if nobody reads it any more, else with an error.
pub fn end_unwritten(error: &io::Error) -> ! {
    if error.kind() == io::ErrorKind::BrokenPipe {
        std::process::exit(0);
    }
    err(&format!("hob: cannot write the output: {error}\n"));
    std::process::exit(1);
}

/// Removes control characters except line feeds and tabs.
pub fn clean(text: &str) -> Cow<'_, str> {
    let is_kept = |c: char| matches!(c, '\n' | '\t') || !acts(c);
    match text.chars().all(is_kept) {
        true => Cow::Borrowed(text),
        false => Cow::Owned(text.chars().filter(|c| is_kept(*c)).collect()),
    }
}

/// Removes control characters and joins lines, for a text that must not look like several lines.
pub fn one_line(text: &str) -> String {
    let text: String = text.chars().map(|c| if c.is_whitespace() { ' ' } else { c }).collect();
    clean(&text).into_owned()
}

/// Escapes characters that a terminal might act on. The text is JSON, in which they occur only inside of strings.
fn escaped(json: &str) -> Cow<'_, str> {
    if !json.chars().any(acts) {
        return Cow::Borrowed(json);
    }
    let mut out = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        match acts(c) {
            // All of them are in the basic plane.
            true => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            false => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// Returns whether a terminal might act on a character instead of showing it: control characters, and those that change
/// the direction of the text after them.
fn acts(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}')
}

/// Writes to standard output. Ends the process quietly if nobody reads it any more, and with an error if it cannot be
/// written for another reason.
fn write_out(text: &str) {
    if let Err(error) = write(io::stdout().lock(), text) {
        end_unwritten(&error);
    }
}

fn write(mut stream: impl Write, text: &str) -> io::Result<()> {
    stream.write_all(text.as_bytes()).and_then(|()| stream.flush())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn control_characters_are_removed() {
        let hostile = "a\x1b]52;c;eA==\x07b\r\u{9b}2K\u{202e}c\x7f\n\td\x00";
        assert_eq!(clean(hostile), "a]52;c;eA==b2Kc\n\td");
        assert_eq!(one_line("rm\r\n-rf\t~"), "rm  -rf ~");
        assert!(matches!(clean("plain text ü 日本"), Cow::Borrowed(_)));
    }

    #[test]
    fn json_keeps_its_value() {
        let value = json!({"text": "a\u{9b}b\x1b\u{202e}\x7f\n"});
        let line = escaped(&value.to_string()).into_owned();
        assert!(!line.chars().any(acts), "{line}");
        assert_eq!(serde_json::from_str::<Value>(&line).unwrap(), value);
    }
}
