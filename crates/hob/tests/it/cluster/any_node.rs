//! Any node serves any request on a session, whichever node holds its lease.

use std::time::Duration;

use hob_testkit::wire::StreamEvent;
use hob_testkit::{Stopwatch, wait_until};
use serde_json::{Value, json};

use super::setup::*;

/// A node without the lease accepts the turn, streams it while it runs, and answers like the lease holder.
#[test]
fn turn_runs_and_streams_on_any_node() {
    let nodes = nodes(&options(3, ""));
    let id = nodes.on(0).session();
    assert_eq!(nodes.on(1).ask(&id, "remember the crane"), "echo: remember the crane");
    let mut turn = nodes.on(2).stream_turn(&id, "[[say begun]] [[until go]] [[say gone on]]");
    let mut follow = nodes.on(1).follow(&id, 0);
    assert!(turn.next().expect("an event").data.contains("begun"), "as it comes");
    let heard = |events: &mut dyn Iterator<Item = StreamEvent>, what: &str| {
        let mut heard = Vec::new();
        while !heard.last().is_some_and(|event: &StreamEvent| event.data.contains(what)) {
            heard.push(events.next().expect("the stream goes on"));
        }
        heard
    };
    let before = heard(&mut follow, "begun");
    nodes.on(1).open_gate(&id);
    let rest: Vec<StreamEvent> = turn.collect();
    assert_eq!(rest.last().map(|event| event.kind.as_str()), Some("turn"));
    let after = heard(&mut follow, "\"turn_index\":2");
    let numbers: Vec<u64> = before.iter().chain(&after).map(|event| event.id).collect();
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<u64>>());
    let logs: Vec<Vec<Value>> = (0..3).map(|node| nodes.on(node).log(&id)).collect();
    assert_gapless(&logs[0]);
    assert!(logs[0] == logs[1] && logs[1] == logs[2], "{logs:#?}");
    for node in 1..3 {
        assert_eq!(nodes.on(node).describe(&id), nodes.on(0).describe(&id));
        assert_eq!(nodes.on(node).get_turn(&id, 2), nodes.on(0).get_turn(&id, 2));
        assert_eq!(nodes.on(node).get("/sessions").text, nodes.on(0).get("/sessions").text);
        // A stream that was cut goes on where it was, on any node.
        let last = numbers.last().copied().unwrap();
        let again: Vec<StreamEvent> =
            nodes.on(node).follow(&id, 1).take(last as usize - 1).collect();
        assert_eq!(again.iter().map(|event| event.id).collect::<Vec<_>>(), numbers[1..]);
    }
    assert_fences(&nodes.cluster);
    assert_eq!(
        nodes.cluster.sql("SELECT max(fence) FROM hob.events"),
        "1",
        "no other node took it over"
    );
}

#[test]
fn turn_is_cancelled_on_any_node() {
    let nodes = nodes(&options(2, ""));
    let id = nodes.on(0).session();
    nodes.on(0).ask(&id, "remember the crane");
    for node in [1, 0, 1] {
        let turn = nodes.on(node).start_gated_turn(&id);
        let cancelled = nodes.on(1 - node).post(&format!("/sessions/{id}/cancel"), &Value::Null);
        assert_eq!(cancelled.status, 200, "{}", cancelled.text);
        let said = cancelled.json();
        assert_eq!((&said["cancelled"], &said["turn_index"]), (&json!(true), &json!(turn)));
        assert_eq!(
            nodes.on(1 - node).get_turn(&id, turn)["state"],
            "cancelled",
            "the cancel is answered once the turn has ended"
        );
    }
    let idle = nodes.on(1).post(&format!("/sessions/{id}/cancel"), &Value::Null);
    assert_eq!((idle.status, &idle.json()["cancelled"]), (200, &json!(false)));
    assert!(nodes.on(1).ask(&id, "[[say {history}]]").starts_with("remember the crane"));
}

#[test]
fn permission_request_is_answered_on_any_node() {
    let nodes = nodes(&options(2, ""));
    let id = nodes.on(0).create(&json!({"agent": "acp", "permissions": "ask"}));
    let turn = nodes.on(1).start_turn(&id, "[[permission rm]] [[say  done]]");
    let asked = wait_until("the agent asks", || {
        nodes.on(1).log(&id).into_iter().find(|event| event["event"] == "permission")
    });
    let path = match &asked["request_id"] {
        Value::String(request) => format!("/sessions/{id}/permissions/{request}"),
        request => format!("/sessions/{id}/permissions/{request}"),
    };
    assert_eq!(nodes.on(1).post(&path, &json!({"option": "no such"})).status, 400);
    let answered = nodes.on(1).post(&path, &json!({"option": "allow_once"}));
    assert_eq!(answered.status, 200, "{}", answered.text);
    assert_eq!(nodes.on(1).wait_for_turn(&id, turn, "finished")["text"], "permission rm: yes done");
    let again = nodes.on(1).post(&path, &json!({"option": "allow_once"}));
    let there = nodes.on(0).post(&path, &json!({"option": "allow_once"}));
    assert_eq!((again.status, again.json()), (there.status, there.json()), "the same answer");
    assert!(again.status >= 400, "{}", again.text);
}

