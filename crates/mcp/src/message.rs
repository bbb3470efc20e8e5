//! The envelope of a JSON-RPC message. The MCP library answers a message with a wrong envelope without its id, so
//! such messages are refused before they reach it.

use serde::de::{Deserialize, Deserializer, IgnoredAny};
use serde_json::{Value, json};

/// The longest line that the server reads, in bytes with the line's end. It drops longer ones without an answer.
pub const MAX_LINE_BYTES: usize = 16 << 20;
/// JSON-RPC's codes of errors.
const PARSE_ERROR: i32 = -32700;
const INVALID_REQUEST: i32 = -32600;
/// The integers that a number with a decimal point represents exactly are below this one.
const MAX_EXACT_FLOAT: f64 = 9_007_199_254_740_992.0;

/// A request, notification or answer whose envelope is legal.
#[derive(Debug, Clone, PartialEq)]
pub struct RpcMessage {
    /// A string or an integer. Notifications have none.
    pub id: Option<Value>,
    /// Answers have none.
    pub method: Option<String>,
    /// An object, or null.
    pub params: Value,
}

/// A message that is answered with an error and not processed.
#[derive(Debug, Clone, PartialEq)]
pub struct Refusal {
    id: Value,
    code: i32,
    reason: String,
}

impl Refusal {
    /// Refuses a message as no request. The id is null where it is unknown.
    pub fn invalid_request(id: Value, reason: impl Into<String>) -> Refusal {
        Refusal { id, code: INVALID_REQUEST, reason: reason.into() }
    }

    /// Returns the answer to the message.
    pub fn answer(&self) -> Value {
        let error = json!({"code": self.code, "message": self.reason});
        json!({"jsonrpc": "2.0", "id": self.id, "error": error})
    }
}

/// The fields of a message, of any type. A field that is null is present.
#[derive(serde::Deserialize)]
struct Envelope {
    #[serde(default)]
    jsonrpc: Value,
    #[serde(default, deserialize_with = "present")]
    id: Option<Value>,
    #[serde(default, deserialize_with = "present")]
    method: Option<Value>,
    #[serde(default)]
    params: Value,
    #[serde(default, deserialize_with = "present")]
    result: Option<IgnoredAny>,
    #[serde(default, deserialize_with = "present")]
    error: Option<IgnoredAny>,
}

/// The id of a message whose other fields cannot be read.
#[derive(serde::Deserialize)]
struct IdField {
    #[serde(default)]
    id: Value,
}

/// Reads a field that may be null.
fn present<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    field: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(field).map(Some)
}

/// Reads the envelope of one message.
pub fn read_message(text: &[u8]) -> Result<RpcMessage, Refusal> {
    // A structure could also be read from a list of its fields.
    let is_object = text.trim_ascii_start().first() == Some(&b'{');
    let envelope = serde_json::from_slice::<Envelope>(text).ok().filter(|_| is_object);
    let Some(envelope) = envelope else {
        return Err(match serde_json::from_slice::<IgnoredAny>(text) {
            // For example, a text has half of a surrogate pair, as a client leaves it that cuts texts.
            Ok(_) if is_object => {
                let id = serde_json::from_slice::<IdField>(text).ok();
                let id = id.and_then(|field| legal_id(&field.id)).unwrap_or_default();
                Refusal::invalid_request(id, "the message has a value that cannot be read")
            }
            Ok(_) => Refusal::invalid_request(Value::Null, "a message must be one JSON-RPC object"),
            Err(_) => Refusal {
                id: Value::Null,
                code: PARSE_ERROR,
                reason: "the message is not JSON".to_owned(),
            },
        });
    };
    let Envelope { jsonrpc, id: given, method, params, result, error } = envelope;
    let id = given.as_ref().and_then(legal_id);
    // The id of an answer is the server's. To the client it would be one of its own requests.
    let is_own = method.is_some() || (result.is_none() && error.is_none());
    let refused = |reason: &str| {
        let id = id.clone().filter(|_| is_own).unwrap_or_default();
        Err(Refusal::invalid_request(id, reason))
    };
    let is_answer = match (&method, result.is_some(), error.is_some()) {
        (Some(_), false, false) => false,
        (None, true, false) | (None, false, true) => true,
        _ => return refused("a message must have one of method, result and error"),
    };
    if jsonrpc != "2.0" {
        return refused("jsonrpc: must be \"2.0\"");
    }
    if is_answer {
        return Ok(RpcMessage { id, method: None, params });
    }
    if given.is_some() && id.is_none() {
        return refused("id: must be a string or an integer");
    }
    let Some(Value::String(method)) = method else {
        return refused("method: must be a string");
    };
    if !is_object_or_null(&params) {
        return refused("params: must be an object");
    }
    if !is_object_or_null(&params["_meta"]) {
        return refused("params._meta: must be an object");
    }
    Ok(RpcMessage { id, method: Some(method), params })
}

