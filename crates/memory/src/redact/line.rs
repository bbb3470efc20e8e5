//! Finds secrets by their line: options of commands, and lines of the files from which programs read
//! passwords.

use super::assign::{authorization, bare, quoted};
use super::bytes::{DIGIT, holds, line_start, run_end, starts_at};
use super::finding::Finding;
use super::names::strength;
use super::values::{NameStrength, Style, secret};

/// Returns the secret that follows the word at `from..end`.
pub fn after_word(bytes: &[u8], from: usize, end: usize) -> Option<Finding> {
    match &bytes[from..end] {
        word if word.starts_with(b"--") => option(bytes, from, end),
        word if word.starts_with(b"-p") => password_option(bytes, from, end),
        b"-u" | b"-U" => user_option(bytes, from, end),
        b"Bearer" | b"bearer" | b"SSWS" | b"FlyV1" => {
            let space = bytes.get(end) == Some(&b' ');
            space.then(|| authorization(bytes, from))?.filter(|found| found.range.len() >= 16)
        }
        b"password" | b"passwd" => netrc(bytes, from, end),
        _ => None,
    }
}

/// Returns the value of `--password value` or `--token "value"`. The form with `=` is an assignment.
fn option(bytes: &[u8], from: usize, end: usize) -> Option<Finding> {
    if bytes.get(end) != Some(&b' ') {
        if starts_at(bytes, from, b"--user") {
            return user_option(bytes, from, end);
        }
        return None;
    }
    if &bytes[from..end] == b"--user" {
        return user_option(bytes, from, end);
    }
    let name = strength(&bytes[from + 2..end])?;
    let value = quoted(bytes, end + 1).unwrap_or_else(|| bare(bytes, end + 1));
    let kind = if name == NameStrength::Password { "password" } else { "assigned-secret" };
    let fits = !bytes[value.clone()].starts_with(b"-")
        && secret(name, &bytes[value.clone()], Style::Setting);
    fits.then_some(Finding { range: value, kind })
}

/// Returns the value of `mysql -p'value'` or `sshpass -p value`.
fn password_option(bytes: &[u8], from: usize, end: usize) -> Option<Finding> {
    let before = &bytes[line_start(bytes, from, 300)..from];
    let joined = holds(before, b"mysql") || holds(before, b"mariadb");
    if !joined && !holds(before, b"sshpass") {
        return None;
    }
    let start = if end == from + 2 && !joined { end + 1 } else { from + 2 };
    let value = quoted(bytes, start).unwrap_or_else(|| bare(bytes, start));
    let text = bytes.get(value.clone())?;
    secret(NameStrength::Password, text, Style::Setting)
        .then_some(Finding { range: value, kind: "password" })
}

/// Returns the value of `curl -u name:value`.
fn user_option(bytes: &[u8], from: usize, end: usize) -> Option<Finding> {
    let before = &bytes[line_start(bytes, from, 300)..from];
    if !holds(before, b"curl") || end >= bytes.len() {
        return None;
    }
    let pair = quoted(bytes, end + 1).unwrap_or_else(|| bare(bytes, end + 1));
    let colon = bytes[pair.clone()].iter().position(|&byte| byte == b':')?;
    let value = pair.start + colon + 1..pair.end;
    secret(NameStrength::Password, &bytes[value.clone()], Style::Setting)
        .then_some(Finding { range: value, kind: "password" })
}

/// Returns the value of `machine host login name password value`, on one line or several.
fn netrc(bytes: &[u8], from: usize, end: usize) -> Option<Finding> {
    const MAX_REACH_BYTES: usize = 160;
    if !matches!(bytes.get(end), Some(b' ' | b'\t')) {
        return None;
    }
    let before = &bytes[from.saturating_sub(MAX_REACH_BYTES)..from];
    if !holds(before, b"login ") || !(holds(before, b"machine ") || holds(before, b"default")) {
        return None;
    }
    let start = end + 1;
    let value = bare(bytes, start);
    let text = &bytes[value.clone()];
    (text.len() >= 5 && secret(NameStrength::Password, text, Style::Quoted))
        .then_some(Finding { range: value, kind: "password" })
}

/// Returns the value of `host:port:database:user:value`, a whole line whose first colon is at `colon`.
pub fn pgpass(bytes: &[u8], colon: usize) -> Option<Finding> {
    let port = colon + 1;
    let port_end =
        if bytes.get(port) == Some(&b'*') { port + 1 } else { run_end(bytes, port, DIGIT) };
    if port_end == port || port_end - port > 5 || bytes.get(port_end) != Some(&b':') {
        return None;
    }
    let start = line_start(bytes, colon, 260);
    let host = &bytes[start..colon];
    if host.iter().any(|&byte| byte <= b' ' || byte == b':') || host.is_empty() {
        return None;
    }
    let end = bytes[port_end..].iter().take(300).position(|&byte| byte == b'\n' || byte == b'\r');
    let end = end.map_or(bytes.len(), |length| port_end + length);
    let rest = &bytes[port_end + 1..end];
    let mut colons = rest.iter().enumerate().filter(|&(_, &byte)| byte == b':').map(|(at, _)| at);
    let (database, user) = (colons.next()?, colons.next()?);
    let value = port_end + 1 + user + 1..end;
    let spaced = rest.iter().any(|&byte| byte <= b' ');
    let fits = database > 0
        && user > database + 1
        && !spaced
        && secret(NameStrength::Password, &bytes[value.clone()], Style::Quoted);
    fits.then_some(Finding { range: value, kind: "password" })
}
