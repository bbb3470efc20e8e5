//! Answers in a form that the client asks for: JSON, or JSON under a schema. The agent is told in words, and the answer is
//! checked.

use std::sync::Arc;

use boon::{CompileError, Compiler, Schemas, UrlLoader};
use hob_agents::claude::AnswerCheck;
use serde_json::Value;

use super::dialect::Problem;
use super::schema_cost;
use crate::error::ApiError;

/// The address under which the client's schema is compiled. Nothing is loaded from it.
const SCHEMA_URL: &str = "hob:schema";
/// The longest answer that is checked, in bytes.
const MAX_ANSWER_BYTES: usize = 1 << 20;
/// The longest description of what is wrong with an answer, in bytes.
const MAX_ERROR_BYTES: usize = 2000;

/// A form that the answer must have.
pub(super) struct AnswerForm {
    /// Tells the agent about it.
    pub instruction: String,
    pub check: AnswerCheck,
}

/// Reads OpenAI's `response_format`.
pub(super) fn openai(format: Option<&Value>) -> Result<Option<AnswerForm>, Problem> {
    let Some(format) = format.filter(|format| !format.is_null()) else { return Ok(None) };
    match format["type"].as_str() {
        Some("text") => Ok(None),
        Some("json_object") => Ok(Some(object())),
        Some("json_schema") => {
            schema(&format["json_schema"]["schema"], "response_format.json_schema.schema").map(Some)
        }
        _ => Err(wrong("response_format: its type must be text, json_object or json_schema")),
    }
}

/// Reads `text.format` of OpenAI's Responses.
pub(super) fn responses(text: Option<&Value>) -> Result<Option<AnswerForm>, Problem> {
    let Some(text) = text.filter(|text| !text.is_null()) else { return Ok(None) };
    if !text.is_object() {
        return Err(wrong("text: must be an object"));
    }
    let format = &text["format"];
    if format.is_null() {
        return Ok(None);
    }
    match format["type"].as_str() {
        Some("text") => Ok(None),
        Some("json_object") => Ok(Some(object())),
        Some("json_schema") => schema(&format["schema"], "text.format.schema").map(Some),
        _ => Err(wrong("text.format: its type must be text, json_object or json_schema")),
    }
}

/// Reads Anthropic's `output_config.format`, or `output_format`, which is its older name.
pub(super) fn anthropic(
    config: Option<&Value>,
    format: Option<&Value>,
) -> Result<Option<AnswerForm>, Problem> {
    let format =
        config.map(|config| &config["format"]).filter(|format| !format.is_null()).or(format);
    let Some(format) = format.filter(|format| !format.is_null()) else { return Ok(None) };
    match format["type"].as_str() {
        Some("json_schema") => schema(&format["schema"], "output_config.format.schema").map(Some),
        _ => Err(wrong("output_config.format: its type must be json_schema")),
    }
}

fn object() -> AnswerForm {
    let check = |text: &str| match json_of(text)? {
        Value::Object(_) => Ok(()),
        _ => Err("it is not a JSON object".to_owned()),
    };
    AnswerForm {
        instruction: "Answer with one JSON object and nothing else, no code fence.".to_owned(),
        check: Arc::new(check),
    }
}

fn schema(schema: &Value, place: &str) -> Result<AnswerForm, Problem> {
    if schema.is_null() {
        return Err(wrong(&format!("{place}: missing")));
    }
    if !(schema.is_object() || schema.is_boolean()) {
        return Err(wrong(&format!("{place}: must be a JSON schema")));
    }
    schema_cost::check(schema).map_err(|error| wrong(&format!("{place}: {error}")))?;
    let mut schemas = Schemas::new();
    let mut compiler = Compiler::new();
    compiler.use_loader(Box::new(NoLoader));
    compiler.enable_format_assertions();
    let failed = |error: CompileError| {
        let text = match error {
            CompileError::LoadUrlError { url, .. } => {
                format!("a reference to another document is not supported: {url}")
            }
            error => error.to_string(),
        };
        wrong(&format!("{place}: {}", shortened(&text)))
    };
    compiler.add_resource(SCHEMA_URL, schema.clone()).map_err(failed)?;
    let index = compiler.compile(SCHEMA_URL, &mut schemas).map_err(failed)?;
    let check = move |text: &str| {
        let value = json_of(text)?;
        schemas.validate(&value, index).map_err(|error| shortened(&error.to_string()))
    };
    Ok(AnswerForm {
        instruction: format!(
            "Answer with one JSON value and nothing else, without a code fence. It must be valid under this JSON schema: {schema}"
        ),
        check: Arc::new(check),
    })
}