/// Returns the id of a request as the library writes it in the answer, if it is a string or an integer.
pub fn legal_id(id: &Value) -> Option<Value> {
    match id {
        Value::String(_) => Some(id.clone()),
        Value::Number(number) => {
            let exact = |float: &f64| float.fract() == 0.0 && float.abs() < MAX_EXACT_FLOAT;
            let from_float = || {
                let float = number.as_f64().filter(|_| number.is_f64());
                float.filter(exact).map(|float| float as i64)
            };
            number.as_i64().or_else(from_float).map(Value::from)
        }
        _ => None,
    }
}

fn is_object_or_null(value: &Value) -> bool {
    value.is_object() || value.is_null()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_refused(text: &str, id: &Value, code: i32, expect: &str) {
        let answer = read_message(text.as_bytes()).expect_err(text).answer();
        assert_eq!((&answer["id"], &answer["error"]["code"]), (id, &json!(code)), "{answer}");
        assert!(answer["error"]["message"].as_str().unwrap().contains(expect), "{answer}");
    }

    #[test]
    fn refusals_carry_the_id_where_it_is_legal() {
        let null = Value::Null;
        check_refused("no json", &null, -32700, "not JSON");
        check_refused("", &null, -32700, "not JSON");
        check_refused(r#"{"jsonrpc":"2.0","#, &null, -32700, "not JSON");
        check_refused(r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, &null, -32600, "one");
        check_refused(r#"["2.0", 1, "ping"]"#, &null, -32600, "one");
        for (id, legal) in [
            ("77", json!(77)),
            ("\"a\"", json!("a")),
            ("-1", json!(-1)),
            ("2.0", json!(2)),
            ("1.5", json!(null)),
            ("18446744073709551615", json!(null)),
            ("{}", json!(null)),
            ("null", json!(null)),
            ("true", json!(null)),
        ] {
            let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping","params":"x"}}"#);
            let expect = if legal.is_null() { "id:" } else { "params:" };
            check_refused(&text, &legal, -32600, expect);
        }
        check_refused(r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#, &json!(1), -32600, "jsonrpc:");
        check_refused(r#"{"id":1,"method":"ping"}"#, &json!(1), -32600, "jsonrpc:");
        check_refused(r#"{"jsonrpc":"2.0","id":1,"method":5}"#, &json!(1), -32600, "method:");
        check_refused(r#"{"jsonrpc":"2.0","id":1}"#, &json!(1), -32600, "method");
        let half = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"text":"\ud83d"}}"#;
        check_refused(half, &json!(1), -32600, "cannot be read");
        check_refused(r#"{"jsonrpc":"1.0","id":1,"result":{}}"#, &null, -32600, "jsonrpc:");
        let both = r#"{"jsonrpc":"2.0","id":1,"method":"ping","result":{}}"#;
        check_refused(both, &json!(1), -32600, "one of");
        let meta = r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":[]}}"#;
        check_refused(meta, &json!(1), -32600, "params._meta:");
        check_refused(r#"{"jsonrpc":"2.0","method":"x","params":[]}"#, &null, -32600, "params:");
    }

    #[test]
    fn legal_messages_are_read() {
        let read = |text: &str| read_message(text.as_bytes()).unwrap();
        let request = read(r#" {"jsonrpc":"2.0","id":1.0,"method":"ping","params":{"a":1}}"#);
        assert_eq!((request.id, request.method), (Some(json!(1)), Some("ping".to_owned())));
        assert_eq!(request.params, json!({"a": 1}));
        let notification = read(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        assert_eq!((notification.id, notification.params), (None, Value::Null));
        let answer = read(r#"{"jsonrpc":"2.0","id":"a","result":{}}"#);
        assert_eq!((answer.id, answer.method), (Some(json!("a")), None));
        let error = read(r#"{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"x"}}"#);
        assert_eq!((error.id, error.method), (None, None));
    }
}
