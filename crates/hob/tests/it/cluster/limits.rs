//! Limits and budgets of an app count over all nodes.

use hob_testkit::http::Answer;
use serde_json::json;

use super::setup::*;

fn at_once(
    nodes: &Nodes,
    count: usize,
    ask: impl Fn(&Nodes, usize) -> Answer + Sync,
) -> Vec<Answer> {
    std::thread::scope(|scope| {
        let asked: Vec<_> = (0..count)
            .map(|n| {
                let ask = &ask;
                scope.spawn(move || ask(nodes, n % nodes.cluster.len()))
            })
            .collect();
        asked.into_iter().map(|asked| asked.join().unwrap()).collect()
    })
}

fn count(replies: &[Answer], status: u16) -> usize {
    replies.iter().filter(|reply| reply.status == status).count()
}

/// The limit holds however many nodes are asked at once.
#[test]
fn session_limit_of_an_app_holds_across_nodes() {
    let nodes = nodes(&options(3, "[limits]\napp_sessions = 4\n"));
    let body = json!({"agent": "acp"});
    let replies = at_once(&nodes, 12, |nodes, node| nodes.on(node).post("/sessions", &body));
    assert_eq!((count(&replies, 200), count(&replies, 429)), (4, 8), "{replies:?}");
    for node in 0..3 {
        assert_error(&nodes.on(node).post("/sessions", &body), 429, "app_sessions", "");
    }
    let made = replies.iter().find(|reply| reply.status == 200).unwrap().json();
    let path = format!("/sessions/{}", made["session_id"].as_str().unwrap());
    let first = nodes.on(0).call("DELETE", &path, &[], &serde_json::Value::Null);
    assert_eq!(first.status, 200, "{}", first.text);
    nodes.on(1).session();
    assert_error(&nodes.on(2).post("/sessions", &body), 429, "app_sessions", "");
}

#[test]
fn turn_rate_of_an_app_holds_across_nodes() {
    let nodes = nodes(&options(3, "[limits]\napp_turns_per_minute = 5\n"));
    let ids: Vec<String> = (0..3).map(|node| nodes.on(node).session()).collect();
    let replies = at_once(&nodes, 12, |nodes, node| {
        nodes.on((node + 1) % 3).turn_with(&ids[node], &[], "hi")
    });
    assert_eq!((count(&replies, 200), count(&replies, 429)), (5, 7), "{replies:?}");
    for node in 0..3 {
        assert_error(&nodes.on(node).turn_with(&ids[0], &[], "hi"), 429, "app_pace", "");
    }
}

#[test]
fn queue_limit_of_a_session_holds_across_nodes() {
    let nodes = nodes(&options(3, "[sessions]\nqueue = 4\n"));
    let id = nodes.on(0).session();
    nodes.on(0).start_gated_turn(&id);
    let replies = at_once(&nodes, 9, |nodes, node| nodes.on(node).turn_with(&id, &[ASYNC], "hi"));
    assert_eq!((count(&replies, 202), count(&replies, 429)), (4, 5), "{replies:?}");
    nodes.on(1).open_gate(&id);
    nodes.on(2).wait_for_turn(&id, 5, "finished");
    assert_eq!(nodes.on(1).describe(&id)["turn_count"], 5);
}

#[test]
fn token_budget_holds_across_nodes() {
    let nodes = nodes(&options(2, "[limits]\nsession_tokens = 20\napp_tokens_per_day = 40\n"));
    let id = nodes.on(0).session();
    nodes.on(0).ask(&id, "15 tokens");
    nodes.on(1).ask(&id, "30 tokens");
    for node in 0..2 {
        assert_error(&nodes.on(node).turn_with(&id, &[], "hi"), 429, "session_budget", "");
    }
    let other = nodes.on(1).session();
    nodes.on(0).ask(&other, "45 tokens");
    for node in 0..2 {
        assert_error(&nodes.on(node).turn_with(&other, &[], "hi"), 429, "app_budget", "");
    }
}

/// The pool of the whole cluster, of all apps.
#[test]
fn max_live_of_a_cluster_holds_across_nodes() {
    let nodes = nodes(&options(3, "[cluster]\nmax_live = 4\n"));
    let other = nodes.cluster.app("other");
    let body = json!({"agent": "acp"});
    let replies = at_once(&nodes, 12, |nodes, node| {
        let token = if node == 1 { &other } else { &nodes.token };
        nodes.on(node).with_token(token).try_call("POST", "/sessions", &[], &body).unwrap()
    });
    assert_eq!((count(&replies, 200), count(&replies, 503)), (4, 8), "{replies:?}");
    for node in 0..3 {
        assert_error(&nodes.on(node).post("/sessions", &body), 503, "pool_full", "");
    }
}
