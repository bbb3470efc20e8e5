//! Finds hashes of passwords in the forms that programs store them in: crypt(3) and PHC strings, LDAP, MySQL,
//! PostgreSQL, Windows, and web frameworks. A hash of a weak password is as good as the password.

use std::ops::Range;

use super::bytes::{
    ALNUM, DASH, EQUALS, HEX, UNDERSCORE, all, class, class_at, run_end_within, starts_at,
};
use super::entropy::{distinct, look};
use super::finding::Finding;

const KIND: &str = "password-hash";
/// The longest field of a hash; scrypt of Werkzeug has 128 hex digits.
const MAX_FIELD_BYTES: usize = 200;
const MAX_FIELDS: usize = 7;
/// The shortest hash of functions whose length is a parameter.
const MIN_HASH_BYTES: usize = 22;

/// Identifiers between dollar signs, and the length of the last field, as base64 of the function's output.
const FIXED: &[(&[u8], usize)] = &[
    (b"1", 22),
    (b"apr1", 22),
    (b"2", 53),
    (b"2a", 53),
    (b"2b", 53),
    (b"2x", 53),
    (b"2y", 53),
    (b"5", 43),
    (b"6", 86),
    (b"7", 43),
    (b"8", 43),
    (b"9", 43),
    (b"y", 43),
    (b"gy", 43),
    (b"P", 31),
    (b"H", 31),
    (b"S", 52),
    (b"sha1", 28),
];

/// How identifiers begin whose hashes have any length.
const VARIABLE: &[&[u8]] = &[
    b"argon2", b"scrypt", b"pbkdf2", b"bcrypt", b"sm3", b"krb5", b"sha256", b"sha512", b"balloon",
];

/// How hashes begin that have a name before the first dollar sign: Django, Werkzeug, PostgreSQL.
const NAMED: &[&[u8]] = &[
    b"pbkdf2_sha",
    b"pbkdf2:sha",
    b"bcrypt_sha256",
    b"argon2",
    b"scrypt",
    b"SCRAM-SHA-",
    b"md5",
    b"sha1",
    b"sha256",
    b"sha512",
];

/// Schemes of LDAP, between braces.
const SCHEMES: &[&[u8]] = &[
    b"sha",
    b"ssha",
    b"md5",
    b"smd5",
    b"sha256",
    b"ssha256",
    b"sha384",
    b"ssha384",
    b"sha512",
    b"ssha512",
    b"pbkdf2",
    b"pbkdf2-sha1",
    b"pbkdf2-sha256",
    b"pbkdf2-sha512",
    b"scram-sha-256",
    b"x-pbkdf2",
];

/// Returns the hash that the run `start..end` is the first or second part of.
pub fn near(bytes: &[u8], start: usize, end: usize) -> Option<Finding> {
    let before = start.checked_sub(1).map_or(0, |at| bytes[at]);
    match (before, bytes.get(end)) {
        (b'$', Some(b'$' | b'\\')) => modular(bytes, start),
        (b'}', _) => directory(bytes, start),
        (b'*', _) => mysql(bytes, start, end),
        (_, Some(b'$')) => named(bytes, start, end),
        // Identifiers and parameters such as `argon2id$v=19` in one run.
        (b'$', _) => modular(bytes, start),
        _ => None,
    }
}

/// Returns the hashes of LAN Manager and NT in a line of a dump, `name:id:LM:NT:::`, given the colon before the first.
pub fn windows(bytes: &[u8], colon: usize) -> Option<Finding> {
    const DIGITS: usize = 32;
    let middle = colon + 1 + DIGITS;
    let end = middle + 1 + DIGITS;
    if bytes.get(middle) != Some(&b':') || bytes.get(end) != Some(&b':') {
        return None;
    }
    let is_hex = |range: Range<usize>| bytes[range].iter().all(u8::is_ascii_hexdigit);
    (is_hex(colon + 1..middle) && is_hex(middle + 1..end) && bytes.get(end + 1) == Some(&b':'))
        .then_some(Finding { range: colon + 1..end, kind: KIND })
}

/// Returns the length of a dollar sign, which a shell escapes and Docker Compose doubles.
fn separator(bytes: &[u8], at: usize) -> usize {
    match (bytes.get(at), bytes.get(at + 1)) {
        (Some(b'\\'), Some(b'$')) | (Some(b'$'), Some(b'$')) => 2,
        (Some(b'$'), _) => 1,
        _ => 0,
    }
}

