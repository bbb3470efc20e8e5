//! The vendors' session APIs on the scripted agents. The official SDKs run them as well, in `e2e_v1`.

use hob_testkit::{TestHome, wait_until};
use serde_json::{Value, json};

use crate::api::*;
use crate::backend::{Backend, backend_tests};
use crate::v1_anthropic::*;

backend_tests!([file, cluster]: [
    session_is_one_session_in_all_apis,
    confirmation_reaches_the_agent,
    result_of_a_callers_tool_reaches_the_agent,
    vendor_sessions_go_on_after_a_kill,
    models_that_an_agent_offers_are_listed,
]);

fn session_is_one_session_in_all_apis(backend: Backend) {
    let api = backend.api("");
    let anthropic = Anthropic(&api);
    let id = anthropic.session("acp", &all_tools("always_allow"));
    let sent = anthropic.say(&id, "[[think hm]] [[say one]] [[say two]]");
    let events = anthropic.idle(&id, "end_turn");
    let expect = [
        "user.message",
        "session.status_running",
        "agent.thinking",
        "agent.message",
        "session.status_idle",
    ];
    assert_eq!(types(&events), expect);
    assert_eq!((&sent["data"][0]["id"], message(&events)), (&events[0]["id"], "onetwo".to_owned()));
    // Hob's own API and OpenAI's see the same session, and continue it.
    let described = api.describe(&id);
    assert_eq!((&described["turn_count"], &described["agent"]), (&json!(1), &json!("acp")));
    assert_eq!(described["meta"], json!({"k": "v", "title": "first"}));
    assert_eq!(api.ask(&id, "three"), "echo: three");
    let body = json!({"events": [{"type": "agent.session.input.message",
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "four"}]}]}]});
    let answer = api.post(&format!("/v1/agents/sessions/{id}/events"), &body);
    assert_eq!(answer.status, 204, "{}", answer.text);
    let events = wait_until("three turns are over", || {
        let events = anthropic.events(&id);
        let ended = events.iter().filter(|event| event["type"] == "session.status_idle").count();
        (ended == 3).then_some(events)
    });
    assert_eq!(message(&events), "echo: four");
    let items = api.get(&format!("/v1/agents/sessions/{id}/items?order=asc&limit=100")).json();
    let texts: Vec<&str> = items["data"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|item| item["content"][0]["text"].as_str())
        .collect();
    let prompt = "[[think hm]] [[say one]] [[say two]]";
    assert_eq!(texts, [prompt, "onetwo", "three", "echo: three", "four", "echo: four"]);
    let turns = api.get(&format!("/v1/agents/sessions/{id}/turns?limit=2")).json();
    assert_eq!((turns["data"].as_array().unwrap().len(), &turns["has_more"]), (2, &json!(true)));
    assert_eq!(turns["data"][0]["status"], "completed");
    // Pages follow each other.
    let mut paged = Vec::new();
    let mut page = String::new();
    loop {
        let found = anthropic.get(&format!("/v1/sessions/{id}/events?limit=4{page}"));
        paged.extend(found["data"].as_array().unwrap().clone());
        let Some(next) = found["next_page"].as_str() else { break };
        page = format!("&page={next}");
    }
    assert_eq!(paged, events);
    let renamed = anthropic.post(
        &format!("/v1/sessions/{id}"),
        &json!({"title": "second",
        "metadata": {"k": null, "n": "1"}}),
    );
    assert_eq!((&renamed["title"], &renamed["metadata"]), (&json!("second"), &json!({"n": "1"})));
    // Another app sees nothing of it.
    let other = api.server.client(&api.home.app("other"));
    for path in [format!("/v1/sessions/{id}"), format!("/v1/agents/sessions/{id}/items")] {
        assert_eq!(other.get(&path).status, 404, "{path}");
    }
    assert_eq!(other.get("/v1/agents").json()["data"], json!([]));
    let deleted = anthropic.call("DELETE", &format!("/v1/sessions/{id}"), None).json();
    assert_eq!(deleted, json!({"id": id, "type": "session_deleted"}));
    assert_eq!(anthropic.call("GET", &format!("/v1/sessions/{id}"), None).status, 404);
    assert_eq!(api.describe(&id)["state"], "closed");
}

