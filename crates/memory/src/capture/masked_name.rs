use hob_domain::memory::TurnKey;

use crate::redact;

/// Returns the name of a session, record or folder without its secrets. A digest distinguishes two
/// names that differ in nothing but their secrets.
pub fn masked_name(name: &str) -> String {
    let masked = redact::mask(name);
    if masked.originals.is_empty() {
        return masked.text;
    }
    let digest = TurnKey::of(&["name", name]).to_hex();
    format!("{}#{}", masked.text, &digest[..8])
}
