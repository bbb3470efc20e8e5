//! The durable log of a session, whole and from any point on.

use std::time::Duration;

use hob_testkit::wait_until;
use serde_json::{Value, json};

use crate::api::*;
use crate::backend::{Backend, backend_tests};

backend_tests!([file, cluster]: [
    event_log_holds_every_event,
    event_log_holds_the_agents_lines_unchanged,
    events_after_a_number_are_the_later_ones,
    cut_stream_resumes_without_loss,
    cut_stream_with_a_permission_resumes_without_loss,
    stream_resumes_by_its_idempotency_key,
    stream_after_its_last_event_ends_at_once,
    cut_stream_of_a_running_turn_resumes_without_loss,
    followed_stream_ends_with_the_close,
    following_after_a_future_number_waits,
    slow_reader_gets_every_event,
    long_log_is_paged,
    admin_sees_the_sessions_of_all_apps,
]);

/// Everything that happened is in the log, numbered without a gap, each with its time.
fn event_log_holds_every_event(backend: Backend) {
    let api = backend.api("");
    let id = api.create(&json!({"agent": "acp", "meta": {"a": 1}}));
    assert_eq!(api.turn(&id, "[[say one]] [[say two]]").status, 200);
    assert_eq!(api.turn(&id, "[[crash]]").status, 502);
    assert_eq!(api.turn(&id, "[[permission x]]").status, 200);
    assert_eq!(api.close(&id).status, 200);
    let log = api.log(&id);
    assert_gapless(&log);
    assert_eq!(
        api.audit_kinds(&id),
        ["create", "turn", "turn", "resume", "permission", "turn", "close"]
    );
    assert!(log.iter().all(|event| event["at"].as_str().unwrap().ends_with('Z')));
    let first = &log[0];
    assert_eq!((&first["agent"], &first["turn_index"]), (&json!("acp"), &Value::Null));
    let messages: Vec<&Value> =
        log.iter().filter(|e| e["event"] == "message" && e["turn_index"] == 1).collect();
    assert_eq!(messages.len(), 3);
    assert_eq!(messages[1]["message"]["params"]["update"]["content"]["text"], "two");
    let turns: Vec<(u64, &str)> = log
        .iter()
        .filter(|event| event["event"] == "turn")
        .map(|event| (event["turn_index"].as_u64().unwrap(), event["state"].as_str().unwrap()))
        .collect();
    assert_eq!(turns, [(1, "finished"), (2, "died"), (3, "finished")]);
    assert_eq!(api.describe(&id)["last_event_id"], log.len());
}

/// Messages of an agent are not changed in the log either.
fn event_log_holds_the_agents_lines_unchanged(backend: Backend) {
    let api = backend.api("");
    let id = api.session();
    let lines = [
        r#"{"method":"session/update","params":{"z":1,"a":12345678901234567890123}}"#,
        r#"{"method":"session/update","params":{"n":1e400}}"#,
    ];
    let prompt = format!("[[garbage {}]] [[garbage {}]]", lines[0], lines[1]);
    assert_eq!(api.turn(&id, &prompt).status, 200);
    let text = api.get(&format!("/sessions/{id}/events")).text;
    for line in lines {
        assert!(text.contains(line), "{line} is not in {text}");
    }
}

fn events_after_a_number_are_the_later_ones(backend: Backend) {
    let api = backend.api("");
    let id = api.session();
    assert_eq!(api.turn(&id, "[[chunks 5]]").status, 200);
    let log = api.log(&id);
    let path = format!("/sessions/{id}/events");
    for after in 0..=log.len() + 1 {
        let found = api.get(&format!("{path}?after={after}")).json();
        assert_eq!(found["events"], json!(log.get(after..).unwrap_or_default()), "{after}");
        let last = after.to_string();
        let same = api.call("GET", &path, &[("last-event-id", &last)], &Value::Null).json();
        assert_eq!(same, found);
    }
    for bad in ["x", "-1", "1.5", "", "99999999999999999999999"] {
        assert_error(&api.get(&format!("{path}?after={bad}")), 400, "bad_request", "after");
    }
    let bad = api.call("GET", &path, &[("last-event-id", "x")], &Value::Null);
    assert_error(&bad, 400, "bad_request", "Last-Event-ID");
    // A browser that reconnects sends the address that it began with, and the number that it has by then.
    for (after, last) in [("3", "5"), ("5", "3")] {
        let path = format!("{path}?after={after}");
        let both = api.call("GET", &path, &[("last-event-id", last)], &Value::Null);
        assert_eq!(both.json()["events"][0]["seq"], 6);
    }
}

