//! `/v1/agents` of OpenAI's API.

use hob_domain::{AppName, DocumentKind, Timestamp};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::objects;
use crate::client_tool::{check_names, client_tool};
use crate::error::ApiError;
use crate::routes::v1::agent_sessions::agents::{
    self, AgentDocument, AgentTools, AgentVersion, McpServer, ToolPermissions,
};
use crate::routes::v1::agent_sessions::body::{asks, parse, present};
use crate::routes::v1::agent_sessions::cursor::{Query, openai_page};
use crate::routes::v1::agent_sessions::tool_shapes;
use crate::routes::v1::ignored::IgnoredFields;
use crate::routes::v1::{metadata, models};
use crate::state::Gateway;

/// An agent, or changes of one. What is absent stays as it is, what is null is cleared.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct AgentBody {
    model: Option<String>,
    #[serde(default, deserialize_with = "present")]
    name: Option<Option<String>>,
    #[serde(default, deserialize_with = "present")]
    instructions: Option<Option<String>>,
    #[serde(default, deserialize_with = "present")]
    metadata: Option<Option<Map<String, Value>>>,
    #[serde(default, deserialize_with = "present")]
    tools: Option<Option<Vec<Value>>>,
    #[serde(default, deserialize_with = "present")]
    reasoning: Option<Option<Value>>,
    text: Option<Value>,
    multi_agent: Option<Value>,
    service_tier: Option<String>,
    compaction: Option<Value>,
    experimental: Option<Value>,
}

pub(in super::super) async fn create(
    gateway: &Gateway,
    app: &AppName,
    body: Value,
) -> Result<Value, ApiError> {
    let body: AgentBody = parse(body)?;
    if body.model.is_none() {
        return Err(ApiError::bad_request("model: must be given"));
    }
    let entry = agents::create(gateway, app, new_version(gateway, body)?).await?;
    Ok(objects::agent(&entry, &AgentDocument::of(&entry)?))
}

/// Returns the first version of an agent.
pub(super) fn new_version(gateway: &Gateway, body: AgentBody) -> Result<AgentVersion, ApiError> {
    let mut version = AgentVersion {
        version: 1,
        at: Timestamp::now(),
        name: None,
        description: None,
        model: gateway.default_agent.to_string(),
        system: None,
        metadata: Map::new(),
        extra: Map::new(),
        // The sandbox holds the agent, and the API has no questions about its own tools.
        tools: AgentTools { permissions: ToolPermissions::Allow, ..AgentTools::default() },
    };
    apply(&mut version, body)?;
    Ok(version)
}

/// Changes a version.
pub(super) fn apply(version: &mut AgentVersion, body: AgentBody) -> Result<(), ApiError> {
    let wrong = |text: &str| Err(ApiError::bad_request(text));
    if body.multi_agent.is_some_and(|value| value["enabled"] == true) {
        return wrong("multi_agent: Hob does not support it");
    }
    if body.text.is_some_and(|text| text["format"]["type"] == "json_schema") {
        return wrong("text.format: Hob checks no schema in sessions; use /v1/responses");
    }
    // They have no effect: the agent decides by itself.
    let _ = (body.service_tier, body.compaction, body.experimental);
    if let Some(model) = body.model {
        models::check_model(&model)?;
        version.model = model;
    }
    version.name = body.name.unwrap_or_else(|| version.name.take());
    version.system = body.instructions.unwrap_or_else(|| version.system.take());
    if let Some(metadata) = body.metadata {
        let metadata = metadata.unwrap_or_default();
        metadata::check_texts(&metadata)?;
        version.metadata = metadata;
    }
    match body.reasoning {
        Some(Some(reasoning)) => {
            let shown = json!({"effort": reasoning["effort"], "summary": reasoning["summary"]});
            version.extra.insert("reasoning".to_owned(), shown);
        }
        Some(None) => drop(version.extra.remove("reasoning")),
        None => {}
    }
    if let Some(listed) = body.tools {
        version.tools = tools(&listed.unwrap_or_default())?;
    }
    Ok(())
}

/// Adds the fields of an agent that have no effect. Names begin with `prefix`.
pub(in super::super) fn add_ignored(agent: &Value, prefix: &str, ignored: &mut IgnoredFields) {
    for name in ["service_tier", "compaction", "experimental", "reasoning"] {
        ignored.add(&format!("{prefix}{name}"), Some(&agent[name]));
    }
    ignored.add(&format!("{prefix}text.verbosity"), Some(&agent["text"]["verbosity"]));
    let tools = agent["tools"].as_array();
    for name in ["defer_loading", "connection_origin", "context_size", "location"] {
        let sent = tools.into_iter().flatten().map(|tool| &tool[name]).find(|value| asks(value));
        ignored.add(&format!("{prefix}tools.{name}"), sent);
    }
}

