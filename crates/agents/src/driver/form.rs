//! Forms: what an agent wants to know from its user. A form is a JSON schema of an object whose fields are plain values.

use serde_json::Value;

/// The largest form that is put to the caller, with its message, in bytes.
pub(super) const MAX_FORM_BYTES: usize = 64 << 10;

/// Checks the fields of a form. Errors name the field. The agent checks finer rules itself: lengths, ranges and patterns.
pub fn check(form: &Value, content: &Value) -> Result<(), String> {
    let Some(fields) = content.as_object() else {
        return Err("content: must be an object with the fields of the form".to_owned());
    };
    let required = form["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    for name in required {
        if !fields.contains_key(name) {
            return Err(format!("content.{name}: is required"));
        }
    }
    for (name, value) in fields {
        let Some(expected) = form["properties"].get(name) else {
            return Err(format!("content.{name}: the form has no such field"));
        };
        check_field(expected, value).map_err(|error| format!("content.{name}: {error}"))?;
    }
    Ok(())
}

/// Returns whether the form may be sent back empty.
pub fn may_be_empty(form: &Value) -> bool {
    form["required"].as_array().is_none_or(Vec::is_empty)
}

fn check_field(expected: &Value, value: &Value) -> Result<(), String> {
    let (is_right, kind) = match expected["type"].as_str() {
        Some("string") => (value.is_string(), "a string"),
        Some("integer") => (value.is_i64() || value.is_u64(), "an integer"),
        Some("number") => (value.is_number(), "a number"),
        Some("boolean") => (value.is_boolean(), "true or false"),
        Some("array") => {
            let is_list = |items: &Vec<Value>| items.iter().all(Value::is_string);
            (value.as_array().is_some_and(is_list), "a list of strings")
        }
        // A type of a later version of the protocol.
        _ => (value.is_string() || value.is_number() || value.is_boolean(), "a plain value"),
    };
    if !is_right {
        return Err(format!("must be {kind}"));
    }
    let (offered, chosen) = match value.as_array() {
        Some(items) => (choices(&expected["items"]), items.iter().collect()),
        None => (choices(expected), vec![value]),
    };
    match offered {
        Some(offered) if !chosen.iter().all(|value| offered.contains(value)) => {
            let names: Vec<String> = offered.iter().map(ToString::to_string).collect();
            Err(format!("must be one of {}", names.join(", ")))
        }
        _ => Ok(()),
    }
}

/// Returns the values that a field may have, if it is a choice.
fn choices(expected: &Value) -> Option<Vec<&Value>> {
    if let Some(values) = expected["enum"].as_array() {
        return Some(values.iter().collect());
    }
    let titled = ["oneOf", "anyOf"].iter().find_map(|name| expected[*name].as_array())?;
    Some(titled.iter().map(|choice| &choice["const"]).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_have_the_types_and_the_choices_of_the_form() {
        let form = json!({"type": "object", "required": ["name"], "properties": {
            "name": {"type": "string"}, "count": {"type": "integer"}, "ratio": {"type": "number"},
            "sure": {"type": "boolean"}, "colour": {"type": "string", "enum": ["red", "blue"]},
            "size": {"type": "string", "oneOf": [{"const": "s", "title": "Small"}]},
            "tags": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}},
            "when": {"type": "_date"}}});
        for right in [
            json!({"name": "x"}),
            json!({"name": "x", "count": 3, "ratio": 0.5, "sure": true, "colour": "red", "size": "s"}),
            json!({"name": "", "tags": ["a", "b"], "when": "today"}),
        ] {
            assert_eq!(check(&form, &right), Ok(()), "{right}");
        }
        for (wrong, error) in [
            (json!(1), "content: must be an object with the fields of the form"),
            (json!({}), "content.name: is required"),
            (json!({"name": 1}), "content.name: must be a string"),
            (json!({"name": "x", "count": 0.5}), "content.count: must be an integer"),
            (json!({"name": "x", "sure": "yes"}), "content.sure: must be true or false"),
            (
                json!({"name": "x", "colour": "green"}),
                r#"content.colour: must be one of "red", "blue""#,
            ),
            (json!({"name": "x", "size": "m"}), r#"content.size: must be one of "s""#),
            (json!({"name": "x", "tags": ["c"]}), r#"content.tags: must be one of "a", "b""#),
            (json!({"name": "x", "tags": [1]}), "content.tags: must be a list of strings"),
            (json!({"name": "x", "when": null}), "content.when: must be a plain value"),
            (json!({"name": "x", "other": 1}), "content.other: the form has no such field"),
        ] {
            assert_eq!(check(&form, &wrong), Err(error.to_owned()), "{wrong}");
        }
        assert!(!may_be_empty(&form) && may_be_empty(&json!({"type": "object"})));
    }
}