/// Cut after each of its events and resumed by its number, a turn's stream is what it would have been.
fn cut_anywhere(backend: Backend, prompt: &str) {
    let api = backend.api("");
    let id = api.session();
    let whole: Vec<StreamEvent> = api.stream_turn(&id, prompt).collect();
    assert!(whole.len() >= 20, "{}", whole.len());
    assert_eq!(whole.last().unwrap().kind, "turn");
    for cut in 0..whole.len() {
        let seen = &whole[..cut];
        let last = seen.last().map_or(whole[0].id - 1, |event| event.id);
        let mut resumed: Vec<StreamEvent> = seen.to_vec();
        resumed.extend(api.follow(&id, last).until(|event| event.kind == "turn"));
        for (found, wanted) in resumed.iter().zip(&whole) {
            assert_eq!(found, wanted, "cut after {cut}");
        }
        assert_eq!(resumed.len(), whole.len(), "cut after {cut}");
    }
}

fn cut_stream_resumes_without_loss(backend: Backend) {
    cut_anywhere(backend, "[[chunks 12]] [[think hm]] [[tool Read {}]] [[chunks 8]]");
}

/// Hob's own events of a turn are equal in every stream, too.
fn cut_stream_with_a_permission_resumes_without_loss(backend: Backend) {
    cut_anywhere(backend, "[[chunks 9]] [[permission x]] [[chunks 9]]");
}

/// A stream can also be resumed by repeating the turn with its idempotency key.
fn stream_resumes_by_its_idempotency_key(backend: Backend) {
    let api = backend.api("");
    let id = api.session();
    let key = ("idempotency-key", "k");
    let path = format!("/sessions/{id}/turn");
    let body = json!({"prompt": "[[chunks 6]]"});
    let whole: Vec<StreamEvent> = api.stream("POST", &path, &[STREAM, key], &body).collect();
    for cut in 1..whole.len() {
        let last = whole[cut - 1].id.to_string();
        let headers = [STREAM, key, ("last-event-id", last.as_str())];
        let rest: Vec<StreamEvent> = api.stream("POST", &path, &headers, &body).collect();
        assert_eq!(rest, whole[cut..], "cut after {cut}");
    }
}

/// One that has seen all of a turn that is over is not left waiting.
fn stream_after_its_last_event_ends_at_once(backend: Backend) {
    let api = backend.api("");
    let id = api.session();
    let key = ("idempotency-key", "k");
    let path = format!("/sessions/{id}/turn");
    let body = json!({"prompt": "hi"});
    let whole: Vec<StreamEvent> = api.stream("POST", &path, &[STREAM, key], &body).collect();
    let last = whole.last().unwrap().id.to_string();
    let headers = [STREAM, key, ("last-event-id", last.as_str())];
    assert_eq!(api.stream("POST", &path, &headers, &body).next(), None, "there is no more");
}

/// Every reader of a running turn is cut and comes back in the middle of it.
fn cut_stream_of_a_running_turn_resumes_without_loss(backend: Backend) {
    let api = backend.api("");
    let id = api.session();
    let prompt: String = (0..24).map(|n| format!("[[say {n} ]] [[sleep 10]]")).collect();
    let mut stream = api.stream_turn(&id, &prompt);
    let first = stream.next().unwrap();
    let (whole, cut) = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            // A connection per event.
            let mut seen = vec![first.clone()];
            while seen.last().unwrap().kind != "turn" {
                let last = seen.last().unwrap().id;
                seen.push(api.follow(&id, last).next().expect("the next event"));
            }
            seen
        });
        let mut whole = vec![first.clone()];
        whole.extend(stream);
        (whole, reader.join().unwrap())
    });
    assert_eq!(whole.len(), 26);
    assert_eq!(cut, whole);
}

/// A stream of the log goes on as long as the session is open.
fn followed_stream_ends_with_the_close(backend: Backend) {
    let api = backend.api("");
    let id = api.session();
    let mut streams = [api.follow(&id, 0), api.follow(&id, 0)];
    assert_eq!(streams[0].next().unwrap().kind, "create");
    for n in 1..=2 {
        assert_eq!(api.turn(&id, "hi").status, 200);
        let events = streams[0].until(|event| event.kind == "turn");
        assert_eq!(events.last().unwrap().json()["turn_index"], n);
    }
    assert_eq!(api.close(&id).status, 200);
    let rest: Vec<StreamEvent> = streams[0].by_ref().collect();
    assert_eq!(rest.last().unwrap().kind, "close");
    let ids: Vec<u64> = streams[1].by_ref().map(|event| event.id).collect();
    assert_eq!(ids, (1..=ids.len() as u64).collect::<Vec<_>>());
    assert_eq!(ids.len(), api.log(&id).len());
    // Of a closed one there is the past.
    let past: Vec<StreamEvent> = api.follow(&id, 0).collect();
    assert_eq!(past.len(), ids.len());
    assert_eq!(api.follow(&id, ids.len() as u64).count(), 0);
}

