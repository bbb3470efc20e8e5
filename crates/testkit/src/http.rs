//! Plain HTTP requests by a well-behaved client. For one that misbehaves there is [`crate::wire`].

use std::time::Duration;

use serde_json::Value;

/// No request takes longer, its answer included.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(120);
const MAX_ANSWER_BYTES: u64 = 256 << 20;

/// An answer over HTTP.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: ureq::http::HeaderMap,
    pub text: String,
}

impl Answer {
    /// Returns the body as JSON, or `null` when it is not JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or(Value::Null)
    }
}

/// Sends a request to `url` and reads the whole answer.
pub fn request(
    method: &str,
    url: &str,
    token: Option<&str>,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Result<Answer, ureq::Error> {
    let bearer = token.map(|token| format!("Bearer {token}"));
    let mut all: Vec<(&str, &str)> = headers.to_vec();
    all.extend(bearer.as_deref().map(|bearer| ("authorization", bearer)));
    let mut response = send(method, url, &all, body)?;
    let status = response.status().as_u16();
    let headers = response.headers().clone();
    let body = response.body_mut().with_config().limit(MAX_ANSWER_BYTES);
    Ok(Answer { status, headers, text: body.read_to_string()? })
}

/// Sends a request to `url` and leaves the answer's body to be read.
pub fn send(
    method: &str,
    url: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Result<ureq::http::Response<ureq::Body>, ureq::Error> {
    let config = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .allow_non_standard_methods(true)
        .timeout_global(Some(REQUEST_TIMEOUT))
        .build();
    let mut request = ureq::http::Request::builder().method(method).uri(url);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    ureq::Agent::from(config).run(request.body(body.to_vec())?)
}
