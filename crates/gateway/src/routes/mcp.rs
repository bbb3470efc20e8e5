//! `/mcp`: the memory's tools over HTTP, for apps. An app sees what its own sessions did.

use std::sync::Arc;

use async_trait::async_trait;
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Json, Response};
use hob_domain::json_size::{MAX_JSON_VALUES, has_too_many_values};
use hob_domain::memory::{Principal, TurnSource};
use hob_mcp::message::{Refusal, read_message};
use hob_mcp::{CallerContext, McpServer, ToolBackend, ToolError, Tools, http_service};
use serde_json::{Value, json};

use crate::app_requests::RequestSlot;
use crate::error::ApiError;
use crate::extract::body::receive_bytes;
use crate::extract::caller::Caller;
use crate::state::Gateway;

/// The path of the description of `/mcp` as a protected resource.
const METADATA_PATH: &str = "/.well-known/oauth-protected-resource/mcp";

/// Returns the route. It needs an app token.
pub(crate) fn route(gateway: &Arc<Gateway>) -> Router<Arc<Gateway>> {
    let server = McpServer::new(Arc::new(AppTools(gateway.tools.clone())));
    let service = http_service(server, gateway.limits.max_body_bytes);
    Router::new()
        .route_service("/mcp", service)
        .layer(middleware::from_fn_with_state(gateway.clone(), check_message))
        .layer(middleware::from_fn_with_state(gateway.clone(), name_caller))
}

async fn name_caller(
    State(_): State<Arc<Gateway>>,
    caller: Result<Caller, ApiError>,
    mut request: Request,
    next: Next,
) -> Response {
    let Caller(app) = match caller {
        Ok(caller) => caller,
        Err(error) => return unauthorized(request.headers(), error),
    };
    request.extensions_mut().insert(hob_mcp::Caller(app.name.as_str().to_owned()));
    next.run(request).await
}

/// Refuses a body that is no message as JSON-RPC has it. To the library it is of a wrong media type.
async fn check_message(
    State(gateway): State<Arc<Gateway>>,
    request: Request,
    next: Next,
) -> Response {
    let kind = request.headers().get(header::CONTENT_TYPE);
    let is_json = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
    if request.method() != Method::POST || !is_json {
        return next.run(request).await;
    }
    let (parts, body) = request.into_parts();
    let slot = parts.extensions.get::<RequestSlot>().cloned().unwrap_or_default();
    let received = receive_bytes(body, gateway.limits.max_body_bytes, &slot).await;
    let (bytes, permit) = match received {
        Ok(received) => received,
        Err(error) => return error.into_response(),
    };
    let checked = match has_too_many_values(&bytes) {
        true => {
            let reason = format!("the message has more than {MAX_JSON_VALUES} values");
            Err(Refusal::invalid_request(Value::Null, reason))
        }
        false => read_message(&bytes).map(drop),
    };
    drop(permit);
    match checked {
        Ok(()) => next.run(Request::from_parts(parts, Body::from(bytes))).await,
        Err(refusal) => (StatusCode::BAD_REQUEST, Json(refusal.answer())).into_response(),
    }
}

/// Adds the address of the resource's description to a refusal. Clients that know only OAuth look for it.
fn unauthorized(headers: &HeaderMap, error: ApiError) -> Response {
    let is_token_missing = matches!(error, ApiError::Unauthorized);
    let mut response = error.into_response();
    let url = format!("{}{METADATA_PATH}", base_url(headers));
    let challenge = format!("Bearer resource_metadata=\"{url}\"");
    if let Ok(value) = HeaderValue::from_str(&challenge)
        && is_token_missing
    {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, value);
    }
    response
}

/// Returns the address that the client uses for this server.
fn base_url(headers: &HeaderMap) -> String {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let is_safe = |host: &&str| {
        host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-:[]".contains(&byte))
    };
    let host = text("host").filter(is_safe).unwrap_or("localhost");
    let scheme = if text("x-forwarded-proto") == Some("https") { "https" } else { "http" };
    format!("{scheme}://{host}")
}

/// Describes `/mcp` as a protected resource (RFC 9728). Its tokens are those of apps; there is no authorization server.
#[utoipa::path(get, path = "/.well-known/oauth-protected-resource/mcp", tag = "service", operation_id = "mcp_metadata", responses(
    (status = 200, description = "The description.", body = Object),
))]
pub(crate) async fn metadata(headers: HeaderMap) -> Json<Value> {
    Json(json!({"resource": format!("{}/mcp", base_url(&headers)),
        "resource_name": "Hob's memory", "bearer_methods_supported": ["header"]}))
}

struct AppTools(Tools);

#[async_trait]
impl ToolBackend for AppTools {
    async fn call(
        &self,
        caller: Option<&hob_mcp::Caller>,
        name: &str,
        arguments: Value,
    ) -> Result<Value, String> {
        let Some(hob_mcp::Caller(app)) = caller else {
            return Err("the request is not authenticated; send the token of an app".to_owned());
        };
        let caller = CallerContext {
            principal: Principal::App(app.clone()),
            location: None,
            note_source: TurnSource::Mcp,
        };
        self.0.call(&caller, name, arguments).await.map_err(|error| match error {
            ToolError::Store(inside) => {
                tracing::error!(error = %inside, name, "a tool failed");
                "the memory failed; see Hob's log".to_owned()
            }
            error => error.to_string(),
        })
    }
}
