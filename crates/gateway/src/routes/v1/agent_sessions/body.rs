//! Bodies of requests, and fields that are null.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::error::ApiError;

/// Reads a body that was received as JSON. An error names the field.
pub(super) fn parse<T: DeserializeOwned>(body: Value) -> Result<T, ApiError> {
    serde_path_to_error::deserialize(body).map_err(|error| {
        let path = error.path().to_string();
        match path.as_str() {
            "." => ApiError::bad_request(error.inner().to_string()),
            _ => ApiError::bad_request(format!("{path}: {}", error.inner())),
        }
    })
}

/// Reads a field that is cleared by null and stays as it is if it is absent.
pub(super) fn present<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// Returns whether a field asks for something. Null, `false`, and what is empty ask for nothing.
pub(super) fn asks(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::Array(list) => !list.is_empty(),
        Value::Object(table) => !table.is_empty(),
        Value::String(text) => !text.is_empty(),
        _ => true,
    }
}