fn tools(listed: &[Value]) -> Result<AgentTools, ApiError> {
    let mut tools = AgentTools { permissions: ToolPermissions::Allow, ..AgentTools::default() };
    for (index, tool) in listed.iter().enumerate() {
        let place = format!("tools[{index}]");
        let wrong = |text: String| ApiError::bad_request(format!("{place}{text}"));
        match tool["type"].as_str() {
            Some("function") => {
                refuse(&place, tool, &["async"])?;
                let client = client_tool(tool, "parameters", &place)?;
                tools.listed.push(tool_shapes::openai_function(
                    &json!(client.name),
                    &json!(client.description),
                    &json!(client.input_schema),
                ));
                tools.client.push(client);
            }
            Some("mcp") => {
                refuse(&place, tool, &["credential_id", "request_metadata", "required"])?;
                // A list without tools would forbid them all.
                if !tool["allowed_tools"].is_null() {
                    let text = ".allowed_tools: Hob does not restrict the tools of an MCP server";
                    return Err(wrong(text.to_owned()));
                }
                let (label, transport) = (tool["server_label"].as_str(), &tool["transport"]);
                let (Some(label), Some(url)) = (label, transport["server_url"].as_str()) else {
                    return Err(wrong(
                        ": must have a server_label and an HTTP transport".to_owned(),
                    ));
                };
                let mut headers = transport["headers"].as_object().cloned().unwrap_or_default();
                if headers.values().any(|value| !value.is_string()) {
                    return Err(wrong(".transport.headers: must be a table of strings".to_owned()));
                }
                if let Some(authorization) = transport["authorization"].as_str() {
                    headers.insert("Authorization".to_owned(), json!(authorization));
                }
                tools.listed.push(tool_shapes::openai_server(label, url));
                let (name, url) = (label.to_owned(), url.to_owned());
                tools.mcp_servers.push(McpServer { name, url, headers });
            }
            // The agent searches the web by itself.
            Some("web_search") => {
                refuse(&place, tool, &["allowed_domains"])?;
                if !matches!(tool["mode"].as_str(), None | Some("live")) {
                    return Err(wrong(
                        ".mode: must be live; Hob does not restrict the search".to_owned(),
                    ));
                }
                tools.listed.push(json!({"type": "web_search", "allowed_domains": null,
                    "context_size": "medium", "location": null, "mode": "live"}));
            }
            Some(other) => return Err(wrong(format!(".type: Hob does not support {other:?}"))),
            None => return Err(wrong(".type: must be a string".to_owned())),
        }
    }
    check_names(&tools.client)?;
    Ok(tools)
}

/// Refuses fields of a tool that Hob cannot honour.
fn refuse(place: &str, tool: &Value, names: &[&str]) -> Result<(), ApiError> {
    match names.iter().find(|name| asks(&tool[**name])) {
        Some(name) => {
            Err(ApiError::bad_request(format!("{place}.{name}: Hob does not support it")))
        }
        None => Ok(()),
    }
}

pub(in super::super) async fn get(
    gateway: &Gateway,
    app: &AppName,
    id: &str,
) -> Result<Value, ApiError> {
    let (entry, document) = agents::find(gateway, app, id).await?;
    Ok(objects::agent(&entry, &document))
}

pub(in super::super) async fn update(
    gateway: &Gateway,
    app: &AppName,
    id: &str,
    body: Value,
) -> Result<Value, ApiError> {
    let body: AgentBody = parse(body)?;
    let (entry, document) = agents::change(gateway, app, id, |document| {
        let mut version = document.newest().clone();
        apply(&mut version, body)?;
        document.add(version);
        Ok(())
    })
    .await?;
    Ok(objects::agent(&entry, &document))
}

pub(in super::super) async fn list(
    gateway: &Gateway,
    app: &AppName,
    query: &Query,
) -> Result<Value, ApiError> {
    let mut found = Vec::new();
    query.is_set("include_archived")?;
    for entry in &gateway.catalog.list(app, DocumentKind::Agent).await? {
        let document = AgentDocument::of(entry)?;
        if document.archived_at.is_none() {
            found.push(objects::agent(entry, &document));
        }
    }
    if query.is_descending("desc")? {
        found.reverse();
    }
    openai_page(found, query)
}

pub(in super::super) async fn delete(
    gateway: &Gateway,
    app: &AppName,
    id: &str,
) -> Result<Value, ApiError> {
    match gateway.catalog.delete(app, DocumentKind::Agent, id).await? {
        true => Ok(json!({"id": id, "object": "agent.deleted", "deleted": true})),
        false => Err(ApiError::NotFound(format!("no agent {id:?}"))),
    }
}
