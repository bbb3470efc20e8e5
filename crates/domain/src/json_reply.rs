//! A reply that is a JSON object or array is given to the caller parsed.

use serde_json::Value;

/// The parsed value when the whole reply is one JSON object or array, else the text itself.
pub fn reply_value(text: &str) -> Value {
    match serde_json::from_str(text) {
        Ok(value @ (Value::Object(_) | Value::Array(_))) => value,
        _ => Value::String(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn objects_and_arrays_are_parsed_all_else_is_text() {
        assert_eq!(reply_value(r#"{"hello":"world"}"#), json!({"hello": "world"}));
        assert_eq!(reply_value(" [1, 2]\n"), json!([1, 2]));
        for text in ["hi", "42", "\"x\"", "true", "null", "", "{broken", "{} and more"] {
            assert_eq!(reply_value(text), json!(text));
        }
    }
}
