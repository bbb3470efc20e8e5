//! Where Claude Code keeps a session's transcript.

use std::path::{Path, PathBuf};

/// Folder names longer than this are cut and get a hash.
const NAME_LIMIT: usize = 200;

/// The transcript of a session that works in `cwd` (a real path, symlinks resolved), below the
/// configuration folder (`$CLAUDE_CONFIG_DIR`, or `~/.claude`).
pub fn transcript(config: &Path, cwd: &Path, session: &str) -> PathBuf {
    config.join("projects").join(munged(&cwd.to_string_lossy())).join(format!("{session}.jsonl"))
}

/// The folder's name for a path: every UTF-16 unit that is no ASCII letter or digit becomes a dash.
fn munged(path: &str) -> String {
    let name: String = path
        .encode_utf16()
        .map(|unit| match u8::try_from(unit) {
            Ok(byte) if byte.is_ascii_alphanumeric() => char::from(byte),
            _ => '-',
        })
        .collect();
    if name.len() <= NAME_LIMIT {
        return name;
    }
    let hash = path
        .encode_utf16()
        .fold(0i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)));
    format!("{}-{}", &name[..NAME_LIMIT], base36(hash.unsigned_abs()))
}

fn base36(mut number: u32) -> String {
    let mut digits = Vec::new();
    loop {
        digits.push(char::from_digit(number % 36, 36).unwrap_or('0'));
        number /= 36;
        if number == 0 {
            return digits.iter().rev().collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_as_the_cli_makes_them() {
        let check = |path: &str, expect: &str| assert_eq!(munged(path), expect);
        check("/srv/m/a.b_c d", "-srv-m-a-b-c-d");
        check("/日本語", "----");
        check("/🎉", "---");
        check("/e\u{301}", "-e-");
        let path = transcript(Path::new("/c"), Path::new("/srv/x"), "id");
        assert_eq!(path, PathBuf::from("/c/projects/-srv-x/id.jsonl"));
    }

    #[test]
    fn long_names_are_cut_and_hashed() {
        let long = format!("/{}", "d/".repeat(150));
        let name = munged(&long);
        assert!(name.len() > 201 && name.len() <= 201 + 7, "{name}");
        assert_ne!(munged(&format!("{long}x"))[201..], name[201..]);
        assert_eq!(base36(0), "0");
        assert_eq!(base36(35 * 36 + 1), "z1");
    }
}