#[test]
fn session_is_closed_on_any_node() {
    let nodes = nodes(&options(2, ""));
    let id = nodes.on(0).session();
    let turn = nodes.on(0).start_gated_turn(&id);
    let waits = nodes.on(1).start_turn(&id, "waits");
    let path = format!("/sessions/{id}");
    let closed = nodes.on(1).call("DELETE", &path, &[], &Value::Null);
    assert_eq!((closed.status, closed.json()), (200, json!({"ok": true})));
    for node in 0..2 {
        assert_eq!(nodes.on(node).describe(&id)["state"], "closed");
        assert_ne!(nodes.on(node).get_turn(&id, turn)["state"], "running");
        assert_ne!(nodes.on(node).get_turn(&id, waits)["state"], "queued");
        let again = nodes.on(node).call("DELETE", &path, &[], &Value::Null);
        assert_eq!(again.json()["already_closed"], true, "{}", again.text);
        assert_eq!(nodes.on(node).turn_with(&id, &[], "hi").status, 410);
    }
    let pids = nodes.cluster.with(0, |server| server.descendants());
    assert_eq!(pids, [0; 0], "the close is answered once the agent is gone");
}

/// One request with one key on all nodes at once is one turn, and all clients get its answer.
#[test]
fn idempotency_key_holds_on_all_nodes() {
    let nodes = nodes(&options(3, ""));
    let id = nodes.on(0).session();
    for round in 0..5_u64 {
        let key = format!("key-{round}");
        let headers = [("idempotency-key", key.as_str())];
        let prompt = format!("[[note {key}]] [[sleep 50]] [[say {key}]]");
        let replies: Vec<_> = std::thread::scope(|scope| {
            let (nodes, id, prompt) = (&nodes, &id, &prompt);
            let ask = move |n: usize| nodes.on(n % 3).turn_with(id, &headers, prompt);
            let asked: Vec<_> = (0..6).map(|n| scope.spawn(move || ask(n))).collect();
            asked.into_iter().map(|asked| asked.join().unwrap()).collect()
        });
        for reply in &replies {
            assert_eq!(reply.status, 200, "{}", reply.text);
            assert_eq!(reply.json(), replies[0].json(), "one answer for all");
        }
        assert_eq!(replies[0].json()["turn_index"], round + 1);
        for node in 0..3 {
            assert_eq!(nodes.on(node).turn_with(&id, &headers, "another").status, 409);
        }
    }
    let folder = nodes.on(1).describe(&id)["cwd"].as_str().unwrap().to_owned();
    let notes = std::fs::read_to_string(format!("{folder}/notes")).unwrap();
    assert_eq!(notes.lines().collect::<Vec<_>>(), ["key-0", "key-1", "key-2", "key-3", "key-4"]);
}

/// Turns asked of different nodes run one after another, in the order of their numbers.
#[test]
fn turns_run_in_order_whichever_node_takes_them() {
    let nodes = nodes(&options(3, "[sessions]\nqueue = 30\n"));
    let id = nodes.on(0).session();
    std::thread::scope(|scope| {
        for node in 0..3 {
            let (nodes, id) = (&nodes, &id);
            scope.spawn(move || {
                for n in 0..6 {
                    nodes.on(node).start_turn(id, &format!("[[note {node}-{n}]] [[sleep 10]]"));
                }
            });
        }
    });
    nodes.on(2).wait_for_turn(&id, 18, "finished");
    let log = nodes.on(1).log(&id);
    assert_gapless(&log);
    let ended = log.iter().filter(|event| event["event"] == "turn");
    let ended: Vec<u64> = ended.map(|event| event["turn_index"].as_u64().unwrap()).collect();
    assert_eq!(ended, (1..=18).collect::<Vec<u64>>());
    let folder = nodes.on(1).describe(&id)["cwd"].as_str().unwrap().to_owned();
    let notes = std::fs::read_to_string(format!("{folder}/notes")).unwrap();
    for node in 0..3 {
        let prefix = format!("{node}-");
        let own: Vec<&str> = notes.lines().filter(|line| line.starts_with(&prefix)).collect();
        let expected: Vec<String> = (0..6).map(|n| format!("{node}-{n}")).collect();
        assert_eq!(own, expected, "the turns of one caller keep their order");
    }
}

