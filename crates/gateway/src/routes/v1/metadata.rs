//! The metadata that the vendors' APIs keep with an object.

use serde_json::{Map, Value};

use super::dialect::Problem;
use crate::error::ApiError;

/// The most pairs of metadata.
pub(super) const MAX_PAIRS: usize = 16;
/// The longest key of metadata, in characters.
pub(super) const MAX_KEY_CHARS: usize = 64;
/// The longest value of metadata, in characters.
pub(super) const MAX_VALUE_CHARS: usize = 512;

/// Checks metadata of OpenAI's responses and conversations: a few short texts.
pub(super) fn checked_metadata(metadata: &Map<String, Value>) -> Result<(), Problem> {
    let wrong = |text: String| Err(ApiError::bad_request(format!("metadata: {text}")).into());
    if metadata.len() > MAX_PAIRS {
        return wrong(format!("must have at most {MAX_PAIRS} pairs"));
    }
    for (key, value) in metadata {
        let is_short = |text: &str| text.chars().count() <= MAX_VALUE_CHARS;
        if key.chars().count() > MAX_KEY_CHARS || !value.as_str().is_some_and(is_short) {
            return wrong(format!(
                "keys must have at most {MAX_KEY_CHARS} characters, and values must be strings of at most {MAX_VALUE_CHARS}"
            ));
        }
    }
    Ok(())
}

/// Checks metadata of agents, environments, sessions and memory stores: keys with texts.
pub(super) fn check_texts(metadata: &Map<String, Value>) -> Result<(), ApiError> {
    match metadata.iter().find(|(_, value)| !value.is_string()) {
        Some((key, _)) => Err(ApiError::bad_request(format!("metadata.{key}: must be a string"))),
        None => Ok(()),
    }
}

/// Changes metadata as an update says: a text replaces a key's value, null removes the key.
pub(super) fn merge(
    metadata: &mut Map<String, Value>,
    changes: Map<String, Value>,
) -> Result<(), ApiError> {
    for (key, value) in changes {
        match value {
            Value::Null => drop(metadata.remove(&key)),
            Value::String(_) => drop(metadata.insert(key, value)),
            _ => {
                let text = format!("metadata.{key}: must be a string or null");
                return Err(ApiError::bad_request(text));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn metadata_is_bounded() {
        let check = |metadata: Value| checked_metadata(metadata.as_object().expect("an object"));
        assert!(check(json!({"k": "v".repeat(MAX_VALUE_CHARS)})).is_ok());
        assert!(check(json!({"k": "ü".repeat(MAX_VALUE_CHARS)})).is_ok());
        assert!(check(json!({"k": "v".repeat(MAX_VALUE_CHARS + 1)})).is_err());
        assert!(check(json!({"k": 1})).is_err());
        assert!(check(json!({"k".repeat(MAX_KEY_CHARS + 1): "v"})).is_err());
        let many: Map<String, Value> = (0..17).map(|n| (format!("k{n}"), json!("v"))).collect();
        assert!(checked_metadata(&many).is_err());
    }
}