fn confirmation_reaches_the_agent(backend: Backend) {
    let api = backend.api("");
    let anthropic = Anthropic(&api);
    let id = anthropic.session("acp", &all_tools("always_ask"));
    for (result, said) in [("allow", "permission touch x: yes"), ("deny", "permission touch x: no")]
    {
        anthropic.say(&id, "[[permission touch x]]");
        let events = anthropic.idle(&id, "requires_action");
        let asked = events.iter().rfind(|event| event["type"] == "agent.tool_use").unwrap();
        assert_eq!(asked["evaluated_permission"], "ask");
        assert_eq!(events.last().unwrap()["stop_reason"]["event_ids"], json!([asked["id"]]));
        assert_eq!(anthropic.get(&format!("/v1/sessions/{id}"))["status"], "idle");
        // OpenAI's API has no shape for the request: the session runs there, and nothing is required.
        let seen = api.get(&format!("/v1/agents/sessions/{id}")).json();
        assert_eq!(
            (&seen["status"], &seen["required_actions"]),
            (&json!("in_progress"), &json!([]))
        );
        // The agent runs this tool itself.
        let path = format!("/v1/sessions/{id}/events");
        let result_of_it = json!({"events": [{"type": "user.tool_result",
            "tool_use_id": asked["id"], "content": []}]});
        let refused = anthropic.call("POST", &path, Some(&result_of_it));
        assert_eq!(refused.status, 400, "{}", refused.text);
        assert!(refused.text.contains("the agent runs this tool itself"), "{}", refused.text);
        let answer = json!({"type": "user.tool_confirmation", "tool_use_id": asked["id"],
            "result": result});
        anthropic.send(&id, answer.clone());
        let events = anthropic.idle(&id, "end_turn");
        assert!(message(&events).starts_with(said), "{}", message(&events));
        let confirmed = events.iter().rfind(|event| event["type"] == "user.tool_confirmation");
        assert_eq!(confirmed.unwrap()["result"], result);
        // Nothing waits for this answer any more.
        let again = anthropic.call("POST", &path, Some(&json!({"events": [answer]})));
        assert_eq!(again.status, 404, "{}", again.text);
    }
}

fn result_of_a_callers_tool_reaches_the_agent(backend: Backend) {
    let api = backend.api(&TestHome::scripted_agent("stream", "claude-stream", &[]));
    for agent in ["claude", "stream", "acp"] {
        let mut tool = add_tool();
        tool["type"] = json!("custom");
        let anthropic = Anthropic(&api);
        let id = anthropic.session(agent, &json!([tool]));
        anthropic.say(&id, CALL);
        let events = anthropic.idle(&id, "requires_action");
        let called = events.iter().rfind(|event| event["type"] == "agent.custom_tool_use").unwrap();
        assert_eq!((&called["name"], &called["input"]), (&json!("add"), &json!({"a": 1})));
        let is_own = |event: &&Value| event["type"] == "agent.tool_use";
        assert_eq!(events.iter().find(is_own), None, "the call is shown once");
        let result = json!({"type": "user.custom_tool_result", "content": [{"type": "text",
            "text": "42"}], "custom_tool_use_id": called["id"]});
        anthropic.send(&id, result);
        assert_eq!(message(&anthropic.idle(&id, "end_turn")), "Got 42", "{agent}");
        // `user.tool_result` is the result of the call with this id, too.
        anthropic.say(&id, CALL);
        let events = anthropic.idle(&id, "requires_action");
        let called = events.iter().rfind(|event| event["type"] == "agent.custom_tool_use").unwrap();
        let result = json!({"type": "user.tool_result", "tool_use_id": called["id"],
            "content": [{"type": "text", "text": "43"}]});
        anthropic.send(&id, result);
        assert_eq!(message(&anthropic.idle(&id, "end_turn")), "Got 43", "{agent}");
        // The session's own API has the tool as well.
        let id = api.create(&json!({"agent": agent, "tools": [add_tool()]}));
        let turn = api.start_turn(&id, CALL);
        let call = wait_until("the agent calls the tool", || {
            let log = api.log(&id);
            let asked =
                |event: &&Value| event["event"] == "tool_call" && event["status"] == "asked";
            log.iter().find(asked).map(|event| event["call_id"].as_str().unwrap().to_owned())
        });
        let path = format!("/sessions/{id}/tool_results/{call}");
        assert_eq!(api.post(&path, &json!({"content": 1})).status, 400);
        let failed = json!({"content": "no", "is_error": true});
        assert_eq!(api.post(&path, &failed).status, 200);
        assert_eq!(api.post(&path, &failed).status, 404, "it has its result");
        let ended = api.wait_for_turn(&id, turn, "finished");
        assert_eq!(ended["text"], "Got no", "{agent}");
        // A turn that is cancelled while it waits leaves nothing.
        api.start_turn(&id, CALL);
        wait_until("the agent calls the tool again", || {
            let asked =
                |event: &&Value| event["event"] == "tool_call" && event["status"] == "asked";
            (api.log(&id).iter().filter(asked).count() == 2).then_some(())
        });
        assert_eq!(api.cancel(&id).status, 200);
        assert_eq!(api.ask(&id, "after"), "echo: after");
    }
}

