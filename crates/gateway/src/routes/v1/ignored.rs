//! The fields of a request that have no effect, named in a response header.

use axum::http::HeaderValue;
use axum::response::Response;
use serde_json::{Map, Value};

use super::dialect::Problem;
use crate::error::ApiError;

/// The response header that lists the fields without effect.
const IGNORED_HEADER: &str = "x-hob-ignored";
/// The most names in the header.
const MAX_NAMES: usize = 32;
/// The longest name in the header, in bytes.
const MAX_NAME_BYTES: usize = 64;

/// The fields of a request that its handler does not know.
pub(super) type UnknownFields = Map<String, Value>;

/// The names of the fields that a request has and that have no effect on its answer.
#[derive(Debug, Default, PartialEq)]
pub(super) struct IgnoredFields(Vec<String>);

impl IgnoredFields {
    /// Collects the fields that the handler does not know. Fields that are `null` count as absent.
    pub fn new(unknown: &UnknownFields) -> IgnoredFields {
        let mut ignored = IgnoredFields::default();
        for (name, value) in unknown {
            ignored.add(name, Some(value));
        }
        ignored
    }

    /// Adds a field that the handler only checks, if the request has it.
    pub fn add(&mut self, name: &str, value: Option<&Value>) {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
        // A caller cannot write anything else into the header.
        let can_be_listed =
            (1..=MAX_NAME_BYTES).contains(&name.len()) && name.bytes().all(is_plain);
        if can_be_listed && self.0.len() < MAX_NAMES && value.is_some_and(|value| !value.is_null())
        {
            self.0.push(name.to_owned());
        }
    }

    /// Adds the fields of an object in which only `used` has an effect.
    pub fn add_within(&mut self, name: &str, object: Option<&Value>, used: &str) {
        for (inner, value) in object.and_then(Value::as_object).into_iter().flatten() {
            if inner != used {
                self.add(&format!("{name}.{inner}"), Some(value));
            }
        }
    }

    /// Adds `tools.strict` if a tool asks for arguments that always fit its schema. Hob passes schemas on to
    /// the agent, and does not check the arguments.
    pub fn add_strict_tools(&mut self, tools: Option<&[Value]>) {
        let is_strict = |tool: &Value| tool["strict"] == true || tool["function"]["strict"] == true;
        if tools.unwrap_or_default().iter().any(is_strict) {
            self.add("tools.strict", Some(&Value::Bool(true)));
        }
    }

    /// Takes out a field that has an effect.
    pub fn without(mut self, name: &str) -> IgnoredFields {
        self.0.retain(|known| known != name);
        self
    }

    /// Writes the header, if a field had no effect.
    pub fn note(&self, response: &mut Response) {
        if self.0.is_empty() {
            return;
        }
        if let Ok(value) = HeaderValue::from_str(&self.0.join(", ")) {
            response.headers_mut().insert(IGNORED_HEADER, value);
        }
    }
}

/// Refuses fields that would change what the answer is. Empty lists and `null` ask for nothing.
pub(super) fn refuse(unknown: &UnknownFields, names: &[&str]) -> Result<(), Problem> {
    let asks = |value: &Value| match value {
        Value::Null => false,
        Value::Array(list) => !list.is_empty(),
        _ => true,
    };
    match names.iter().find(|name| unknown.get(**name).is_some_and(asks)) {
        Some(name) => Err(ApiError::bad_request(format!("{name}: not supported")).into()),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn header(request: &Value) -> Option<String> {
        let mut ignored = IgnoredFields::new(request.as_object().expect("an object"));
        ignored.add_within("text", Some(&request["text"]), "format");
        let mut response = Response::default();
        ignored.without("text").note(&mut response);
        response.headers().get(IGNORED_HEADER).map(|value| value.to_str().expect("text").to_owned())
    }

    #[test]
    fn fields_without_effect_are_listed() {
        assert_eq!(header(&json!({})), None);
        assert_eq!(header(&json!({"seed": null})), None);
        assert_eq!(header(&json!({"seed": 1, "user": "me"})).as_deref(), Some("seed, user"));
        let text = json!({"text": {"format": {}, "verbosity": "low"}});
        assert_eq!(header(&text).as_deref(), Some("text.verbosity"));
    }

    #[test]
    fn callers_cannot_write_into_the_header() {
        let long = "x".repeat(MAX_NAME_BYTES + 1);
        let names = ["a\r\nset-cookie: x", "", "a,b", "ü", long.as_str()];
        let request: Map<String, Value> =
            names.iter().map(|name| ((*name).to_owned(), json!(1))).collect();
        assert_eq!(header(&Value::Object(request)), None);
        let many: Map<String, Value> = (0..100).map(|n| (format!("f{n}"), json!(1))).collect();
        let header = header(&Value::Object(many)).expect("a header");
        assert_eq!(header.split(", ").count(), MAX_NAMES);
    }

    #[test]
    fn fields_that_change_the_answer_are_refused() {
        let fields = json!({"audio": {}, "modalities": [], "seed": 1});
        let fields = fields.as_object().expect("an object");
        assert!(refuse(fields, &["modalities"]).is_ok());
        let problem = refuse(fields, &["modalities", "audio"]).expect_err("a refusal");
        assert_eq!(problem.message(), "audio: not supported");
    }
}
