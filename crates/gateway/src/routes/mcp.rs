//! `/mcp`: the memory's tools over HTTP, for apps. An app sees what its own sessions did.

use std::sync::Arc;

use async_trait::async_trait;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Json, Response};
use hob_domain::memory::{Principal, TurnSource};
use hob_mcp::{CallerContext, McpServer, ToolBackend, ToolError, Tools, http_service};
use serde_json::{Value, json};

use crate::error::ApiError;
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