fn vendor_sessions_go_on_after_a_kill(backend: Backend) {
    let api = backend.api("");
    let id = Anthropic(&api).session("acp", &all_tools("always_allow"));
    Anthropic(&api).say(&id, "[[say one]]");
    let before = Anthropic(&api).idle(&id, "end_turn");
    Anthropic(&api).say(&id, "[[hang]]");
    wait_until("the turn runs", || {
        (Anthropic(&api).get(&format!("/v1/sessions/{id}"))["status"] == "running").then_some(())
    });
    let api = api.restart_after(|server| server.kill());
    let anthropic = Anthropic(&api);
    let events = anthropic.idle(&id, "retries_exhausted");
    assert_eq!(events[..before.len()], before, "identities stay");
    assert!(types(&events).contains(&"session.error"), "{events:?}");
    anthropic.say(&id, "[[say {history}]]");
    let events = anthropic.idle(&id, "end_turn");
    assert!(message(&events).contains("one"), "the agent remembers: {}", message(&events));
    let agents = anthropic.get("/v1/agents");
    assert_eq!(agents["data"][0]["system"], "Be kind.");
}

#[test]
fn agents_have_versions() {
    let api = api("");
    let anthropic = Anthropic(&api);
    let agent = anthropic.post("/v1/agents", &json!({"name": "a", "model": "demo"}));
    let path = format!("/v1/agents/{}", agent["id"].as_str().unwrap());
    assert_eq!((&agent["version"], &agent["model"]["id"]), (&json!(1), &json!("demo")));
    let changed = anthropic.post(&path, &json!({"version": 1, "system": "S", "name": "b"}));
    assert_eq!((&changed["version"], &changed["system"]), (&json!(2), &json!("S")));
    let same = anthropic.post(&path, &json!({"version": 2, "system": "S", "name": "b"}));
    assert_eq!(same["version"], 2, "nothing has changed");
    let stale = anthropic.call("POST", &path, Some(&json!({"version": 1, "name": "c"})));
    assert_eq!(stale.status, 400, "{}", stale.text);
    assert_eq!(anthropic.get(&format!("{path}?version=1"))["name"], "a");
    let versions = anthropic.get(&format!("{path}/versions"));
    assert_eq!(versions["data"].as_array().unwrap().len(), 2);
    // OpenAI's API shows it in its own shape.
    let seen = api.get(&path).json();
    assert_eq!((&seen["object"], &seen["instructions"]), (&json!("agent"), &json!("S")));
    let archived = anthropic.post(&format!("{path}/archive"), &json!({}));
    assert!(archived["archived_at"].is_string(), "{archived}");
    assert_eq!(anthropic.get("/v1/agents")["data"], json!([]));
    let environment = anthropic.post("/v1/environments", &json!({"name": "e"}));
    let body = json!({"agent": agent["id"], "environment_id": environment["id"]});
    let refused = anthropic.call("POST", "/v1/sessions", Some(&body));
    assert_eq!(refused.status, 400, "{}", refused.text);
}