/// A number that is not there yet is waited for.
fn following_after_a_future_number_waits(backend: Backend) {
    let api = backend.api("");
    let id = api.session();
    let mut stream = api.follow(&id, 3);
    assert_eq!(api.turn(&id, "[[chunks 4]]").status, 200);
    assert_eq!(stream.next().unwrap().id, 4);
}

/// A reader that pauses loses nothing and delays nobody.
fn slow_reader_gets_every_event(backend: Backend) {
    let api = backend.api("");
    let id = api.session();
    let mut slow = api.follow(&id, 0);
    let prompt = format!("[[say {}]] [[chunks 3000]]", "x".repeat(200_000));
    let mut turn = api.stream_turn(&id, &prompt);
    // The test polls the log, so that no stream is read meanwhile.
    wait_until("the turn is over", || (api.describe(&id)["state"] == "idle").then_some(()));
    assert_eq!(api.turn(&id, "[[chunks 1000]]").status, 200, "other readers are not delayed");
    let second = slow.until(|event| event.kind == "turn" && event.json()["turn_index"] == 2);
    let ids: Vec<u64> = second.iter().map(|event| event.id).collect();
    assert_eq!(ids, (1..=ids.len() as u64).collect::<Vec<_>>());
    assert_eq!(ids.len(), 1 + 3002 + 1 + 1001 + 1);
    let events = turn.until(|event| event.kind == "turn");
    assert_eq!(events.len(), 3003);
    let texts = events[1..3001].iter().map(|event| event.json());
    for (n, message) in texts.enumerate() {
        assert_eq!(message["params"]["update"]["content"]["text"], format!("chunk {n} "));
    }
}

/// A log longer than one answer says that there is more.
fn long_log_is_paged(backend: Backend) {
    let api = backend.api("");
    let id = api.session();
    assert_eq!(api.turn_with(&id, &[ASYNC], "[[chunks 11000]]").status, 202);
    wait_until("the turn is over", || (api.describe(&id)["state"] == "idle").then_some(()));
    let path = format!("/sessions/{id}/events");
    let (mut seen, mut pages) = (0, 0);
    loop {
        let page = api.get(&format!("{path}?after={seen}")).json();
        for event in page["events"].as_array().unwrap() {
            seen += 1;
            assert_eq!(event["seq"], seen);
        }
        pages += 1;
        if page["more"] == false {
            break;
        }
    }
    assert_eq!(seen, 1 + 11_000 + 2);
    assert!(pages > 1, "one answer has a bound");
}

/// The owner sees every session and may end it; an app may not.
fn admin_sees_the_sessions_of_all_apps(backend: Backend) {
    let api = backend.api("");
    let admin = std::fs::read_to_string(api.home.hob_home().join("admin.token")).unwrap();
    let admin = admin.trim();
    let other = api.home.app("other");
    let (mine, theirs) = (api.session(), api.create_as(&other, &json!({"agent": "acp"})));
    let list = api.call_as(admin, "GET", "/admin/sessions", &[], &Value::Null).json();
    assert_eq!(list["count"], 2);
    assert_eq!(api.get("/admin/sessions").status, 401);
    api.start_gated_turn(&mine);
    for (method, path) in [
        ("GET", format!("/admin/sessions/{mine}")),
        ("GET", format!("/admin/sessions/{mine}/events")),
        ("POST", format!("/admin/sessions/{mine}/cancel")),
        ("DELETE", format!("/admin/sessions/{theirs}")),
    ] {
        assert_eq!(api.call(method, &path, &[], &Value::Null).status, 401, "{path}");
        let answer = api.call_as(admin, method, &path, &[], &Value::Null);
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
    }
    assert_eq!(api.get_turn(&mine, 1)["state"], "cancelled");
    assert_eq!(
        api.call_as(admin, "GET", &format!("/sessions/{mine}"), &[], &Value::Null).status,
        401
    );
    wait_until("one agent is left", || (api.processes().len() == 1).then_some(Duration::ZERO));
}
