//! `/v1/agents` of Anthropic's API.

use hob_domain::{AppName, DocumentKind, Timestamp};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::objects;
use crate::client_tool::{check_names, client_tool};
use crate::error::ApiError;
use crate::routes::v1::agent_sessions::agents::{
    self, AgentDocument, AgentTools, AgentVersion, McpServer, ToolPermissions,
};
use crate::routes::v1::agent_sessions::body::{parse, present};
use crate::routes::v1::agent_sessions::cursor::{Query, anthropic_page};
use crate::routes::v1::agent_sessions::tool_shapes;
use crate::routes::v1::ignored::IgnoredFields;
use crate::routes::v1::{metadata, models};
use crate::state::Gateway;

/// The settings of a model that an agent keeps.
const MODEL_SETTINGS: [&str; 3] = ["effort", "speed", "inference_geo"];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Create {
    model: Value,
    name: String,
    description: Option<String>,
    system: Option<String>,
    metadata: Option<Map<String, Value>>,
    tools: Option<Vec<Value>>,
    mcp_servers: Option<Vec<Value>>,
    skills: Option<Vec<Value>>,
    multiagent: Option<Value>,
    execution_identity: Option<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Update {
    version: Option<u32>,
    model: Option<Value>,
    name: Option<String>,
    // A field that is null is cleared, a field that is absent stays.
    #[serde(default, deserialize_with = "present")]
    description: Option<Option<String>>,
    #[serde(default, deserialize_with = "present")]
    system: Option<Option<String>>,
    metadata: Option<Map<String, Value>>,
    #[serde(default, deserialize_with = "present")]
    tools: Option<Option<Vec<Value>>>,
    #[serde(default, deserialize_with = "present")]
    mcp_servers: Option<Option<Vec<Value>>>,
    skills: Option<Vec<Value>>,
    multiagent: Option<Value>,
    execution_identity: Option<Value>,
}

pub(in super::super) async fn create(
    gateway: &Gateway,
    app: &AppName,
    body: Value,
) -> Result<Value, ApiError> {
    let body: Create = parse(body)?;
    refuse_extras(body.skills, body.multiagent, body.execution_identity)?;
    let (model, extra) = model(&body.model)?;
    check_name(&body.name)?;
    let metadata = body.metadata.unwrap_or_default();
    metadata::check_texts(&metadata)?;
    let version = AgentVersion {
        version: 1,
        at: Timestamp::now(),
        name: Some(body.name),
        description: body.description,
        model,
        system: body.system,
        metadata,
        extra,
        tools: tools(body.tools.as_deref(), body.mcp_servers.as_deref())?,
    };
    let entry = agents::create(gateway, app, version).await?;
    let document = AgentDocument::of(&entry)?;
    Ok(objects::agent(&entry, &document, document.newest()))
}

pub(in super::super) async fn get(
    gateway: &Gateway,
    app: &AppName,
    id: &str,
    query: &Query,
) -> Result<Value, ApiError> {
    let (entry, document) = agents::find(gateway, app, id).await?;
    let version = document.version(wanted_version(query)?)?;
    Ok(objects::agent(&entry, &document, version))
}

/// Returns the version of an agent that a request asks for, if any.
pub(in crate::routes::v1::agent_sessions) fn wanted_version(
    query: &Query,
) -> Result<Option<u32>, ApiError> {
    let number = query.get("version").map(|text| text.parse()).transpose();
    number.map_err(|_| ApiError::bad_request("version: must be a whole number"))
}

pub(in super::super) async fn update(
    gateway: &Gateway,
    app: &AppName,
    id: &str,
    body: Value,
) -> Result<Value, ApiError> {
    let body: Update = parse(body)?;
    refuse_extras(body.skills, body.multiagent, body.execution_identity)?;
    let (entry, document) = agents::change(gateway, app, id, |document| {
        if document.archived_at.is_some() {
            return Err(ApiError::bad_request("the agent is archived"));
        }
        let mut version = document.newest().clone();
        if body.version.is_some_and(|number| number != version.version) {
            let text =
                format!("version: out of date; the agent's current version is {}", version.version);
            return Err(ApiError::bad_request(text));
        }
        if let Some(value) = &body.model {
            (version.model, version.extra) = model(value)?;
        }
        if let Some(name) = body.name {
            check_name(&name)?;
            version.name = Some(name);
        }
        version.description = body.description.unwrap_or(version.description);
        version.system = body.system.unwrap_or(version.system);
        metadata::merge(&mut version.metadata, body.metadata.unwrap_or_default())?;
        let tools = body.tools.map(Option::unwrap_or_default);
        change_tools(&mut version, tools, body.mcp_servers.map(Option::unwrap_or_default))?;
        document.add(version);
        Ok(())
    })
    .await?;
    Ok(objects::agent(&entry, &document, document.newest()))
}

pub(in super::super) async fn list(
    gateway: &Gateway,
    app: &AppName,
    query: &Query,
) -> Result<Value, ApiError> {
    let mut agents = Vec::new();
    let with_archived = query.is_set("include_archived")?;
    let created = query.times("created_at")?;
    for entry in gateway.catalog.list(app, DocumentKind::Agent).await?.iter().rev() {
        let document = AgentDocument::of(entry)?;
        let is_shown = document.archived_at.is_none() || with_archived;
        if is_shown && created.contains(entry.created_at) {
            agents.push(objects::agent(entry, &document, document.newest()));
        }
    }
    anthropic_page(agents, query)
}

pub(in super::super) async fn archive(
    gateway: &Gateway,
    app: &AppName,
    id: &str,
) -> Result<Value, ApiError> {
    let (entry, document) = agents::change(gateway, app, id, |document| {
        document.archived_at.get_or_insert(Timestamp::now());
        Ok(())
    })
    .await?;
    Ok(objects::agent(&entry, &document, document.newest()))
}

pub(in super::super) async fn versions(
    gateway: &Gateway,
    app: &AppName,
    id: &str,
    query: &Query,
) -> Result<Value, ApiError> {
    let (entry, document) = agents::find(gateway, app, id).await?;
    let versions = document.versions.iter().rev();
    // All versions have the agent's id, so a page ends with the number of its last version.
    let limit = query.limit()?;
    let before: u32 = query.get("page").and_then(|page| page.parse().ok()).unwrap_or(u32::MAX);
    let mut versions: Vec<&AgentVersion> =
        versions.filter(|version| version.version < before).collect();
    let has_more = versions.len() > limit;
    versions.truncate(limit);
    let next = versions.last().filter(|_| has_more).map(|version| version.version.to_string());
    let data: Vec<Value> =
        versions.into_iter().map(|version| objects::agent(&entry, &document, version)).collect();
    Ok(json!({"data": data, "next_page": next}))
}

fn check_name(name: &str) -> Result<(), ApiError> {
    match name.trim().is_empty() || name.len() > 256 {
        true => Err(ApiError::bad_request("name: must be 1 to 256 bytes")),
        false => Ok(()),
    }
}

fn refuse_extras(
    skills: Option<Vec<Value>>,
    multiagent: Option<Value>,
    identity: Option<Value>,
) -> Result<(), ApiError> {
    let refused = [
        ("skills", skills.is_some_and(|skills| !skills.is_empty())),
        ("multiagent", multiagent.is_some_and(|value| !value.is_null())),
        (
            "execution_identity",
            identity.is_some_and(|value| !value.is_null() && value["type"] != "service_account"),
        ),
    ];
    match refused.iter().find(|(_, is_sent)| *is_sent) {
        Some((name, _)) => Err(ApiError::bad_request(format!("{name}: Hob does not support it"))),
        None => Ok(()),
    }
}

/// Adds the fields of an agent that have no effect: Hob shows them, and the agent program decides by itself.
pub(in super::super) fn add_ignored(agent: &Value, prefix: &str, ignored: &mut IgnoredFields) {
    for name in MODEL_SETTINGS {
        ignored.add(&format!("{prefix}model.{name}"), Some(&agent["model"][name]));
    }
}

/// Reads a model: its name, or its configuration.
pub(super) fn model(value: &Value) -> Result<(String, Map<String, Value>), ApiError> {
    let name = value.as_str().or_else(|| value["id"].as_str());
    let name =
        name.ok_or_else(|| ApiError::bad_request("model: must be a name or an object with an id"))?;
    models::check_model(name)?;
    let mut extra = Map::new();
    for key in MODEL_SETTINGS {
        match &value[key] {
            Value::Null => {}
            Value::String(word) if key == "effort" => {
                drop(extra.insert(key.to_owned(), json!({"type": word})))
            }
            value => drop(extra.insert(key.to_owned(), value.clone())),
        }
    }
    Ok((name.to_owned(), extra))
}

/// Replaces the tools of an agent, its MCP servers, or both. What is not given stays.
pub(super) fn change_tools(
    version: &mut AgentVersion,
    listed: Option<Vec<Value>>,
    servers: Option<Vec<Value>>,
) -> Result<(), ApiError> {
    if listed.is_none() && servers.is_none() {
        return Ok(());
    }
    let old = version.tools.clone();
    let listed = listed.unwrap_or_else(|| tool_shapes::anthropic(&old));
    let servers = servers.unwrap_or_else(|| tool_shapes::anthropic_servers(&old));
    version.tools = tools(Some(&listed), Some(&servers))?;
    version.tools.keep_headers(&old);
    Ok(())
}

/// Reads the tools of an agent and its MCP servers.
pub(super) fn tools(
    listed: Option<&[Value]>,
    servers: Option<&[Value]>,
) -> Result<AgentTools, ApiError> {
    let mut tools = AgentTools::default();
    for (index, server) in servers.unwrap_or_default().iter().enumerate() {
        let (Some(name), Some(url)) = (server["name"].as_str(), server["url"].as_str()) else {
            let text = format!("mcp_servers[{index}]: must have a name and a url");
            return Err(ApiError::bad_request(text));
        };
        let (name, url) = (name.to_owned(), url.to_owned());
        tools.mcp_servers.push(McpServer { name, url, headers: Map::new() });
    }
    let mut asked = None;
    for (index, tool) in listed.unwrap_or_default().iter().enumerate() {
        let place = format!("tools[{index}]");
        match tool["type"].as_str() {
            Some("custom") => {
                tools.client.push(client_tool(tool, "input_schema", &place)?);
                tools.listed.push(tool.clone());
            }
            Some(tool_shapes::AGENT_TOOLSET) => {
                let (policy, shown) = toolset(&place, tool)?;
                asked = asked.max(Some(policy));
                tools.listed.push(shown);
            }
            Some("mcp_toolset") => {
                let name = tool["mcp_server_name"].as_str().unwrap_or_default();
                if !tools.mcp_servers.iter().any(|server| server.name == name) {
                    let text = format!("{place}.mcp_server_name: mcp_servers has no {name:?}");
                    return Err(ApiError::bad_request(text));
                }
                let (policy, mut shown) = toolset(&place, tool)?;
                asked = asked.max(Some(policy));
                shown["mcp_server_name"] = json!(name);
                tools.listed.push(shown);
            }
            _ => {
                let text =
                    format!("{place}.type: must be agent_toolset_20260401, mcp_toolset or custom");
                return Err(ApiError::bad_request(text));
            }
        }
    }
    check_names(&tools.client)?;
    tools.permissions = asked.unwrap_or_default();
    Ok(tools)
}

/// Reads a set of tools. The strictest of its policies holds for all of them.
fn toolset(place: &str, tool: &Value) -> Result<(ToolPermissions, Value), ApiError> {
    let policy = |place: &str, config: &Value| match config["permission_policy"]["type"].as_str() {
        None => Ok(None),
        Some("always_allow") => Ok(Some(ToolPermissions::Allow)),
        Some("always_ask") => Ok(Some(ToolPermissions::Ask)),
        Some(other) => Err(ApiError::bad_request(format!(
            "{place}.permission_policy.type: Hob does not support {other:?}; send always_allow or always_ask"
        ))),
    };
    let word = |policy: ToolPermissions| match policy {
        ToolPermissions::Allow => json!({"type": "always_allow"}),
        _ => json!({"type": "always_ask"}),
    };
    let refuse_disabled = |place: &str, config: &Value| match config["enabled"] == false {
        true => Err(ApiError::bad_request(format!(
            "{place}.enabled: must be true or omitted; Hob does not disable tools"
        ))),
        false => Ok(()),
    };
    let default_place = format!("{place}.default_config");
    refuse_disabled(&default_place, &tool["default_config"])?;
    let default =
        policy(&default_place, &tool["default_config"])?.unwrap_or(ToolPermissions::Allow);
    let mut strictest = default;
    let mut configs = Vec::new();
    for (index, config) in tool["configs"].as_array().into_iter().flatten().enumerate() {
        let place = format!("{place}.configs[{index}]");
        if !config.is_object() {
            return Err(ApiError::bad_request(format!("{place}: must be an object")));
        }
        refuse_disabled(&place, config)?;
        let own = policy(&place, config)?.unwrap_or(default);
        strictest = strictest.max(own);
        let mut shown = config.clone();
        shown["enabled"] = json!(true);
        shown["permission_policy"] = word(own);
        if shown["type"].is_null() && tool["type"] == tool_shapes::AGENT_TOOLSET {
            shown["type"] = config["name"].clone();
        }
        configs.push(shown);
    }
    let shown = json!({"type": tool["type"], "configs": configs,
        "default_config": {"enabled": true, "permission_policy": word(default)}});
    Ok((strictest, shown))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permissions(listed: Value) -> Result<ToolPermissions, String> {
        let listed = listed.as_array().unwrap().clone();
        tools(Some(&listed), None).map(|tools| tools.permissions).map_err(|error| match error {
            ApiError::BadRequest { message, .. } => message,
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn strictest_policy_holds() {
        let set = |more: Value| {
            let mut set = json!({"type": "agent_toolset_20260401"});
            set.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            json!([set])
        };
        assert_eq!(permissions(json!([])), Ok(ToolPermissions::Deny));
        assert_eq!(permissions(set(json!({}))), Ok(ToolPermissions::Allow));
        let ask = json!({"type": "always_ask"});
        let config = json!({"configs": [{"name": "bash", "permission_policy": ask}]});
        assert_eq!(permissions(set(config)), Ok(ToolPermissions::Ask));
        let auto = json!({"default_config": {"permission_policy": {"type": "auto"}}});
        let error = permissions(set(auto)).unwrap_err();
        assert!(error.contains("tools[0].default_config.permission_policy.type"), "{error}");
        let text = json!({"configs": ["bash"]});
        assert!(permissions(set(text)).unwrap_err().contains("tools[0].configs[0]"));
        let off = json!({"configs": [{"name": "bash", "enabled": false}]});
        assert!(permissions(set(off)).unwrap_err().contains("tools[0].configs[0].enabled"));
        assert!(permissions(json!([{"type": "x"}])).unwrap_err().contains("tools[0].type"));
        assert!(
            permissions(json!([{"type": "mcp_toolset", "mcp_server_name": "m"}]))
                .unwrap_err()
                .contains("mcp_server_name")
        );
    }
}
