//! The size of a JSON text once it is parsed.

/// The most values in a text that others wrote. A parsed value takes many times the memory of its text.
pub const MAX_JSON_VALUES: usize = 250_000;

/// Returns whether a JSON text has more than [`MAX_JSON_VALUES`] lists, objects and elements. It is not parsed.
pub fn has_too_many_values(text: &[u8]) -> bool {
    // Each takes a byte at least.
    if text.len() <= MAX_JSON_VALUES {
        return false;
    }
    let (mut values, mut in_string, mut escaped) = (0, false, false);
    for byte in text {
        match (in_string, byte) {
            (true, _) if escaped => escaped = false,
            (true, b'\\') => escaped = true,
            (_, b'"') => in_string = !in_string,
            (false, b'[' | b'{' | b',') => values += 1,
            _ => {}
        }
    }
    values > MAX_JSON_VALUES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_outside_of_strings() {
        let list = |count: usize| format!("[{}]", vec!["[]"; count].join(","));
        assert!(!has_too_many_values(list(1000).as_bytes()));
        assert!(has_too_many_values(list(MAX_JSON_VALUES / 2 + 1).as_bytes()));
        let text = r#"[,{\\\",["#.repeat(MAX_JSON_VALUES);
        assert!(!has_too_many_values(format!("{{\"prompt\":\"{text}\"}}").as_bytes()));
    }
}