fn shortened(text: &str) -> String {
    let mut end = text.len().min(MAX_ERROR_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}

/// Refuses references to other documents.
struct NoLoader;

impl UrlLoader for NoLoader {
    fn load(&self, _: &str) -> Result<Value, Box<dyn std::error::Error>> {
        Err("references to other documents are not supported".into())
    }
}

/// Returns the JSON text of an answer: all of it, or what is in its code fence.
pub(super) fn json_text(text: &str) -> &str {
    let text = text.trim();
    let inner = text.strip_prefix("```").and_then(|text| text.strip_suffix("```"));
    match inner.and_then(|inner| inner.split_once('\n')) {
        Some(("" | "json", inner)) => inner.trim(),
        _ => text,
    }
}

fn json_of(text: &str) -> Result<Value, String> {
    if text.len() > MAX_ANSWER_BYTES {
        return Err(format!("it is longer than {MAX_ANSWER_BYTES} bytes"));
    }
    serde_json::from_str(json_text(text)).map_err(|error| format!("it is not JSON: {error}"))
}

fn wrong(message: &str) -> Problem {
    ApiError::bad_request(message).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn answers_are_checked_under_the_schema() {
        let format = json!({"type": "json_schema", "json_schema": {"name": "x", "schema": {
            "type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}}});
        let form = openai(Some(&format)).unwrap().unwrap();
        assert!(form.instruction.contains("integer"));
        assert_eq!((form.check)("{\"n\": 1}"), Ok(()));
        assert_eq!((form.check)("```json\n{\"n\": 1}\n```"), Ok(()));
        assert!((form.check)("{\"n\": \"one\"}").unwrap_err().contains("integer"));
        assert!((form.check)("n is 1").unwrap_err().contains("not JSON"));
        let format = json!({"format": {"type": "json_schema", "schema": {"type": "array"}}});
        let form = anthropic(Some(&format), None).unwrap().unwrap();
        assert!((form.check)("[]").is_ok() && (form.check)("{}").is_err());
        assert!((object().check)("[]").is_err());
    }

    #[test]
    fn wrong_forms_are_refused_by_name() {
        let check = |found: Result<Option<AnswerForm>, Problem>, word: &str| {
            let text = format!("{:?}", found.err().unwrap());
            assert!(text.contains(word), "{text}");
        };
        let of = |schema: Value| {
            openai(Some(&json!({"type": "json_schema", "json_schema": {"schema": schema}})))
        };
        check(openai(Some(&json!({"type": "yaml"}))), "response_format");
        check(of(json!({"type": "nonsense"})), "json_schema.schema");
        check(of(Value::Null), "json_schema.schema: missing");
        check(openai(Some(&json!({"type": "json_schema"}))), "json_schema.schema: missing");
        check(of(json!("object")), "must be a JSON schema");
        check(of(json!({"$ref": "file:///etc/passwd"})), "passwd");
        check(of(json!({"$ref": "http://127.0.0.1/x"})), "not supported");
        check(anthropic(None, Some(&json!({"type": "text"}))), "output_config.format");
        check(responses(Some(&json!({"format": {"type": "yaml"}}))), "text.format");
        check(responses(Some(&json!([null]))), "text");
        assert!(responses(Some(&json!({"verbosity": "low"}))).unwrap().is_none());
        assert!(anthropic(Some(&json!({"effort": "low"})), None).unwrap().is_none());
    }
}