fn is_field_byte(byte: u8) -> bool {
    class(byte) & (ALNUM | EQUALS | UNDERSCORE | DASH) != 0 || b"./+,:*".contains(&byte)
}

/// Returns the fields from `from` on, which dollar signs separate.
fn fields(bytes: &[u8], from: usize) -> Vec<Range<usize>> {
    let mut fields = Vec::new();
    let mut at = from;
    while fields.len() < MAX_FIELDS {
        let limit = (at + MAX_FIELD_BYTES).min(bytes.len());
        let end = (at..limit).find(|&at| !is_field_byte(bytes[at])).unwrap_or(limit);
        fields.push(at..end);
        let length = separator(bytes, end);
        if length == 0 || end == at {
            break;
        }
        at = end + length;
    }
    fields
}

/// Returns where the last field ends without the punctuation of a sentence, if it is a hash of this length.
fn hash_end(bytes: &[u8], field: &Range<usize>, length: Option<usize>) -> Option<usize> {
    let mut end = field.end;
    // In `/etc/shadow`, colons follow.
    if let Some(colon) = bytes[field.clone()].iter().position(|&byte| byte == b':')
        && length.is_some()
    {
        end = field.start + colon;
    }
    if length.is_some_and(|length| end == field.start + length + 1)
        && b".,".contains(&bytes[end - 1])
    {
        end -= 1;
    }
    while length.is_none() && end > field.start && b".,:".contains(&bytes[end - 1]) {
        end -= 1;
    }
    let hash = &bytes[field.start..end];
    let has_length = length.map_or(hash.len() >= MIN_HASH_BYTES, |length| hash.len() == length);
    let seen = look(hash);
    (has_length && distinct(hash) >= 10 && seen.digits + seen.upper > 0 && seen.changes >= 4)
        .then_some(end)
}

/// Returns a hash such as `$6$salt$hash` whose identifier begins at `start`.
fn modular(bytes: &[u8], start: usize) -> Option<Finding> {
    // A variable or a pattern such as `$1` ends here.
    if start < 1
        || !matches!(
            bytes[start],
            b'0'..=b'9' | b'a' | b's' | b'p' | b'b' | b'k' | b'y' | b'g' | b'P' | b'H' | b'S'
        )
    {
        return None;
    }
    let id = &bytes[start..run_end_within(bytes, start, ALNUM | DASH, 24)];
    let fixed = FIXED.iter().find(|(known, _)| *known == id).map(|&(_, length)| length);
    if fixed.is_none() && !VARIABLE.iter().any(|known| id.starts_with(known)) {
        return None;
    }
    let fields = fields(bytes, start);
    let least = if matches!(id, b"P" | b"H" | b"S") { 2 } else { 3 };
    // Text may follow a hash of a known length and its dollar sign, so each field may be the last.
    let end =
        fields.iter().skip(least - 1).rev().find_map(|field| hash_end(bytes, field, fixed))?;
    let mut from = start - 1;
    if from > 0 && matches!(bytes[from - 1], b'\\' | b'$') {
        from -= 1;
    }
    Some(Finding { range: from..end, kind: KIND })
}

/// Returns a hash such as `pbkdf2_sha256$600000$salt$hash` whose name ends the run `start..end`.
fn named(bytes: &[u8], start: usize, end: usize) -> Option<Finding> {
    // A name and a sign that assigns may be in the run, too.
    let begins = |&at: &usize| at == start || matches!(bytes[at - 1], b'=' | b':');
    let is_known = |&at: &usize| NAMED.iter().any(|known| starts_at(&bytes[..end], at, known));
    let from = (start..end).filter(begins).find(is_known)?;
    let fields = fields(bytes, from);
    let last = fields.last().filter(|_| fields.len() >= 3)?;
    Some(Finding { range: from..hash_end(bytes, last, None)?, kind: KIND })
}

/// Returns a hash such as `{SSHA}hash`, given where it begins after the brace.
fn directory(bytes: &[u8], start: usize) -> Option<Finding> {
    const MAX_SCHEME_BYTES: usize = 16;
    let close = start - 1;
    let floor = close.saturating_sub(MAX_SCHEME_BYTES);
    let open = floor + bytes[floor..close].iter().rposition(|&byte| byte == b'{')?;
    let scheme = bytes[open + 1..close].to_ascii_lowercase();
    if !SCHEMES.contains(&scheme.as_slice()) {
        return None;
    }
    let last = fields(bytes, start).pop()?;
    Some(Finding { range: open..hash_end(bytes, &last, None)?, kind: KIND })
}

