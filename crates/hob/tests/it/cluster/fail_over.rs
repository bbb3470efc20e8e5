//! Sessions whose node is killed, stopped, suspended or disconnected from the database.

use std::time::Duration;

use hob_testkit::wire::StreamEvent;
use hob_testkit::{Stopwatch, wait_until};
use serde_json::{Value, json};

use super::setup::*;

/// The status of a route that needs no token; `None` when there is no answer in time.
fn status(nodes: &Nodes, node: usize, path: &str) -> Option<u16> {
    let reply = nodes.on(node).with_token("").try_call("GET", path, &[], &Value::Null);
    reply.ok().map(|reply| reply.status)
}

/// All events until the end of this turn.
fn until_turn(events: &mut dyn Iterator<Item = StreamEvent>, turn: u64) -> Vec<StreamEvent> {
    let mut heard: Vec<StreamEvent> = Vec::new();
    loop {
        let event = events.next().unwrap_or_else(|| panic!("the stream ended after {heard:?}"));
        let data: Value = serde_json::from_str(&event.data).unwrap_or_default();
        let over = event.kind == "turn" && data["turn_index"] == turn;
        heard.push(event);
        if over {
            return heard;
        }
    }
}

/// The stream of another node just goes on: the turn that ran is interrupted, the one that waited runs on the taker.
#[test]
fn sessions_of_a_killed_node_are_taken_over() {
    let nodes = nodes(&options(3, ""));
    let id = nodes.on(0).session();
    nodes.on(1).ask(&id, "remember the crane");
    let running = nodes.on(1).start_gated_turn(&id);
    let waits = nodes.on(2).start_turn(&id, "[[say {history}]]");
    let mut follow = nodes.on(1).follow(&id, 0);
    nodes.cluster.kill(0);
    let killed = Stopwatch::start();
    let heard = until_turn(&mut follow, running);
    let limit = nodes.cluster.lease() + Duration::from_secs(3);
    // `cluster.lease_secs` is how long a silent node keeps its sessions.
    killed.assert_within(limit, "a dead node's sessions are taken over once its lease has expired");
    let last: Value = serde_json::from_str(&heard.last().unwrap().data).unwrap();
    assert_eq!((&last["state"], &last["text"]), (&json!("interrupted"), &json!("begun")));
    let rest = until_turn(&mut follow, waits);
    let numbers: Vec<u64> = heard.iter().chain(&rest).map(|event| event.id).collect();
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<u64>>());
    let text = nodes.on(2).get_turn(&id, waits)["text"].as_str().unwrap().to_owned();
    assert!(text.starts_with("remember the crane"), "{text}");
    assert_ne!(nodes.holder(&id), None);
    nodes.cluster.restart(0);
    assert!(nodes.on(0).ask(&id, "[[say {history}]]").starts_with("remember the crane"));
    assert_eq!(nodes.on(0).log(&id), nodes.on(1).log(&id));
    assert_fences(&nodes.cluster);
}

/// A node that restarts on its home resumes its own sessions without waiting for its former lease to expire. That
/// lease is longer than any test waits.
#[test]
fn restarted_node_resumes_its_sessions_without_waiting_for_its_lease() {
    let nodes = nodes(&hob_testkit::ClusterOptions { lease_secs: 600, ..options(2, "") });
    let id = nodes.on(0).session();
    let running = nodes.on(0).start_gated_turn(&id);
    let waits = nodes.on(1).start_turn(&id, "hello");
    nodes.cluster.kill(0);
    nodes.cluster.restart(0);
    assert_eq!(nodes.on(1).wait_for_turn(&id, running, "interrupted")["text"], "begun");
    assert_eq!(nodes.on(1).wait_for_turn(&id, waits, "finished")["text"], "echo: hello");
    assert_fences(&nodes.cluster);
}

/// A node that slept finds that it lost: it writes nothing, ends its agents, and serves on.
#[test]
fn paused_node_gives_up_its_sessions() {
    let nodes = nodes(&options(2, ""));
    let id = nodes.on(0).session();
    nodes.on(0).ask(&id, "remember the crane");
    let running = nodes.on(0).start_turn(&id, "[[say begun]] [[until go]] [[chunks 50]] [[hang]]");
    wait_until("it runs", || {
        (nodes.on(0).get_turn(&id, running)["events"] != json!([])).then_some(())
    });
    let waits = nodes.on(1).start_turn(&id, "[[say on the other]]");
    nodes.cluster.pause(0);
    nodes.on(1).wait_for_turn(&id, running, "interrupted");
    assert_eq!(nodes.on(1).wait_for_turn(&id, waits, "finished")["text"], "on the other");
    // The agent's output waits in the pipe until the node wakes up.
    nodes.on(1).open_gate(&id);
    let log = nodes.on(1).log(&id);
    nodes.cluster.resume(0);
    wait_until("its agents are ended", || {
        nodes.cluster.with(0, |server| server.descendants().is_empty()).then_some(())
    });
    wait_until("it is ready again", || (status(&nodes, 0, "/readyz") == Some(200)).then_some(()));
    assert_eq!(nodes.on(1).log(&id), log, "it has written nothing");
    assert_eq!(nodes.on(0).log(&id), log);
    assert!(nodes.on(0).ask(&id, "[[say {history}]]").starts_with("remember the crane"));
    let own = nodes.on(0).session();
    assert_eq!(nodes.on(1).ask(&own, "hi"), "echo: hi");
    assert_fences(&nodes.cluster);
}

