//! Requests that the library could not read. It hands them over as custom requests, also those of known methods with
//! wrong parameters.

use rmcp::ErrorData;
use rmcp::model::{CallToolRequestParams, CustomRequest, ErrorCode, PaginatedRequestParams};
use serde::de::DeserializeOwned;

/// Returns the error of such a request.
pub(crate) fn error(request: &CustomRequest) -> ErrorData {
    match request.method.as_str() {
        "tools/list" => wrong_params::<PaginatedRequestParams>(request),
        "tools/call" => wrong_params::<CallToolRequestParams>(request),
        method => {
            ErrorData::new(ErrorCode::METHOD_NOT_FOUND, format!("unknown method: {method}"), None)
        }
    }
}

/// Returns an error that names the parameter that is wrong.
fn wrong_params<T: DeserializeOwned>(request: &CustomRequest) -> ErrorData {
    let reason = match &request.params {
        None => "params: missing".to_owned(),
        Some(params) => match serde_path_to_error::deserialize::<_, T>(params) {
            Ok(_) => "params: cannot be read".to_owned(),
            Err(error) => {
                let path = error.path().to_string();
                let field = if path == "." { String::new() } else { format!(".{path}") };
                format!("params{field}: {}", error.inner())
            }
        },
    };
    ErrorData::invalid_params(format!("{}: {reason}", request.method), None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[track_caller]
    fn check(method: &str, params: Option<Value>, code: ErrorCode, expect: &str) {
        let error = error(&CustomRequest::new(method, params));
        assert_eq!(error.code, code, "{error:?}");
        assert!(error.message.contains(expect), "{error:?}");
    }

    #[test]
    fn wrong_parameters_of_known_methods_are_named() {
        let wrong = ErrorCode::INVALID_PARAMS;
        check("tools/call", None, wrong, "params: missing");
        check("tools/call", Some(json!({})), wrong, "`name`");
        let list = json!({"name": "memory_stats", "arguments": []});
        check("tools/call", Some(list), wrong, "params.arguments:");
        check("tools/list", Some(json!({"cursor": 5})), wrong, "params.cursor:");
        // It is no method any more from revision 2026-07-28 on.
        check("initialize", None, ErrorCode::METHOD_NOT_FOUND, "initialize");
        check("tools/eat", None, ErrorCode::METHOD_NOT_FOUND, "tools/eat");
    }
}
