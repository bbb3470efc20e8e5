//! `GET /openapi.json`: the document, which a test compares with the handlers.

use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi};

use crate::routes::acp::http as acp;
use crate::routes::admin::{
    apps, audit, health as doctor, live, login, memory, memory_change, overview, session_turns,
    sessions as all_sessions, usage,
};
use crate::routes::sessions::{control, events, manage, settings, turns};
use crate::routes::v1::agent_sessions::{
    anthropic as managed, memory_stores, openai as agents_api, shared_paths,
};
use crate::routes::v1::{
    anthropic, batches, conversations, count_tokens, models, openai, responses,
};
use crate::routes::{console, files, health, mcp, metrics, run};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Hob",
        description = "Coding agents as durable sessions, over HTTP. Every error is \
            `{\"ok\":false,\"error\":…,\"code\":…}`; a missing or wrong token is 401.",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0"),
    ),
    paths(health::healthz, mcp::metadata, health::livez, health::readyz, openapi_json, metrics::metrics, run::run, files::upload, manage::create, manage::list,
        manage::get, manage::close, turns::turn, turns::get, events::events, control::cancel,
        control::permit, control::return_tool_result, settings::get, settings::change, acp::get, acp::post, acp::delete, apps::create, apps::list, apps::remove, audit::list, live::list::list, live::stream::stream,
        live::screen::screen, live::attach::attach, all_sessions::list, all_sessions::get,
        all_sessions::events, all_sessions::cancel, all_sessions::close, console::page, console::asset, console::icon,
        login::login, login::logout,
        overview::me, overview::overview, doctor::health, doctor::limits, usage::usage, memory::search,
        memory::timeline, memory::facets, memory::stats, memory_change::correct, memory_change::forget, memory_change::restore,
        memory_change::unseal, session_turns::create, session_turns::turn, session_turns::turns, session_turns::permit,
        anthropic::messages, batches::manage::create, batches::manage::list, batches::manage::get, batches::manage::cancel, batches::manage::delete, batches::manage::results,
        count_tokens::count_tokens, openai::chat, responses::create::create, responses::stored::get,
        responses::stored::delete, responses::stored::cancel, responses::stored::input_items,
        responses::stored::input_tokens, conversations::manage::create, conversations::manage::get,
        conversations::manage::update, conversations::manage::delete, conversations::items::create,
        conversations::items::list, conversations::items::get, conversations::items::delete, shared_paths::create, shared_paths::list, shared_paths::get, shared_paths::update,
        shared_paths::delete, shared_paths::archive, shared_paths::versions, managed::environments::create,
        managed::environments::list, managed::environments::get, managed::environments::update,
        managed::environments::archive, managed::environments::delete, managed::sessions::create, managed::sessions::list,
        managed::sessions::get, managed::sessions::update, managed::sessions::archive, managed::sessions::delete,
        managed::send::send, managed::events::list, managed::events::follow, memory_stores::stores::create,
        memory_stores::stores::list, memory_stores::stores::get, memory_stores::stores::update,
        memory_stores::stores::archive, memory_stores::stores::delete, memory_stores::memories::create,
        memory_stores::memories::list, memory_stores::memories::get, memory_stores::memories::update,
        memory_stores::memories::delete, memory_stores::versions::list, memory_stores::versions::get,
        memory_stores::versions::redact, agents_api::sessions::create,
        agents_api::sessions::list, agents_api::sessions::get, agents_api::sessions::update, agents_api::sessions::delete,
        agents_api::events::send, agents_api::events::follow, agents_api::turns::list, agents_api::turns::get,
        agents_api::turns::items, agents_api::turns::turn_items, agents_api::artifacts::list, agents_api::artifacts::get,
        agents_api::artifacts::content, agents_api::artifacts::delete, models::list,
        models::get),
    modifiers(&BearerToken),
    tags(
        (name = "service", description = "Open to everyone."),
        (name = "runs", description = "One-shot runs. Needs an app token."),
        (name = "sessions", description = "Durable conversations. Needs an app token."),
        (name = "admin", description = "Needs the admin token or the console's cookie."),
        (name = "console", description = "The console's page and sign-in."),
        (name = "v1", description = "Anthropic- and OpenAI-compatible APIs on Claude Code. Needs an app token."),
    ),
)]
struct Document;

struct BearerToken;

impl Modify for BearerToken {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let scheme = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some("An app token, or the admin token under /admin."))
            .build();
        let components = document.components.get_or_insert_with(Default::default);
        components.add_security_scheme("token", SecurityScheme::Http(scheme));
    }
}

/// Makes the OpenAPI document of every route. The server sends a copy of it, `openapi.json`.
pub fn document() -> utoipa::openapi::OpenApi {
    Document::openapi()
}

/// The document as the server sends it. Making it while the server runs would add a megabyte to the program.
const OPENAPI_JSON: &str = include_str!("openapi.json");