/// Told to stop, a node gives its idle sessions away at once, lets turns finish, and ends; nothing is interrupted.
#[test]
fn stopped_node_hands_over_its_sessions() {
    let nodes = nodes(&options(2, ""));
    let idle = nodes.on(0).session();
    nodes.on(0).ask(&idle, "remember the crane");
    let busy = nodes.on(0).session();
    let running = nodes.on(1).start_gated_turn(&busy);
    let waits = nodes.on(1).start_turn(&busy, "[[say after it]]");
    std::thread::scope(|scope| {
        let stopped = scope.spawn(|| nodes.cluster.stop(0));
        // Long before the other session lets it go.
        let said = wait_until("it is taken by the other", || {
            let reply = nodes.on(1).turn_with(&idle, &[], "[[say {history}]]");
            (reply.status == 200).then(|| reply.json()["text"].clone())
        });
        assert_eq!(said, "remember the crane");
        assert!(!stopped.is_finished());
        nodes.on(1).open_gate(&busy);
        assert_eq!(stopped.join().unwrap().code(), Some(0));
    });
    let ended = nodes.on(1).get_turn(&busy, running);
    assert_eq!((&ended["state"], &ended["text"]), (&json!("finished"), &json!("begungone on")));
    assert_eq!(nodes.on(1).wait_for_turn(&busy, waits, "finished")["text"], "after it");
    for id in [&idle, &busy] {
        assert_gapless(&nodes.on(1).log(id));
    }
    assert_fences(&nodes.cluster);
}

/// Without anything shared but the database, Claude goes on with a transcript made from the ledger, and an agent that
/// can't says so.
#[test]
fn conversation_without_a_shared_disk_is_rebuilt_or_resume_failed() {
    let nodes = nodes(&hob_testkit::ClusterOptions { separate_disks: true, ..options(2, "") });
    let claude = nodes.on(0).create(&json!({"agent": "claude"}));
    let acp = nodes.on(0).session();
    let fresh = nodes.on(0).session();
    assert_eq!(nodes.on(1).ask(&claude, "remember the crane"), "echo: remember the crane");
    assert_eq!(nodes.on(1).ask(&acp, "remember the crane"), "echo: remember the crane");
    nodes.cluster.kill(0);
    let history = nodes.on(1).ask(&claude, "[[say {history}]]");
    assert!(history.contains("remember the crane"), "{history}");
    assert!(history.contains("echo: remember the crane"), "its own words too: {history}");
    for _ in 0..2 {
        assert_error(&nodes.on(1).turn_with(&acp, &[], "hi"), 502, "resume_failed", "");
    }
    assert_eq!(nodes.on(1).ask(&fresh, "hi"), "echo: hi", "nothing was said, so nothing is lost");
    assert_fences(&nodes.cluster);
}

/// Liveness and readiness: a node without the database lives and is not ready; a stopping one too.
#[test]
fn readyz_follows_the_database() {
    let nodes = nodes(&hob_testkit::ClusterOptions { proxied: true, ..options(2, "") });
    for node in 0..2 {
        assert_eq!(status(&nodes, node, "/livez"), Some(200));
        assert_eq!(status(&nodes, node, "/readyz"), Some(200));
    }
    nodes.cluster.proxy(0).refuse();
    wait_until("it is not ready", || (status(&nodes, 0, "/readyz") == Some(503)).then_some(()));
    assert_eq!(status(&nodes, 0, "/livez"), Some(200));
    assert_eq!(status(&nodes, 1, "/readyz"), Some(200));
    nodes.cluster.proxy(0).pass();
    wait_until("it is ready again", || (status(&nodes, 0, "/readyz") == Some(200)).then_some(()));
    nodes.cluster.proxy(1).swallow();
    wait_until("it is not ready", || (status(&nodes, 1, "/readyz") == Some(503)).then_some(()));
    assert_eq!(status(&nodes, 1, "/livez"), Some(200));
    nodes.cluster.proxy(1).pass();
    wait_until("it is ready again", || (status(&nodes, 1, "/readyz") == Some(200)).then_some(()));
}

/// A node that is cut off does not go on with a turn that another one has taken, also not with what it sent before the
/// network healed.
#[test]
fn disconnected_node_gives_up_its_sessions() {
    let nodes = nodes(&hob_testkit::ClusterOptions { proxied: true, ..options(2, "") });
    let id = nodes.on(0).session();
    nodes.on(0).ask(&id, "remember the crane");
    let running = nodes.on(0).start_turn(&id, "[[stamps 2000 20]]");
    wait_until("it runs", || {
        (nodes.on(1).get_turn(&id, running)["events"] != json!([])).then_some(())
    });
    nodes.cluster.proxy(0).swallow();
    nodes.on(1).wait_for_turn(&id, running, "interrupted");
    let said = wait_until("the other one has it", || {
        let reply = nodes.on(1).turn_with(&id, &[], "[[say on the other]]");
        (reply.status == 200).then(|| reply.json()["text"].clone())
    });
    assert_eq!(said, "on the other");
    let log = nodes.on(1).log(&id);
    nodes.cluster.proxy(0).pass();
    wait_until("it is ready again", || (status(&nodes, 0, "/readyz") == Some(200)).then_some(()));
    wait_until("its agents are ended", || {
        nodes.cluster.with(0, |server| server.descendants().is_empty()).then_some(())
    });
    assert_eq!(nodes.on(1).log(&id), log, "nothing came late");
    assert_fences(&nodes.cluster);
}
