//! What the vendors' session APIs take and show: fields, filters, and tools in each API's own shape.

use serde_json::{Value, json};

use crate::api::*;
use crate::v1_anthropic::*;

/// Creates a session of the scripted ACP agent by OpenAI's API, with further fields.
fn openai_session(api: &Api, more: &Value) -> hob_testkit::server::Answer {
    let mut body = json!({"environment": {"type": "none"}, "agent": {"model": "acp"}});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    api.post("/v1/agents/sessions", &body)
}

fn id_of(answer: &hob_testkit::server::Answer) -> String {
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.json()["id"].as_str().unwrap().to_owned()
}

fn ignored(answer: &hob_testkit::server::Answer) -> &str {
    answer.headers.get("x-hob-ignored").map_or("", |value| value.to_str().unwrap())
}

#[test]
fn stream_options_are_accepted() {
    let api = api("");
    let body = json!({"environment": {"type": "none"}, "agent": {"model": "acp"}, "input": "hi",
        "stream": true, "stream_options": {"include_obfuscation": false}});
    let mut stream = api.stream("POST", "/v1/agents/sessions", &[], &body);
    assert_eq!(stream.status(), 200);
    let events = stream.until(|event| event.kind == "agent.session.idle");
    assert_eq!(events[0].kind, "agent.session.created");
    let padded =
        json!({"stream": true, "input": "hi", "stream_options": {"include_obfuscation": true}});
    assert_eq!(ignored(&openai_session(&api, &padded)), "stream_options.include_obfuscation");
    for wrong in [
        json!({"stream_options": {"include_obfuscation": false}}),
        json!({"stream": true, "input": "hi", "stream_options": {"colour": 1}}),
    ] {
        let refused = openai_session(&api, &wrong);
        assert!(
            refused.status == 400 && refused.text.contains("stream_options"),
            "{}",
            refused.text
        );
    }
}

#[test]
fn null_clears_what_an_update_names() {
    let api = api("");
    let id = id_of(&openai_session(&api, &json!({"metadata": {"a": "1"}})));
    let path = format!("/v1/agents/sessions/{id}");
    let metadata = |body: Value| api.post(&path, &body).json()["metadata"].clone();
    assert_eq!(metadata(json!({})), json!({"a": "1"}), "what is absent stays");
    assert_eq!(metadata(json!({"metadata": {"b": "2"}})), json!({"b": "2"}));
    assert_eq!(metadata(json!({"metadata": null})), json!({}));
    // An agent of OpenAI's API.
    let body = json!({"model": "acp", "name": "n", "instructions": "i", "metadata": {"a": "1"},
        "tools": [{"type": "web_search"}]});
    let path = format!("/v1/agents/{}", id_of(&api.post("/v1/agents", &body)));
    let nulls = json!({"name": null, "instructions": null, "metadata": null, "tools": null});
    let agent = api.post(&path, &nulls).json();
    assert_eq!((&agent["name"], &agent["instructions"]), (&Value::Null, &Value::Null), "{agent}");
    assert_eq!((&agent["metadata"], &agent["tools"]), (&json!({}), &json!([])), "{agent}");
    // Anthropic's metadata are changed key by key, so null changes nothing.
    let anthropic = Anthropic(&api);
    let id = anthropic.session("acp", &json!([]));
    let changed = json!({"metadata": null, "title": null, "budget": null});
    let session = anthropic.post(&format!("/v1/sessions/{id}"), &changed);
    assert_eq!((&session["metadata"], &session["title"]), (&json!({"k": "v"}), &Value::Null));
    let body = json!({"name": "e", "description": "d", "metadata": {"a": "1", "b": "2"}});
    let place = anthropic.post("/v1/environments", &body);
    let path = format!("/v1/environments/{}", place["id"].as_str().unwrap());
    let place = anthropic.post(&path, &json!({"description": null, "metadata": {"a": ""}}));
    assert_eq!((&place["description"], &place["metadata"]), (&Value::Null, &json!({"b": "2"})));
}