#[test]
fn unsupported_parts_of_session_apis_are_refused_by_name() {
    let api = api("");
    let anthropic = Anthropic(&api);
    let environment = anthropic.post("/v1/environments", &json!({"name": "e"}));
    let agent = anthropic.post("/v1/agents", &json!({"name": "a", "model": "demo"}));
    let (agent, environment) = (&agent["id"], &environment["id"]);
    for (path, body, word) in [
        ("/v1/agents", json!({"name": "a", "model": "demo", "skills": [{}]}), "skills"),
        ("/v1/agents", json!({"name": "a"}), "model"),
        ("/v1/agents", json!({"name": "a", "model": "demo", "colour": 1}), "colour"),
        ("/v1/environments", json!({"name": "e", "config": {"type": "moon"}}), "config.type"),
        (
            "/v1/environments",
            json!({"name": "e", "config": {"type": "cloud", "packages": {"pip": ["x"]}}}),
            "config.packages",
        ),
        (
            "/v1/sessions",
            json!({"agent": agent, "environment_id": environment, "vault_ids": ["v"]}),
            "vault_ids",
        ),
        (
            "/v1/sessions",
            json!({"agent": agent, "environment_id": environment, "resources": [{}]}),
            "resources",
        ),
    ] {
        let answer = anthropic.call("POST", path, Some(&body));
        assert_eq!(answer.status, 400, "{body}: {}", answer.text);
        let error = answer.json();
        assert_eq!(error["error"]["type"], "invalid_request_error", "{error}");
        assert!(error["error"]["message"].as_str().unwrap().contains(word), "{error}");
    }
    for (body, word) in [
        (
            json!({"environment": {"type": "none"}, "agent": {"tools": [{"type": "computer_use"}]}}),
            "tools[0]",
        ),
        (json!({"environment": {"type": "none"}, "review": "auto_review"}), "review"),
        (json!({"environment": {"type": "none"}, "stream": true}), "stream"),
        (json!({"environment": {"type": "moon"}}), "environment.type"),
        (json!({"environment": {"type": "self_hosted", "workspace_directory": "/etc"}}), "cwd"),
    ] {
        let answer = api.post("/v1/agents/sessions", &body);
        assert_eq!(answer.status, 400, "{body}: {}", answer.text);
        let error = answer.json();
        assert!(error["error"]["message"].as_str().unwrap().contains(word), "{body}: {error}");
    }
    assert_eq!(api.get("/sessions").json()["count"], 0, "nothing was created");
    // Events that Hob's sessions have nothing for.
    let id = anthropic.session("demo", &json!([]));
    let text = json!([{"type": "text", "text": "hi"}]);
    for (path, body, kind) in [
        (
            format!("/v1/sessions/{id}/events"),
            json!({"events": [{"type": "user.message", "content": text},
                {"type": "system.message", "content": text}]}),
            "system.message",
        ),
        (
            format!("/v1/sessions/{id}/events"),
            json!({"events": [{"type": "user.define_outcome", "description": "d"}]}),
            "user.define_outcome",
        ),
        (
            format!("/v1/agents/sessions/{id}/events"),
            json!({"events": [{"type": "agent.session.input.computer_use_approval_request_result",
                "request_id": "r", "response": {}}]}),
            "computer_use_approval_request_result",
        ),
    ] {
        let answer = anthropic.call("POST", &path, Some(&body));
        assert_eq!(answer.status, 400, "{body}: {}", answer.text);
        let error = answer.json();
        let message = error["error"]["message"].as_str().unwrap();
        assert!(message.contains("does not support") && message.contains(kind), "{error}");
    }
    assert_eq!(api.describe(&id)["turn_count"], 0, "no event had an effect");
}

/// The models of an agent are known once it has named them, over ACP, and stay known after a restart.
fn models_that_an_agent_offers_are_listed(backend: Backend) {
    let api = backend.api(&TestHome::scripted_agent("moded", "acp", &["acp", "--settings"]));
    let of_agent = |api: &Api, token: &str| -> Vec<String> {
        let page = api.with_token(token).get("/v1/models").json();
        let ids = page["data"].as_array().unwrap().iter();
        let ids = ids.map(|model| model["id"].as_str().unwrap().to_owned());
        ids.filter(|name| name.starts_with("moded")).collect()
    };
    assert_eq!(of_agent(&api, &api.token), ["moded"], "it has not run");
    let id = api.create(&json!({"agent": "moded"}));
    api.ask(&id, "[[say hi]]");
    assert_eq!(of_agent(&api, &api.token), ["moded", "moded/small", "moded/large"]);
    assert_eq!(api.get("/v1/models/moded%2Flarge").json()["id"], "moded/large");
    let other = api.home.app("other");
    assert_eq!(of_agent(&api, &other), ["moded"], "another app has not asked it");
    let api = api.restart_after(|server| server.kill());
    assert_eq!(of_agent(&api, &api.token), ["moded", "moded/small", "moded/large"], "killed");
    assert_eq!(of_agent(&api, &other), ["moded"], "another app has not asked it");
    let id = Anthropic(&api).session("moded/large", &json!([]));
    Anthropic(&api).say(&id, "[[say {model}]]");
    let events = Anthropic(&api).idle(&id, "end_turn");
    let said = events.iter().find(|event| event["type"] == "agent.message").unwrap();
    assert_eq!(said["content"][0]["text"], "large", "{said}");
}
