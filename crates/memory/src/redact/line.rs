//! Finds secrets by their line: options of commands, and lines of the files from which programs read
//! passwords.

use std::ops::Range;

use super::assign::authorization;
use super::assigned_value::{bare, quoted};
use super::bytes::{
    ALNUM, DASH, DIGIT, DOT, class, class_at, find_in, holds, line_end, line_start, run_end,
    starts_at,
};
use super::entropy::look;
use super::finding::Finding;
use super::names::strength;
use super::values::{NameStrength, Style, secret};

/// Returns the secret that follows the word at `from..end`.
pub fn after_word(bytes: &[u8], from: usize, end: usize) -> Option<Finding> {
    // Nearly all words end here.
    if !matches!(bytes[from], b'-' | b'B' | b'b' | b'S' | b'F' | b'p') {
        return None;
    }
    match &bytes[from..end] {
        b"--password-stdin" | b"--stdin" | b"--passphrase-fd" | b"-S" => piped(bytes, from),
        b"-auth" | b"--auth" | b"--creds" | b"--credentials" | b"--basic-auth" | b"--http-auth" => {
            pair_option(bytes, end)
        }
        word if word.starts_with(b"--") => option(bytes, from, end),
        word if word.starts_with(b"-pass") => long_option(bytes, from, end),
        b"-p" => password_option(bytes, from, end).or_else(|| short_option(bytes, from, end)),
        b"-macopt" => openssl_key(bytes, end),
        word if word.starts_with(b"-p") => password_option(bytes, from, end),
        b"-u" | b"-U" => user_option(bytes, from, end),
        b"Bearer" | b"bearer" | b"SSWS" | b"FlyV1" => {
            let space = bytes.get(end) == Some(&b' ');
            space.then(|| authorization(bytes, from))?.filter(|found| found.range.len() >= 16)
        }
        b"password" | b"passwd" => netrc(bytes, from, end),
        word if word.len() <= MAX_SHORT_OPTION_BYTES && word.starts_with(b"-") => {
            short_option(bytes, from, end).or_else(|| long_option(bytes, from, end))
        }
        word if word.starts_with(b"-") => long_option(bytes, from, end),
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

/// Returns the value of `-storepass value` or `-passin pass:value`.
fn long_option(bytes: &[u8], from: usize, end: usize) -> Option<Finding> {
    if bytes.get(end) != Some(&b' ') {
        return None;
    }
    let is_openssl = matches!(&bytes[from..end], b"-passin" | b"-passout" | b"-pass");
    if !is_openssl && strength(&bytes[from + 1..end]) != Some(NameStrength::Password) {
        return None;
    }
    let mut start = end + 1;
    let mark = if is_openssl && starts_at(bytes, start, b"pass:") { 5 } else { 0 };
    if is_openssl && mark == 0 {
        return None;
    }
    start += mark;
    let value = quoted(bytes, start).unwrap_or_else(|| bare(bytes, start));
    is_password(bytes, &value).then_some(Finding { range: value, kind: "password" })
}

/// The length of the longest of [`SHORT_OPTIONS`].
const MAX_SHORT_OPTION_BYTES: usize = 5;

/// The commands that take a password as a short option.
const SHORT_OPTIONS: &[(&[u8], &[&[u8]])] = &[
    (b"-a", &[b"redis-cli", b"keydb-cli", b"valkey-cli"]),
    (b"-w", &[b"ldap"]),
    (b"-k", &[b"openssl enc", b"openssl aes"]),
    (b"-K", &[b"openssl"]),
    (b"-hmac", &[b"openssl"]),
    (b"-psk", &[b"openssl"]),
    (b"-N", &[b"ssh-keygen"]),
    (b"-P", &[b"zip ", b"sqlcmd", b"bcp ", b"ipmitool", b"mosquitto_", b"ssh-keygen", b"tsql"]),
    (b"-A", &[b"snmp"]),
    (b"-X", &[b"snmp"]),
    (b"-pw", &[b"plink", b"pscp", b"psftp", b"putty"]),
    (
        b"-p",
        &[
            b"login",
            b"twine",
            b"htpasswd",
            b"az ",
            b"mongo",
            b"clickhouse",
            b"isql",
            b"rabbitmq",
            b"cqlsh",
            b"influx",
        ],
    ),
];

/// Returns the value of `redis-cli -a value` and similar.
fn short_option(bytes: &[u8], from: usize, end: usize) -> Option<Finding> {
    let option = &bytes[from..end];
    let (_, commands) = SHORT_OPTIONS.iter().find(|(known, _)| *known == option)?;
    let before = &bytes[line_start(bytes, from, 300)..from];
    if bytes.get(end) != Some(&b' ') || !commands.iter().any(|command| holds(before, command)) {
        return None;
    }
    let value = quoted(bytes, end + 1).unwrap_or_else(|| bare(bytes, end + 1));
    is_password(bytes, &value).then_some(Finding { range: value, kind: "password" })
}

/// Returns the value of `-auth name:value`.
fn pair_option(bytes: &[u8], end: usize) -> Option<Finding> {
    if !matches!(bytes.get(end), Some(b' ' | b'=')) {
        return None;
    }
    let pair = quoted(bytes, end + 1).unwrap_or_else(|| bare(bytes, end + 1));
    let colon = bytes[pair.clone()].iter().position(|&byte| byte == b':')?;
    let value = pair.start + colon + 1..pair.end;
    let is_name = colon > 0 && bytes.get(value.start) != Some(&b'/');
    (is_name && is_password(bytes, &value)).then_some(Finding { range: value, kind: "password" })
}

/// Returns the value of `-macopt hexkey:value`.
fn openssl_key(bytes: &[u8], end: usize) -> Option<Finding> {
    let value = bare(bytes, end + 1);
    let text = &bytes[value.clone()];
    let mark = [&b"hexkey:"[..], b"key:"].iter().find(|mark| text.starts_with(mark))?.len();
    let value = value.start + mark..value.end;
    is_password(bytes, &value).then_some(Finding { range: value, kind: "password" })
}

/// Returns the value of `echo value | sudo -S`, given the option that reads it.
fn piped(bytes: &[u8], from: usize) -> Option<Finding> {
    let start = line_start(bytes, from, 300);
    let before = &bytes[start..from];
    let pipe = before.iter().rposition(|&byte| byte == b'|')?;
    let reads = [&b"sudo"[..], b"login", b"passwd", b"gpg", b"cryptsetup", b"su "];
    if !reads.iter().any(|command| holds(&before[pipe..], command)) {
        return None;
    }
    let echo = [&b"echo "[..], b"printf "].iter().find_map(|command| {
        find_in(bytes, start..start + pipe, command).map(|at| at + command.len())
    })?;
    let mut value_start = echo;
    while starts_at(bytes, value_start, b"-n ") || starts_at(bytes, value_start, b"-e ") {
        value_start += 3;
    }
    let value = quoted(bytes, value_start).unwrap_or_else(|| bare(bytes, value_start));
    is_password(bytes, &value).then_some(Finding { range: value, kind: "password" })
}

fn is_password(bytes: &[u8], value: &Range<usize>) -> bool {
    bytes
        .get(value.clone())
        .is_some_and(|text| secret(NameStrength::Password, text, Style::Setting))
}

/// Returns the content of `<password>value</password>` or `<item name="password">value</item>`, given the name.
pub fn element(bytes: &[u8], start: usize, end: usize) -> Option<Finding> {
    const MAX_VALUE_BYTES: usize = 300;
    let before = start.checked_sub(1).map(|at| bytes[at]);
    let is_attribute = bytes.get(end) == Some(&b'"') && before == Some(b'"');
    if before != Some(b'<') && !is_attribute {
        return None;
    }
    let name = strength(&bytes[start..end])?;
    let value_start = end + 1 + usize::from(is_attribute);
    let limit = (value_start + MAX_VALUE_BYTES).min(bytes.len());
    let close = find_in(bytes, value_start..limit, b"</")?;
    let value = value_start..close;
    let kind = if name == NameStrength::Password { "password" } else { "assigned-secret" };
    secret(name, &bytes[value.clone()], Style::Quoted).then_some(Finding { range: value, kind })
}

/// Commands whose last argument is a password, and how many arguments precede it.
const POSITIONAL: &[(&[u8], usize)] =
    &[(b"wpa_passphrase ", 1), (b"htpasswd -b ", 2), (b"htpasswd -bc ", 2), (b"net user ", 1)];

/// Returns the password among the arguments of the command that begins at `from`.
pub fn command(bytes: &[u8], from: usize) -> Option<Finding> {
    const MAX_LINE_BYTES: usize = 300;
    // Nearly all words end here.
    if !matches!(
        bytes.get(from..from + 4)?,
        b"wpa_" | b"htpa" | b"net " | b"sqlp" | b"rman" | b"chpa"
    ) {
        return None;
    }
    let end = line_end(bytes, from, MAX_LINE_BYTES);
    let rest = &bytes[from..end];
    if rest.starts_with(b"sqlplus ") || rest.starts_with(b"rman ") {
        let slash = from + rest.iter().position(|&byte| byte == b'/')?;
        let value_end =
            slash + 1 + bytes[slash + 1..end].iter().position(|&b| b <= b' ' || b == b'@')?;
        let value = slash + 1..value_end;
        return is_password(bytes, &value).then_some(Finding { range: value, kind: "password" });
    }
    if rest.starts_with(b"chpasswd") {
        let start = line_start(bytes, from, MAX_LINE_BYTES);
        let echo = find_in(bytes, start..from, b"echo ")? + 5;
        let pair = quoted(&bytes[..end], echo).unwrap_or_else(|| bare(&bytes[..end], echo));
        let colon = pair.start + bytes[pair.clone()].iter().position(|&byte| byte == b':')? + 1;
        return is_password(bytes, &(colon..pair.end))
            .then_some(Finding { range: colon..pair.end, kind: "password" });
    }
    let (name, skipped) = POSITIONAL.iter().find(|(name, _)| rest.starts_with(name))?;
    let mut at = from + name.len();
    for _ in 0..*skipped {
        at += bytes[at..end].iter().position(|&byte| byte == b' ')? + 1;
    }
    let value = quoted(&bytes[..end], at).unwrap_or_else(|| bare(&bytes[..end], at));
    is_password(bytes, &value).then_some(Finding { range: value, kind: "password" })
}

/// Returns the value of `mysql -p'value'` or `sshpass -p value`.
fn password_option(bytes: &[u8], from: usize, end: usize) -> Option<Finding> {
    let before = &bytes[line_start(bytes, from, 300)..from];
    let commands = [&b"mysql"[..], b"mariadb", b"7z ", b"7za ", b"rar "];
    let joined = commands.iter().any(|command| holds(before, command));
    if !joined && !holds(before, b"sshpass") {
        return None;
    }
    let start = if end == from + 2 && !joined { end + 1 } else { from + 2 };
    let value = quoted(bytes, start).unwrap_or_else(|| bare(bytes, start));
    let text = bytes.get(value.clone())?;
    secret(NameStrength::Password, text, Style::Setting)
        .then_some(Finding { range: value, kind: "password" })
}

/// Returns the value of `curl -u name:value` or `smbclient -U name%value`.
fn user_option(bytes: &[u8], from: usize, end: usize) -> Option<Finding> {
    let before = &bytes[line_start(bytes, from, 300)..from];
    let separator = match () {
        () if end >= bytes.len() => return None,
        () if holds(before, b"curl") || holds(before, b"http") => b':',
        () if holds(before, b"smb") || holds(before, b"rpcclient") => b'%',
        () => return None,
    };
    let pair = quoted(bytes, end + 1).unwrap_or_else(|| bare(bytes, end + 1));
    let colon = bytes[pair.clone()].iter().position(|&byte| byte == separator)?;
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

/// Returns the value of a field whose name is one letter, given its colon: `P:value` in the code of a wireless network,
/// `/p:value` of a client for remote desktops.
pub fn lettered(bytes: &[u8], colon: usize) -> Option<Finding> {
    let name = bytes.get(colon.checked_sub(2)?..colon)?;
    let before = || &bytes[line_start(bytes, colon, 300)..colon];
    let value = match name {
        b";P" | b":P" if holds(before(), b"wifi:") => {
            let end = line_end(bytes, colon, 80);
            let stop = bytes[colon..end].iter().position(|&byte| byte == b';')?;
            colon + 1..colon + stop
        }
        b"/p" if holds(before(), b"rdp") => {
            quoted(bytes, colon + 1).unwrap_or_else(|| bare(bytes, colon + 1))
        }
        _ => return None,
    };
    is_password(bytes, &value).then_some(Finding { range: value, kind: "password" })
}

/// Returns the password of `name:value@host` without a scheme, given the colon.
pub fn credentials(bytes: &[u8], colon: usize) -> Option<Finding> {
    const MAX_VALUE_BYTES: usize = 64;
    if class_at(bytes, colon.checked_sub(1)?) & ALNUM == 0
        || class_at(bytes, colon + 1) & ALNUM == 0
    {
        return None;
    }
    let mut from = colon + 1;
    let limit = (from + MAX_VALUE_BYTES).min(bytes.len());
    let stops = |byte: u8| byte <= b' ' || b"@\"'`,:<>()[]{}".contains(&byte);
    let sign = (from..limit).find(|&at| stops(bytes[at])).filter(|&at| bytes[at] == b'@')?;
    if bytes[..colon].ends_with(b"thin") {
        from += bytes[from..sign].iter().position(|&byte| byte == b'/')? + 1;
    }
    let value = from..sign;
    let host_end = run_end(bytes, sign + 1, ALNUM | DOT | DASH);
    let host = &bytes[sign + 1..host_end];
    let dots = host.iter().filter(|&&byte| byte == b'.').count();
    let is_number = host.iter().all(|&byte| class(byte) & (DIGIT | DOT) != 0);
    // A version after a package, or a digest after an image, is no host.
    let is_host = match host {
        b"tcp" | b"unix" => bytes.get(host_end) == Some(&b'('),
        b"localhost" => true,
        _ if is_number => dots == 3,
        _ => dots > 0 || from > colon + 1,
    };
    let seen = look(&bytes[value.clone()]);
    let is_mixed = seen.digits > 0 && seen.letters() >= 4 && seen.length >= 8;
    (is_host && is_mixed && !value_is_path(&bytes[value.clone()]) && is_password(bytes, &value))
        .then_some(Finding { range: value, kind: "password" })
}

fn value_is_path(value: &[u8]) -> bool {
    value.contains(&b'/') || value.contains(&b'.')
}
