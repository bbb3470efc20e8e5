//! The fields of a request that have no effect, named in a response header.

use axum::http::HeaderValue;
use axum::response::Response;
use serde_json::{Map, Value, json};

use super::dialect::Problem;
use crate::error::ApiError;

/// The response header that lists the fields without effect.
const IGNORED_HEADER: &str = "x-hob-ignored";
/// The most names in the header.
const MAX_NAMES: usize = 32;
/// The longest name in the header, in bytes.
const MAX_NAME_BYTES: usize = 64;

/// The fields of a tool that the agent gets, and those of which nobody needs to know that they have no effect.
const USED_IN_TOOLS: [&str; 7] =
    ["type", "name", "description", "input_schema", "parameters", "function", "cache_control"];

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

    /// Adds the fields of tools that Hob does not pass on to the agent. Among them is `strict`: Hob passes schemas on, and does
    /// not check the arguments.
    pub fn add_tools(&mut self, tools: Option<&[Value]>) {
        let of_function = |tool: &Value| tool["function"].as_object().cloned();
        let fields = |tool: &Value| tool.as_object().cloned().into_iter().chain(of_function(tool));
        for (name, value) in tools.unwrap_or_default().iter().flat_map(fields).flatten() {
            // Hob's tools are called by the agent directly.
            let is_so_anyway = value == false || value == json!([]) || value == json!(["direct"]);
            if !USED_IN_TOOLS.contains(&name.as_str()) && !is_so_anyway {
                self.add_once(&format!("tools.{name}"), &value);
            }
        }
    }

    /// Adds the fields without effect of messages or items, which are in the field `place`.
    pub fn add_messages(&mut self, place: &str, messages: &[Value]) {
        for message in messages {
            if message["role"].is_string() {
                self.add_once(&format!("{place}.name"), &message["name"]);
            }
            self.add_blocks(place, &message["content"]);
            self.add_blocks(place, &message["output"]);
        }
    }

    fn add_blocks(&mut self, place: &str, content: &Value) {
        for block in content.as_array().into_iter().flatten() {
            if block["citations"]["enabled"] == true {
                self.add_once(&format!("{place}.citations"), &block["citations"]);
            }
            for detail in [&block["detail"], &block["image_url"]["detail"]] {
                if detail != "auto" {
                    self.add_once(&format!("{place}.detail"), detail);
                }
            }
            if block["type"] == "tool_result" {
                self.add_blocks(place, &block["content"]);
            }
        }
    }

    fn add_once(&mut self, name: &str, value: &Value) {
        if !self.0.iter().any(|known| known == name) {
            self.add(name, Some(value));
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