#[test]
fn overrides_keep_what_they_do_not_name() {
    let api = api("");
    let anthropic = Anthropic(&api);
    let server = json!({"type": "url", "name": "m", "url": "http://127.0.0.1:9/mcp"});
    let toolset = json!({"type": "mcp_toolset", "mcp_server_name": "m"});
    let agent = anthropic.post(
        "/v1/agents",
        &json!({"name": "a", "model": "demo", "mcp_servers": [server], "tools": [toolset]}),
    );
    let environment = anthropic.post("/v1/environments", &json!({"name": "e"}));
    let session = |overrides: Value| {
        let mut agent = json!({"type": "agent_with_overrides", "id": agent["id"]});
        agent.as_object_mut().unwrap().extend(overrides.as_object().unwrap().clone());
        anthropic.post(
            "/v1/sessions",
            &json!({"agent": agent, "environment_id": environment["id"]}),
        )["agent"]
            .clone()
    };
    let more = session(json!({"tools": [{"type": "agent_toolset_20260401"}, toolset]}));
    assert_eq!(
        (&more["mcp_servers"], more["tools"].as_array().unwrap().len()),
        (&json!([server]), 2)
    );
    let same = session(json!({"system": "S"}));
    assert_eq!((&same["mcp_servers"], &same["system"]), (&json!([server]), &json!("S")));
    let none = session(json!({"tools": [], "mcp_servers": []}));
    assert_eq!((&none["mcp_servers"], &none["tools"]), (&json!([]), &json!([])));
}

#[test]
fn tools_are_shown_in_the_shape_of_the_api_that_reads_them() {
    let api = api("");
    let anthropic = Anthropic(&api);
    let function = json!({"type": "function", "name": "add", "description": "Adds.",
        "parameters": {"type": "object", "properties": {"a": {"type": "number"}}}});
    let server = json!({"type": "mcp", "server_label": "m",
        "transport": {"type": "http", "server_url": "http://127.0.0.1:9/mcp"}});
    let agent = api.post("/v1/agents", &json!({"model": "demo", "tools": [function, server]}));
    let seen = anthropic.get(&format!("/v1/agents/{}", id_of(&agent)));
    let tools = seen["tools"].as_array().unwrap();
    assert_eq!(types(tools), ["agent_toolset_20260401", "custom", "mcp_toolset"]);
    assert_eq!(
        (&tools[1]["name"], &tools[1]["input_schema"]),
        (&json!("add"), &function["parameters"])
    );
    assert_eq!(seen["mcp_servers"][0]["name"], "m");
    let id = id_of(&openai_session(&api, &json!({"agent": {"model": "acp", "tools": [function]}})));
    let seen = anthropic.get(&format!("/v1/sessions/{id}"));
    assert_eq!(
        types(seen["agent"]["tools"].as_array().unwrap()),
        ["agent_toolset_20260401", "custom"]
    );
    // The other way round, and from Hob's own API.
    let mut custom = add_tool();
    custom["type"] = json!("custom");
    let ids = [
        anthropic.session("acp", &json!([custom, {"type": "agent_toolset_20260401"}])),
        api.create(&json!({"agent": "acp", "tools": [add_tool()]})),
    ];
    for id in ids {
        let seen = api.get(&format!("/v1/agents/sessions/{id}")).json();
        let tools = seen["agent"]["tools"].as_array().unwrap();
        assert_eq!(types(tools), ["function"], "{seen}");
        assert_eq!(tools[0]["parameters"], custom["input_schema"]);
        let seen = anthropic.get(&format!("/v1/sessions/{id}"));
        let own = seen["agent"]["tools"].as_array().unwrap().clone();
        assert!(own.iter().any(|tool| tool["type"] == "custom" && tool["name"] == "add"), "{seen}");
    }
}

