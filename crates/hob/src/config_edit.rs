//! Changes one setting in `config.toml`, and keeps the rest of the file byte for byte.

use std::io;

use anyhow::Context as _;
use hob_files::owned;
use toml::{Table, Value};

use crate::home::Home;
use crate::settings;

/// Writes a setting. The file stays as it was if the value is not valid, or if the edit would change anything else.
pub fn set(home: &Home, key: &str, text: &str) -> anyhow::Result<()> {
    let path = home.config();
    let before = match owned::read_to_string(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        text => text.with_context(|| format!("cannot read {}", path.display()))?,
    };
    let mut problem = None;
    for value in readings(text) {
        let after = edited(&before, key, &value).with_context(|| {
            format!("{} was not changed: set {key} in it yourself", path.display())
        })?;
        match settings::check_file(&after) {
            Ok(()) => {
                return hob_files::write_over(&path, after.as_bytes(), 0o600)
                    .with_context(|| format!("cannot write {}", path.display()));
            }
            // The first reading is the most likely one.
            Err(error) => problem = problem.or(Some(error)),
        }
    }
    match problem {
        Some(problem) => Err(problem.into()),
        None => anyhow::bail!("{key}: the value must not be empty"),
    }
}

/// Returns what a value may mean: a value of TOML, or a string.
fn readings(text: &str) -> Vec<Value> {
    let as_toml = format!("value = {text}").parse::<Table>().ok();
    let as_toml =
        as_toml.filter(|table| table.len() == 1).and_then(|mut table| table.remove("value"));
    as_toml.into_iter().chain([Value::String(text.to_owned())]).collect()
}

/// Returns the text with the setting, or `None` if a line cannot be changed without changing something else.
fn edited(before: &str, key: &str, value: &Value) -> Option<String> {
    let (section, name) = key.rsplit_once('.').map_or((None, key), |(s, name)| (Some(s), name));
    let mut expected: Table = before.parse().ok()?;
    insert(&mut expected, key, value)?;
    let line = format!("{name} = {value}\n");
    let attempts = [replaced(before, section, name, &line), inserted(before, section, &line)];
    attempts.into_iter().flatten().find(|text| text.parse::<Table>().is_ok_and(|t| t == expected))
}

fn insert(table: &mut Table, key: &str, value: &Value) -> Option<()> {
    match key.split_once('.') {
        None => {
            table.insert(key.to_owned(), value.clone());
            Some(())
        }
        Some((section, rest)) => {
            let inner = table.entry(section).or_insert_with(|| Value::Table(Table::new()));
            insert(inner.as_table_mut()?, rest, value)
        }
    }
}

/// Returns the name of the table that a line begins.
fn header(line: &str) -> Option<&str> {
    let line = line.trim().strip_prefix('[')?;
    Some(line.split(']').next().unwrap_or_default().trim())
}

/// Replaces the line that has the setting.
fn replaced(before: &str, section: Option<&str>, name: &str, line: &str) -> Option<String> {
    let mut current = None;
    let mut at = 0;
    for old in before.split_inclusive('\n') {
        current = header(old).or(current);
        let is_name = old.split_once('=').is_some_and(|(key, _)| key.trim() == name);
        if current == section && header(old).is_none() && is_name {
            return Some(format!("{}{line}{}", &before[..at], &before[at + old.len()..]));
        }
        at += old.len();
    }
    None
}

/// Adds a line to its table, or a table with the line to the end.
fn inserted(before: &str, section: Option<&str>, line: &str) -> Option<String> {
    let Some(section) = section else { return Some(format!("{line}{before}")) };
    let mut at = 0;
    for old in before.split_inclusive('\n') {
        at += old.len();
        if header(old) == Some(section) {
            let gap = if old.ends_with('\n') { "" } else { "\n" };
            return Some(format!("{}{gap}{line}{}", &before[..at], &before[at..]));
        }
    }
    let gap = match before {
        "" => "",
        text if text.ends_with('\n') => "\n",
        _ => "\n\n",
    };
    Some(format!("{before}{gap}[{section}]\n{line}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_setting_changes() {
        let check = |before: &str, key: &str, value: Value, expect: Option<&str>| {
            assert_eq!(edited(before, key, &value).as_deref(), expect, "{before:?}");
        };
        let debug = || Value::String("debug".to_owned());
        check("", "log", debug(), Some("log = \"debug\"\n"));
        check(
            "# mine\nlog = \"info\"\n[a]\n",
            "log",
            debug(),
            Some("# mine\nlog = \"debug\"\n[a]\n"),
        );
        check("[a]\nlog = 1", "log", debug(), Some("log = \"debug\"\n[a]\nlog = 1"));
        let three = || Value::Integer(3);
        check("", "sessions.queue", three(), Some("[sessions]\nqueue = 3\n"));
        check("a = 1", "sessions.queue", three(), Some("a = 1\n\n[sessions]\nqueue = 3\n"));
        let sections = "[sessions] # x\nttl_secs = 1\n[other]\nqueue = 1\n";
        let expect = "[sessions] # x\nqueue = 3\nttl_secs = 1\n[other]\nqueue = 1\n";
        check(sections, "sessions.queue", three(), Some(expect));
        check(
            "[sessions]\nqueue  =  1 # few\n",
            "sessions.queue",
            three(),
            Some("[sessions]\nqueue = 3\n"),
        );
        // These forms are valid TOML, but have no line of their own for the setting.
        check("sessions = { queue = 1 }\n", "sessions.queue", three(), None);
        check("log = \"\"\"\na\n\"\"\"\n", "log", debug(), None);
    }

    #[test]
    fn values_are_read_as_toml_or_as_text() {
        assert_eq!(readings("3")[0], Value::Integer(3));
        assert_eq!(readings("127.0.0.1:1"), [Value::String("127.0.0.1:1".to_owned())]);
        assert_eq!(readings("1\nx = 2"), [Value::String("1\nx = 2".to_owned())]);
    }
}
