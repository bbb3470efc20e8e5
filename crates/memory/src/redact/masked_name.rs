//! Names of sessions, records and folders without their secrets.

use hob_domain::memory::TurnKey;

use super::mask::mask;

/// Returns the name of a session, record or folder without its secrets. A digest distinguishes two
/// names that differ in nothing but their secrets.
pub(crate) fn masked_name(name: &str) -> String {
    if is_opencode_id(name) {
        return name.to_owned();
    }
    let masked = mask(name);
    if masked.originals.is_empty() {
        return masked.text;
    }
    let digest = TurnKey::of(&["name", name]).to_hex();
    format!("{}#{}", masked.text, &digest[..8])
}

/// Returns whether a name is an id of OpenCode: a time as 12 hexadecimal digits, and 14 random
/// characters. It looks like a key but opens nothing.
fn is_opencode_id(name: &str) -> bool {
    let id = name.strip_prefix("ses_").or_else(|| name.strip_prefix("msg_")).unwrap_or_default();
    let is_hex = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
    id.len() == 26
        && id.as_bytes()[..12].iter().all(is_hex)
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_opencode_are_no_secrets() {
        for id in ["ses_e174f09abffehNW1XyPF3xqHgH", "msg_1e8b0fe54001Jlm1OxDkUUHEUv"] {
            assert_eq!(masked_name(id), id);
        }
        for name in ["ses_hNW1XyPF3xqHgHe174f09abffe", "key_e174f09abffehNW1XyPF3xqHgH"] {
            assert_ne!(masked_name(name), name, "it has another form");
        }
    }
}