#[test]
fn models_have_their_types_fields_and_full_names_are_found() {
    let api = api("");
    let anthropic = Anthropic(&api);
    for name in
        ["sonnet", "claude-opus-5-5", "us.anthropic.claude-opus-5-5-v1:0", "acp", "acp%2Ffast"]
    {
        let model = anthropic.get(&format!("/v1/models/{name}"));
        assert_eq!((&model["type"], &model["lifecycle"]), (&json!("model"), &json!("active")));
        assert_eq!(model["id"], name.replace("%2F", "/"));
        assert_eq!(api.get(&format!("/v1/models/{name}")).json()["object"], "model");
    }
    for listed in anthropic.get("/v1/models")["data"].as_array().unwrap() {
        assert_eq!(listed["lifecycle"], "active", "{listed}");
    }
    for name in ["nobody", "nobody%2Ffast", "acp%2F", "claude-"] {
        assert_eq!(api.get(&format!("/v1/models/{name}")).status, 404, "{name}");
    }
}

#[test]
fn fields_that_cannot_be_honoured_are_refused_and_others_named() {
    let api = api("");
    let transport = json!({"type": "http", "server_url": "http://127.0.0.1:9/mcp"});
    let server = |field: &str, value: Value| json!({"type": "mcp", "server_label": "m", "transport": transport, field: value});
    for (tool, field) in [
        (server("allowed_tools", json!(["read"])), "tools[0].allowed_tools"),
        (server("required", json!(true)), "tools[0].required"),
        (server("credential_id", json!("c")), "tools[0].credential_id"),
        (json!({"type": "web_search", "allowed_domains": ["a.org"]}), "tools[0].allowed_domains"),
        (json!({"type": "web_search", "mode": "disabled"}), "tools[0].mode"),
        (json!({"type": "function", "name": "f", "async": true}), "tools[0].async"),
    ] {
        let refused = api.post("/v1/agents", &json!({"model": "demo", "tools": [tool]}));
        assert_eq!(refused.status, 400, "{tool}: {}", refused.text);
        assert_eq!(refused.json()["error"]["param"], field, "{}", refused.text);
    }
    let body = json!({"model": "demo", "service_tier": "flex", "reasoning": {"effort": "low"},
        "tools": [{"type": "web_search", "context_size": "low", "allowed_domains": null}]});
    let agent = api.post("/v1/agents", &body);
    assert_eq!(ignored(&agent), "service_tier, reasoning, tools.context_size", "{}", agent.text);
    let hosted =
        |field: &str, value: Value| json!({"environment": {"type": "openai_hosted", field: value}});
    let small = openai_session(&api, &hosted("container_size", json!("small")));
    assert_eq!(ignored(&small), "environment.container_size", "{}", small.text);
    for (field, value) in [
        ("environment_id", json!("env_1")),
        ("env", json!({"A": "1"})),
        ("desktop", json!({"enabled": true})),
    ] {
        let refused = openai_session(&api, &hosted(field, value));
        assert_eq!(refused.status, 400, "{field}: {}", refused.text);
        assert!(refused.text.contains(&format!("environment.{field}")), "{}", refused.text);
    }
    let anthropic = Anthropic(&api);
    let body = json!({"name": "a", "model": {"id": "demo", "effort": "low"}});
    assert_eq!(ignored(&anthropic.call("POST", "/v1/agents", Some(&body))), "model.effort");
    for (body, field) in [
        (json!({"name": "e", "scope": "account"}), "scope"),
        (json!({"name": "e", "config": {"type": "cloud", "gpu": 1}}), "config.gpu"),
        (
            json!({"name": "e", "config": {"type": "cloud", "networking": {"type": "none"}}}),
            "config.networking",
        ),
    ] {
        let refused = anthropic.call("POST", "/v1/environments", Some(&body));
        assert!(refused.status == 400 && refused.text.contains(field), "{body}: {}", refused.text);
    }
}

