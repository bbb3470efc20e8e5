//! `/mcp`: the memory's tools over HTTP, for apps. An app sees what its own sessions did.

use std::sync::Arc;

use async_trait::async_trait;
use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use hob_domain::memory::Principal;
use hob_mcp::{CallerContext, McpServer, ToolBackend, ToolError, Tools, http_service};
use serde_json::Value;

use crate::extract::caller::Caller;
use crate::state::Gateway;

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
    Caller(app): Caller,
    mut request: Request,
    next: Next,
) -> Response {
    request.extensions_mut().insert(hob_mcp::Caller(app.name.as_str().to_owned()));
    next.run(request).await
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
        let caller = CallerContext { principal: Principal::App(app.clone()), location: None };
        self.0.call(&caller, name, arguments).await.map_err(|error| match error {
            ToolError::Store(inside) => {
                tracing::error!(error = %inside, name, "a tool failed");
                "the memory failed; see Hob's log".to_owned()
            }
            error => error.to_string(),
        })
    }
}