/// A file that was given to one node can be used by a turn on another, and is its app's alone there too.
#[test]
fn uploaded_file_is_available_on_all_nodes() {
    let nodes = nodes(&options(2, ""));
    let contents = "the contents of a file".repeat(10_000);
    let token = nodes.token.as_str();
    let upload = nodes.cluster.with(0, |server| {
        let answer = server.upload(Some(token), "notes.txt", contents.as_bytes());
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.json()["file_id"].as_str().expect("a name").to_owned()
    });
    for node in [1, 0] {
        let id = nodes.on(node).session();
        let path = format!("/sessions/{id}/turn");
        let body = json!({"prompt": "hello", "files": [upload]});
        let reply = nodes.on(node).post(&path, &body);
        assert_eq!(reply.status, 200, "{}", reply.text);
        let text = reply.json()["text"].as_str().unwrap().to_owned();
        let file = text.split_whitespace().find(|word| word.ends_with("notes.txt"));
        let file = file.unwrap_or_else(|| panic!("no file in {text}"));
        let file = file.trim_start_matches(|c: char| c != '/');
        let shell = json!({"command": format!("wc -c < {file}")});
        let reply =
            nodes.on(1 - node).turn_with(&id, &[], &format!("[[tool Bash {shell}]] [[say done]]"));
        assert!(reply.text.contains(&contents.len().to_string()), "{}", reply.text);
    }
    let other = nodes.cluster.app("other");
    let body = json!({"agent": "acp"});
    let theirs =
        nodes.on(1).with_token(&other).try_call("POST", "/sessions", &[], &body).unwrap().json();
    let path = format!("/sessions/{}/turn", theirs["session_id"].as_str().unwrap());
    let body = json!({"prompt": "hello", "files": [upload]});
    let refused = nodes.on(1).with_token(&other).try_call("POST", &path, &[], &body).unwrap();
    assert_error(&refused, 400, "unknown_file", "");
}

/// A prompt that begins as a list of files does, without being one, is asked as it is, and its session lives on.
#[test]
fn prompt_that_looks_like_a_file_list_stays_a_prompt() {
    let nodes = nodes(&options(2, ""));
    let id = nodes.on(0).session();
    for (turn, rest) in
        ["- x", "- x\né", "- /etc/passwd\n\nhello", "", "- x\r\n"].iter().enumerate()
    {
        let prompt = format!("Files for this request:\n{rest}");
        let said = nodes.on(turn % 2).ask(&id, &prompt);
        assert_eq!(said.trim_end(), format!("echo: {prompt}").trim_end());
    }
}

/// An app that is revoked on one node is unknown to all, and its agents end wherever they are.
#[test]
fn revoked_app_is_refused_by_all_nodes() {
    let nodes = nodes(&options(2, "[sessions]\nsweep_interval_secs = 1\n"));
    let ids = [nodes.on(0).session(), nodes.on(1).session()];
    for (node, id) in ids.iter().enumerate() {
        nodes.on(node).start_gated_turn(id);
    }
    let admin = hob_testkit::cluster::ADMIN;
    let gone = nodes
        .on(1)
        .with_token(admin)
        .try_call("DELETE", "/admin/apps/tests", &[], &Value::Null)
        .unwrap();
    assert_eq!(gone.status, 200, "{}", gone.text);
    for (node, id) in ids.iter().enumerate() {
        assert_eq!(nodes.on(1 - node).get(&format!("/sessions/{id}")).status, 401);
        wait_until("its agents are gone", || {
            nodes.cluster.with(node, |server| server.descendants().is_empty()).then_some(())
        });
    }
}

/// A node that is not asked anything hears of a turn that another one takes in at once, not at the next look.
#[test]
fn a_turn_on_another_node_does_not_wait_for_a_poll() {
    let nodes = nodes(&options(2, ""));
    let id = nodes.on(0).session();
    nodes.on(0).ask(&id, "warm");
    let stopwatch = Stopwatch::start();
    for n in 0..10 {
        assert_eq!(nodes.on(1).ask(&id, &format!("{n}")), format!("echo: {n}"));
    }
    // Nodes poll the ledger every 500 ms. Ten turns that each waited for a poll would take longer.
    stopwatch
        .assert_within(Duration::from_secs(5), "turns on another node are notified, not polled");
}

/// A turn that one node acknowledged can be cancelled on another at once, also before the lease holder knows of it.
#[test]
fn accepted_turn_is_cancelled_on_another_node_at_once() {
    let nodes = nodes(&options(3, ""));
    let id = nodes.on(0).session();
    nodes.on(0).ask(&id, "warm");
    for n in 0..15 {
        let turn = nodes.on(1 + n % 2).start_turn(&id, "[[hang]]");
        let cancelled = nodes.on(n % 2).post(&format!("/sessions/{id}/cancel"), &Value::Null);
        assert_eq!(cancelled.json()["turn_index"], turn, "{}", cancelled.text);
        assert_eq!(nodes.on(2).get_turn(&id, turn)["state"], "cancelled");
    }
}
