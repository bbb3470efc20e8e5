//! `GET /openapi.json`: the document, made from the handlers.

use axum::response::Json;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi};

use crate::{apps, health, run};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Hob",
        description = "Coding agents as durable sessions, over HTTP. Every error is \
            `{\"ok\":false,\"error\":…,\"code\":…}`; a request without a token, or with a wrong one, is 401.",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0"),
    ),
    paths(health::healthz, openapi_json, run::run, apps::create, apps::list, apps::remove),
    modifiers(&BearerToken),
    tags(
        (name = "service", description = "Open to all."),
        (name = "runs", description = "One-shot runs, with an app's token."),
        (name = "admin", description = "With the admin's token."),
    ),
)]
struct Document;

struct BearerToken;

impl Modify for BearerToken {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let scheme = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some("An app's token, or the admin's under /admin."))
            .build();
        let components = document.components.get_or_insert_with(Default::default);
        components.add_security_scheme("token", SecurityScheme::Http(scheme));
    }
}

/// The OpenAPI document of every route.
pub fn document() -> utoipa::openapi::OpenApi {
    Document::openapi()
}

/// This document.
#[utoipa::path(get, path = "/openapi.json", tag = "service", responses(
    (status = 200, description = "The OpenAPI document.", body = Object),
))]
pub(crate) async fn openapi_json() -> Json<utoipa::openapi::OpenApi> {
    Json(document())
}
