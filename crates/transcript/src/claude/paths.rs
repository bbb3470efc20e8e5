//! Where Claude Code stores a session's transcript.

use std::path::{Path, PathBuf};

/// The CLI cuts longer folder names and appends a hash.
const MAX_NAME_BYTES: usize = 200;

/// Returns the transcript of a session in `cwd` (a real path, symlinks resolved), below the
/// configuration folder (`$CLAUDE_CONFIG_DIR`, or `~/.claude`).
pub fn transcript_path(config: &Path, cwd: &Path, session: &str) -> PathBuf {
    config
        .join("projects")
        .join(folder_name(&cwd.to_string_lossy()))
        .join(format!("{session}.jsonl"))
}

/// Returns the folder name for a path: every UTF-16 unit that is not an ASCII letter or digit becomes
/// a dash.
fn folder_name(path: &str) -> String {
    let name: String = path
        .encode_utf16()
        .map(|unit| match u8::try_from(unit) {
            Ok(byte) if byte.is_ascii_alphanumeric() => char::from(byte),
            _ => '-',
        })
        .collect();
    if name.len() <= MAX_NAME_BYTES {
        return name;
    }
    let hash = path
        .encode_utf16()
        .fold(0i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)));
    format!("{}-{}", &name[..MAX_NAME_BYTES], base36(hash.unsigned_abs()))
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
    fn folder_names_are_those_of_the_cli() {
        let check = |path: &str, expect: &str| assert_eq!(folder_name(path), expect);
        check("/srv/m/a.b_c d", "-srv-m-a-b-c-d");
        check("/日本語", "----");
        check("/🎉", "---");
        check("/e\u{301}", "-e-");
        let path = transcript_path(Path::new("/c"), Path::new("/srv/x"), "id");
        assert_eq!(path, PathBuf::from("/c/projects/-srv-x/id.jsonl"));
    }

    #[test]
    fn long_folder_names_are_cut_and_hashed() {
        let long = format!("/{}", "d/".repeat(150));
        let name = folder_name(&long);
        assert!(name.len() > 201 && name.len() <= 201 + 7, "{name}");
        assert_ne!(folder_name(&format!("{long}x"))[201..], name[201..]);
        assert_eq!(base36(0), "0");
        assert_eq!(base36(35 * 36 + 1), "z1");
    }
}