/// Returns the OpenAPI document.
#[utoipa::path(get, path = "/openapi.json", tag = "service", responses(
    (status = 200, description = "The OpenAPI document.", body = Object),
))]
pub(crate) async fn openapi_json() -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json")], OPENAPI_JSON)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openapi_json_equals_the_document() {
        let expect = serde_json::to_string_pretty(&document()).expect("a document") + "\n";
        if OPENAPI_JSON != expect {
            let path = std::env::temp_dir().join("hob-openapi.json");
            std::fs::write(&path, &expect).expect("a file");
            panic!(
                "src/openapi.json differs from the routes; its new content is in {}",
                path.display()
            );
        }
    }

    /// The router and the document have the same routes.
    #[test]
    fn every_route_is_documented() {
        let document = serde_json::to_value(document()).expect("a document");
        let mut documented: Vec<&str> =
            document["paths"].as_object().expect("paths").keys().map(String::as_str).collect();
        let source = include_str!("router.rs").replace("{*", "{");
        let (plain, nested) = source.split_once("fn v1_routes").expect("the routes below /v1");
        let routes = |source: &str, above: &str| -> Vec<String> {
            let parts = source.split(".route(").skip(1);
            let paths =
                parts.filter_map(|part| part.trim_start().strip_prefix('"')?.split('"').next());
            paths.map(|path| format!("{above}{path}")).collect()
        };
        let mut routed = [routes(plain, ""), routes(nested, "/v1")].concat();
        documented.sort_unstable();
        routed.sort_unstable();
        assert_eq!(routed, documented);
    }

    /// Answers that many routes share. The reference lists them once, at its head.
    const SHARED_ANSWERS: [(&str, &str); 8] = [
        ("400", "Invalid request; the error names the field."),
        ("400", "Invalid query; the error names the parameter."),
        ("401", "Missing or wrong token."),
        ("403", "Unknown Host header."),
        ("403", "Unknown Host header, or a request from another origin."),
        ("408", "The body did not arrive in time."),
        ("413", "The body is too large."),
        ("500", "Internal error; see Hob's log."),
    ];

    /// The reference lists every route with its answers, and nothing else.
    #[test]
    fn http_reference_matches_the_document() {
        let document = serde_json::to_value(document()).expect("a document");
        let row = |status: &str, text: &str| format!("- {status}: {text}");
        let mut expect: Vec<String> =
            SHARED_ANSWERS.iter().map(|(status, text)| row(status, text)).collect();
        for (path, methods) in document["paths"].as_object().expect("paths") {
            for (method, call) in methods.as_object().expect("methods") {
                let summary = call["summary"].as_str().unwrap_or_default();
                expect.push(format!("## `{} {path}`: {summary}", method.to_uppercase()));
                for (status, answer) in call["responses"].as_object().expect("responses") {
                    let text = answer["description"].as_str().unwrap_or_default();
                    if !SHARED_ANSWERS.contains(&(status.as_str(), text)) {
                        expect.push(row(status, text));
                    }
                }
            }
        }
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/http.md");
        let text = std::fs::read_to_string(path).expect("docs/http.md");
        let is_fact = |line: &&str| {
            line.starts_with("## `")
                || line.strip_prefix("- ").is_some_and(|rest| rest.starts_with(char::is_numeric))
        };
        let found: Vec<&str> = text.lines().filter(is_fact).collect();
        assert_eq!(found, expect, "docs/http.md should hold\n{}", expect.join("\n"));
    }

    /// Every JSON body is described by its fields.
    #[test]
    fn request_bodies_have_schemas() {
        let document = serde_json::to_value(document()).expect("a document");
        for (path, methods) in document["paths"].as_object().expect("paths") {
            for (method, call) in methods.as_object().expect("methods") {
                let schema = &call["requestBody"]["content"]["application/json"]["schema"];
                let is_named = schema.is_null() || schema["$ref"].is_string();
                assert!(is_named, "{method} {path}: {schema}");
            }
        }
    }

    /// Two types with one schema name would share one schema in the document.
    #[test]
    fn schema_names_are_unique() {
        fn sources(folder: &std::path::Path, text: &mut String) {
            for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
                match entry.path() {
                    path if path.is_dir() => sources(&path, text),
                    path => text.push_str(&std::fs::read_to_string(path).expect("a source")),
                }
            }
        }
        let mut text = String::new();
        sources(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut text);
        let mut names: Vec<&str> = text
            .split("ToSchema)]")
            .skip(1)
            .filter_map(|rest| {
                let (_, named) = rest.split_once("struct ").or(rest.split_once("enum "))?;
                named.split(|c: char| !c.is_alphanumeric()).next()
            })
            .collect();
        names.sort_unstable();
        let known = names.len();
        names.dedup();
        assert!(known > 20 && names.len() == known, "two of {known} are named alike: {names:?}");
    }
}