#[test]
fn lists_have_the_filters_of_both_apis() {
    let api = api("");
    let anthropic = Anthropic(&api);
    let first = anthropic.session("acp", &json!([]));
    let second = id_of(&openai_session(&api, &json!({"metadata": {"team": "blue", "n": "1"}})));
    let ids = |list: &Value| -> Vec<String> {
        let data = list["data"].as_array().unwrap_or_else(|| panic!("{list}"));
        data.iter().map(|item| item["id"].as_str().unwrap().to_owned()).collect()
    };
    let listed = |query: &str| ids(&anthropic.get(&format!("/v1/sessions?{query}")));
    let made = anthropic.get(&format!("/v1/sessions/{second}"))["created_at"].clone();
    let made = made.as_str().unwrap();
    assert_eq!(listed("order=asc"), [first.as_str(), second.as_str()]);
    assert_eq!(listed(&format!("created_at[gte]={made}")), [second.as_str()]);
    assert_eq!(listed(&format!("created_at[lt]={made}")), [first.as_str()]);
    let agent = anthropic.get(&format!("/v1/sessions/{first}"))["agent"]["id"].clone();
    let agent = agent.as_str().unwrap();
    assert_eq!(listed(&format!("agent_id={agent}&agent_version=1")), [first.as_str()]);
    assert!(listed(&format!("agent_id={agent}&agent_version=2")).is_empty());
    assert!(listed("memory_store_id=memstore_none").is_empty());
    assert!(listed("deployment_id=d").is_empty());
    let wrong = anthropic.call("GET", "/v1/sessions?created_at[gt]=yesterday", None);
    assert!(wrong.status == 400 && wrong.text.contains("created_at[gt]"), "{}", wrong.text);
    let agents = anthropic.get("/v1/agents?created_at[gte]=2100-01-01T00:00:00Z");
    assert_eq!(agents["data"], json!([]));
    let found = |query: &str| ids(&api.get(&format!("/v1/agents/sessions?{query}")).json());
    assert_eq!(found("metadata[team]=blue&metadata[n]=1"), [second]);
    assert!(found("metadata[team]=blue&metadata[n]=2").is_empty());
    // Events.
    anthropic.say(&first, "hi");
    let events = anthropic.idle(&first, "end_turn");
    let end = events.last().unwrap()["processed_at"].as_str().unwrap();
    let later = anthropic.get(&format!("/v1/sessions/{first}/events?created_at[gt]={end}"));
    assert_eq!(later["data"], json!([]));
    let until =
        anthropic.get(&format!("/v1/sessions/{first}/events?limit=100&created_at[lte]={end}"));
    assert_eq!(until["data"], json!(events));
}

#[test]
fn message_of_a_denial_is_kept() {
    let api = api("");
    let anthropic = Anthropic(&api);
    let id = anthropic.session("acp", &all_tools("always_ask"));
    anthropic.say(&id, "[[permission touch x]]");
    let events = anthropic.idle(&id, "requires_action");
    let asked = events.iter().rfind(|event| event["type"] == "agent.tool_use").unwrap();
    let answer = |result: &str| {
        json!({"type": "user.tool_confirmation", "tool_use_id": asked["id"], "result": result,
            "deny_message": "not here"})
    };
    let path = format!("/v1/sessions/{id}/events");
    let refused = anthropic.call("POST", &path, Some(&json!({"events": [answer("allow")]})));
    assert!(refused.status == 400 && refused.text.contains("deny_message"), "{}", refused.text);
    let sent = anthropic.send(&id, answer("deny"));
    let events = anthropic.idle(&id, "end_turn");
    let logged = events.iter().find(|event| event["type"] == "user.tool_confirmation").unwrap();
    assert_eq!((&logged["result"], &logged["deny_message"]), (&json!("deny"), &json!("not here")));
    assert_eq!(sent["data"][0]["id"], logged["id"]);
}