/// Returns a hash of MySQL, an asterisk and 40 capital hex digits.
fn mysql(bytes: &[u8], start: usize, end: usize) -> Option<Finding> {
    let hash = &bytes[start..end];
    let is_hex = |&byte: &u8| byte.is_ascii_digit() || (b'A'..=b'F').contains(&byte);
    let is_joined = start >= 2 && class(bytes[start - 2]) & ALNUM != 0;
    (hash.len() == 40
        && !is_joined
        && hash.iter().all(is_hex)
        && !all(hash, HEX)
        && distinct(hash) >= 8)
        .then_some(Finding { range: start - 1..end, kind: KIND })
        .filter(|_| class_at(bytes, end) & ALNUM == 0)
}

#[cfg(test)]
mod tests {
    use crate::redact::mask;

    /// Returns a text that looks like a hash, of a length.
    fn hash(length: usize) -> String {
        "kQ7v.Zt3/Xb9Lm0Wc5RyH8uPd2".chars().cycle().take(length).collect()
    }

    fn check(input: &str, expect: &str) {
        assert_eq!(mask(input).text, expect, "from {input}");
    }

    #[test]
    fn password_hashes_are_masked() {
        let hex = "9f3ac27be1045d68".repeat(4);
        for secret in [
            format!("$1$Kq8vNw2x${}", hash(22)),
            format!("$apr1$Kq8vNw2x${}", hash(22)),
            format!("$2b$12${}", hash(53)),
            format!("\\$2y\\$10\\${}", hash(53)),
            format!("$$2y$$10$${}", hash(53)),
            format!("$5$rounds=5000$saltsalt${}", hash(43)),
            format!("$6$saltsalt${}", hash(86)),
            format!("$y$j9T$F5Jx5fExrKuPp53xLKQ..1${}", hash(43)),
            format!("$P$B{}", hash(30)),
            format!("$S$D{}", hash(51)),
            format!("$argon2id$v=19$m=65536,t=3,p=4$c2FsdHNhbHQ${}", hash(43).replace('.', "+")),
            format!("$scrypt$ln=16,r=8,p=1$c2FsdA${}", hash(43)),
            format!("$pbkdf2-sha256$29000$c2FsdA${}", hash(43)),
            format!("pbkdf2_sha256$600000$saltsalt${}=", hash(43)),
            format!("pbkdf2:sha256:260000$salt${hex}"),
            format!("scrypt:32768:8:1$salt${hex}{hex}"),
            format!("argon2$argon2id$v=19$m=102400,t=2,p=8$c2FsdA${}", hash(43)),
            format!("SCRAM-SHA-256$4096:c2FsdA==${}=:{}=", hash(43), hash(43)),
            format!("{{SSHA}}{}", hash(32).replace('.', "+")),
            format!("*{}", "2470C0C06DEE42FD1618BB99005ADCA2EC9D1E19"),
            format!("AQAAAAIAAYagAAAAE{}==", hash(65).replace('.', "+")),
        ] {
            check(&format!("joe:{secret}"), "joe:[secret:password-hash]");
            check(&format!("it is '{secret}'"), "it is '[secret:password-hash]'");
            check(&format!("see {secret}, please"), "see [secret:password-hash], please");
        }
        let line = format!("joe:$6$saltsalt${}:19000:0:99999:7:::", hash(86));
        check(&line, "joe:[secret:password-hash]:19000:0:99999:7:::");
        let pair = "aad3b435b51404eeaad3b435b51404ee:5835048ce94ad0564e29a924a03510ef";
        check(&format!("joe:1001:{pair}:::"), "joe:1001:[secret:password-hash]:::");
    }

    #[test]
    fn dollar_signs_and_braces_of_code_are_not_masked() {
        for text in [
            "s/(a)(b)/$1$2$1$2$1$2$1$2$1$2/",
            "`$2y$10$...`",
            "regex.replace(\"$6$name$value\")",
            "$5$ and $6$ name the function",
            "echo \"$a$b$sha256$password\"",
            "{SHA} is an old scheme",
            "f\"{sha256}-{version}-linux-x86_64-unknown-musl.tar.gz\"",
            "${SHA256}abcdefghijklmnopqrstuvwxyz",
            "*0123456789",
        ] {
            check(text, text);
        }
    }
}
