//! Turns of sessions: what they answer, how they are streamed, how they wait for each other.

use hob_testkit::wait_until;
use serde_json::{Value, json};

use crate::api::*;
use crate::backend::{Backend, backend_tests};

backend_tests!([file, cluster]: [
    turns_are_numbered_from_one,
    turn_events_are_the_agents_lines_unchanged,
    turn_stream_ends_with_the_answer,
    turn_stream_sends_events_while_the_turn_runs,
    respond_async_answers_202_and_the_turn_continues,
    turns_of_a_session_run_one_after_another,
    full_queue_answers_429,
    idempotency_key_runs_a_turn_once,
    repeated_turn_waits_for_the_running_one,
    turn_continues_after_its_client_left,
    turn_reports_the_agents_stop_reason_and_usage,
    large_turn_is_complete,
    turn_with_a_bad_field_names_it,
    files_of_a_turn_reach_the_agent,
    sessions_run_concurrently,
]);

/// Turns are counted from 1, whatever came of them.
fn turns_are_numbered_from_one(backend: Backend) {
    let api = backend.api("");
    let id = api.session();
    for n in 1..=3 {
        let answer = api.turn(&id, &format!("number {n}"));
        assert_eq!(answer.json()["turn_index"], n, "{}", answer.text);
        assert_eq!(answer.json()["text"], format!("echo: number {n}"));
        let place = format!("/sessions/{id}/turns/{n}");
        assert_eq!(answer.headers["content-location"], place.as_str());
        assert_eq!(api.get(&place).json(), answer.json(), "it can be asked for again");
    }
    assert_eq!(api.describe(&id)["turn_count"], 3);
    for n in ["0", "4", "-1", "x", "99999999999999999999"] {
        assert_eq!(api.get(&format!("/sessions/{id}/turns/{n}")).status, 404, "{n}");
    }
    let other = api.session();
    assert_eq!(api.turn(&other, "hi").json()["turn_index"], 1, "each session by itself");
}

/// The agent's lines are passed on byte for byte: spaces, the order of keys and numbers that no
/// library keeps are theirs. Garbage is skipped.
fn turn_events_are_the_agents_lines_unchanged(backend: Backend) {
    let api = backend.api("");
    let id = api.session();
    let odd = [
        r#"{"method":"session/update","params":{"odd":1}}"#,
        r#"{"params": {"update":{"sessionUpdate":"from_the_future","z":1,"a":2}},  "method":"session/update"}"#,
        r#"{"jsonrpc":"2.0","method":"_vendor/thing","params":{"n":1e400,"m":12345678901234567890123,"dup":1,"dup":2}}"#,
        r#"{"jsonrpc":"2.0","method":"session/update","params":{"text":"ü 日本 \u00fc \/ \ud83c\udf89"}}"#,
        r#"{"no":"method"}"#,
        r#"{"jsonrpc":"2.0","id":"none-of-ours","result":{"stopReason":"end_turn"}}"#,
    ];
    let garbage =
        ["not json", "[1]", "\"text\"", "{\"torn\":", "", "   ", "\u{1b}[31mred\u{1b}[0m"];
    let mut prompt = String::from("[[say first]]");
    for n in 0..odd.len().max(garbage.len()) {
        for line in [garbage.get(n), odd.get(n)].into_iter().flatten() {
            prompt.push_str(&format!("[[garbage {line}]]"));
        }
    }
    prompt.push_str("[[say last]]");
    let answer = api.turn(&id, &prompt);
    assert_eq!(answer.status, 200, "{}", answer.text);
    let mut at = 0;
    for line in odd {
        let found = answer.text[at..].find(line);
        at += found.unwrap_or_else(|| panic!("{line} is not in {}", answer.text));
    }
    #[derive(serde::Deserialize)]
    struct Raw<'a> {
        #[serde(borrow)]
        events: Vec<&'a serde_json::value::RawValue>,
        text: String,
    }
    let raw: Raw<'_> = serde_json::from_str(&answer.text).unwrap();
    let lines: Vec<&str> = raw.events.iter().map(|event| event.get()).collect();
    assert_eq!(lines.len(), odd.len() + 3, "{lines:#?}");
    assert_eq!(lines[1..=odd.len()], odd);
    assert!(lines[0].contains("\"first\"") && lines[odd.len() + 1].contains("\"last\""));
    assert!(lines.last().unwrap().contains("stopReason"), "the last one is the prompt's result");
    assert_eq!(raw.text, "firstlast");
    // They are the same in a stream and in the log.
    let again = api.get(&format!("/sessions/{id}/turns/1"));
    assert_eq!(again.text, answer.text);
    let stream = api.follow(&id, 0).until(|event| event.kind == "turn");
    let messages = stream.iter().filter(|event| event.kind == "message");
    assert_eq!(messages.map(|event| event.data.as_str()).collect::<Vec<_>>(), lines);
}

/// A stream says the same as the answer: messages with growing numbers, and last the answer itself.
fn turn_stream_ends_with_the_answer(backend: Backend) {
    let api = backend.api("");
    let id = api.session();
    for round in 1..=2 {
        let mut stream = api.stream_turn(&id, "[[say one ]] [[think hm]] [[say two]]");
        assert_eq!(stream.status(), 200);
        assert_eq!(stream.head.header("content-type"), Some("text/event-stream"));
        let events = stream.until(|event| event.kind == "turn");
        assert_eq!(stream.next(), None, "nothing comes after it");
        assert!(events.windows(2).all(|pair| pair[0].id < pair[1].id), "{events:?}");
        let (last, messages) = events.split_last().unwrap();
        assert!(messages.iter().all(|event| event.kind == "message"), "{events:?}");
        let answer = last.json();
        let data: Vec<Value> = messages.iter().map(StreamEvent::json).collect();
        assert_eq!(answer["events"], json!(data));
        assert_eq!((&answer["ok"], &answer["turn_index"]), (&json!(true), &json!(round)));
        assert_eq!(
            (&answer["text"], &answer["stop_reason"]),
            (&json!("one two"), &json!("end_turn"))
        );
        assert_eq!(api.get_turn(&id, round), answer);
        assert_eq!(messages.len(), 4);
    }
}

/// A message is streamed when it comes, not at the end.
fn turn_stream_sends_events_while_the_turn_runs(backend: Backend) {
    let api = backend.api("");
    let id = api.session();
    let mut stream = api.stream_turn(&id, "[[say early]] [[until go]] [[say late]]");
    let first = stream.next().unwrap();
    assert!(first.data.contains("early"));
    assert_eq!(api.get_turn(&id, 1)["state"], "running");
    api.open_gate(&id);
    let rest = stream.until(|event| event.kind == "turn");
    assert!(rest[0].data.contains("late"));
}

/// 202 at once; the turn can be looked at while it runs and afterwards.
fn respond_async_answers_202_and_the_turn_continues(backend: Backend) {
    let api = backend.api("");
    let id = api.session();
    let answer = api.turn_with(&id, &[ASYNC], "[[say begun]] [[until go]] [[say done]]");
    assert_eq!(answer.status, 202, "{}", answer.text);
    let place = format!("/sessions/{id}/turns/1");
    assert_eq!(answer.headers["location"], place.as_str());
    assert_eq!((&answer.json()["ok"], &answer.json()["turn_index"]), (&json!(true), &json!(1)));
    let running = wait_until("it says something", || {
        let now = api.get(&place).json();
        (now["text"] == "begun").then_some(now)
    });
    assert_eq!((&running["ok"], &running["state"]), (&json!(true), &json!("running")));
    assert_eq!(running["stop_reason"], Value::Null);
    assert_eq!(api.describe(&id)["state"], "running");
    api.open_gate(&id);
    let done = api.wait_for_turn(&id, 1, "finished");
    assert_eq!((&done["text"], &done["stop_reason"]), (&json!("begundone"), &json!("end_turn")));
    assert_eq!(api.describe(&id)["state"], "idle");
}

/// Turns wait for each other in the order in which they came.
fn turns_of_a_session_run_one_after_another(backend: Backend) {
    let api = backend.api("");
    let id = api.session();
    let first = api.start_gated_turn(&id);
    let rest: Vec<u64> = (0..4).map(|n| api.start_turn(&id, &format!("waiting {n}"))).collect();
    assert_eq!(rest, [2, 3, 4, 5]);
    for turn in &rest {
        assert_eq!(api.get_turn(&id, *turn)["state"], "queued");
    }
    api.open_gate(&id);
    api.wait_for_turn(&id, first, "finished");
    for (n, turn) in rest.iter().enumerate() {
        let done = api.wait_for_turn(&id, *turn, "finished");
        assert_eq!(done["text"], format!("echo: waiting {n}"));
    }
    let log = api.log(&id);
    assert_gapless(&log);
    let turns: Vec<u64> = log.iter().filter_map(|event| event["turn_index"].as_u64()).collect();
    assert!(turns.is_sorted(), "{turns:?}");
    let history = api.ask(&id, "[[say {history}]]");
    assert!(history.ends_with("waiting 0|waiting 1|waiting 2|waiting 3"), "{history}");
}

/// So many may wait; one more is 429, and is not there later.
fn full_queue_answers_429(backend: Backend) {
    let api = backend.api(&sessions("queue = 2"));
    let id = api.session();
    let first = api.start_gated_turn(&id);
    let waiting = [api.start_turn(&id, "a"), api.start_turn(&id, "b")];
    let over = api.turn(&id, "c");
    assert_error(&over, 429, "queue_full", "2");
    assert!(over.headers["retry-after"].to_str().unwrap().parse::<u64>().unwrap() >= 1);
    assert_eq!(api.turn_with(&id, &[STREAM], "c").status, 429);
    assert_eq!(api.describe(&id)["turn_count"], 3, "what was refused does not count");
    let other = api.session();
    assert_eq!(api.turn(&other, "hi").status, 200, "other sessions do not wait");
    api.open_gate(&id);
    for turn in [first, waiting[0], waiting[1]] {
        api.wait_for_turn(&id, turn, "finished");
    }
    assert_eq!(api.turn(&id, "c").json()["turn_index"], 4);
}

/// A repeat gets the first one's answer and runs nothing.
fn idempotency_key_runs_a_turn_once(backend: Backend) {
    let api = backend.api("");
    let id = api.session();
    let key = ("idempotency-key", "order-1");
    let first = api.turn_with(&id, &[key], "hello");
    assert_eq!((first.status, &first.json()["turn_index"]), (200, &json!(1)));
    let again = api.turn_with(&id, &[key], "hello");
    assert_eq!((again.status, again.text), (200, first.text.clone()));
    let streamed: Vec<StreamEvent> = {
        let body = json!({"prompt": "hello"});
        let path = format!("/sessions/{id}/turn");
        api.stream("POST", &path, &[STREAM, key], &body).collect()
    };
    assert_eq!(streamed.last().unwrap().json(), first.json());
    assert_eq!(streamed.len(), first.json()["events"].as_array().unwrap().len() + 1);
    let left = api.turn_with(&id, &[ASYNC, key], "hello");
    assert_eq!((left.status, &left.json()["turn_index"]), (202, &json!(1)));
    let other = api.turn_with(&id, &[key], "something else");
    assert_eq!((other.status, &other.json()["ok"]), (409, &json!(false)), "{}", other.text);
    let body = json!({"prompt": "hello", "files": []});
    let files = api.call("POST", &format!("/sessions/{id}/turn"), &[key], &body);
    assert!(files.status == 200 || files.status == 409, "{}", files.text);
    assert_eq!(api.describe(&id)["turn_count"], 1);
    let unlike = api.turn_with(&id, &[("idempotency-key", "order-2")], "hello");
    assert_eq!(unlike.json()["turn_index"], 2);
    let elsewhere = api.session();
    assert_eq!(api.turn_with(&elsewhere, &[key], "other words").status, 200, "a session's own");
    for bad in ["", &"k".repeat(256)] {
        let answer = api.turn_with(&id, &[("idempotency-key", bad)], "hello");
        assert_error(&answer, 400, "bad_request", "Idempotency-Key");
    }
    assert_eq!(api.close(&id).status, 200);
    let closed = api.turn_with(&id, &[key], "hello");
    assert_eq!((closed.status, closed.text), (200, first.text), "also when it is closed");
    assert_eq!(api.turn_with(&id, &[key], "something else").status, 409);
    assert_eq!(api.turn_with(&id, &[("idempotency-key", "new")], "hello").status, 410);
}

/// A repeat of a running turn waits for that turn.
fn repeated_turn_waits_for_the_running_one(backend: Backend) {
    let api = backend.api("");
    let id = api.session();
    let key = ("idempotency-key", "k");
    let prompt = "[[say begun]] [[until go]] [[say done]]";
    std::thread::scope(|scope| {
        let asked: Vec<_> =
            (0..3).map(|_| scope.spawn(|| api.turn_with(&id, &[key], prompt))).collect();
        wait_until("it runs", || (api.describe(&id)["state"] == "running").then_some(()));
        let mut stream = api.stream(
            "POST",
            &format!("/sessions/{id}/turn"),
            &[STREAM, key],
            &json!({"prompt": prompt}),
        );
        assert!(stream.next().unwrap().data.contains("begun"));
        api.open_gate(&id);
        let answers: Vec<Value> = asked.into_iter().map(|one| one.join().unwrap().json()).collect();
        assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
        assert_eq!(answers[0]["text"], "begundone");
        assert_eq!(stream.until(|event| event.kind == "turn").last().unwrap().json(), answers[0]);
    });
    assert_eq!(api.describe(&id)["turn_count"], 1);
    // A failure is an answer as well.
    let key = ("idempotency-key", "fails");
    let first = api.turn_with(&id, &[key], "[[error 500 broken]]");
    let again = api.turn_with(&id, &[key], "[[error 500 broken]]");
    assert_eq!((first.status, again.status), (502, 502));
    assert_eq!(first.json(), again.json());
    assert_eq!(api.describe(&id)["turn_count"], 2);
}

/// A client that goes away ends nothing.
fn turn_continues_after_its_client_left(backend: Backend) {
    let api = backend.api("");
    let id = api.session();
    let mut stream = api.stream_turn(&id, "[[say begun]] [[until go]] [[say done]]");
    stream.next().unwrap();
    drop(stream);
    let body = json!({"prompt": "second"}).to_string();
    let mut plain = std::net::TcpStream::connect(api.server.address()).unwrap();
    use std::io::Write;
    write!(
        plain,
        "POST /sessions/{id}/turn HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\
         content-length: {}\r\n\r\n{body}",
        api.token,
        body.len()
    )
    .unwrap();
    wait_until("the second waits", || (api.describe(&id)["turn_count"] == 2).then_some(()));
    drop(plain);
    assert_eq!(api.get_turn(&id, 1)["state"], "running");
    api.open_gate(&id);
    assert_eq!(api.wait_for_turn(&id, 1, "finished")["text"], "begundone");
    assert_eq!(api.wait_for_turn(&id, 2, "finished")["text"], "echo: second");
}

/// The agent's stop reason and usage are passed on.
fn turn_reports_the_agents_stop_reason_and_usage(backend: Backend) {
    let api = backend.api("");
    let id = api.session();
    for reason in ["max_tokens", "max_turn_requests", "refusal", "from_the_future"] {
        let answer = api.turn(&id, &format!("[[say x]] [[stop {reason}]]"));
        assert_eq!((answer.status, &answer.json()["stop_reason"]), (200, &json!(reason)));
        let usage = &answer.json()["usage"];
        assert_eq!((&usage["input_tokens"], &usage["output_tokens"]), (&json!(10), &json!(5)));
    }
    let usage = api.describe(&id)["usage"].clone();
    assert_eq!((&usage["input_tokens"], &usage["output_tokens"]), (&json!(40), &json!(20)));
}

/// A long answer arrives whole.
fn large_turn_is_complete(backend: Backend) {
    let api = backend.api("");
    let id = api.session();
    let answer = api.turn(&id, "[[big 3000000]]");
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(answer.json()["text"].as_str().unwrap().len(), 3_000_000);
    let prompt = format!("{} end", "x ".repeat(1_000_000));
    assert!(api.ask(&id, &prompt).ends_with("x  end"));
}

fn turn_with_a_bad_field_names_it(backend: Backend) {
    let api = backend.api("max_body_bytes = 20000\n");
    let id = api.session();
    let path = format!("/sessions/{id}/turn");
    let send = |body: &str| {
        api.server.request("POST", &path, Some(api.token.as_str()), &[], body.as_bytes())
    };
    for (body, code, words) in [
        ("", "bad_json", "JSON"),
        ("{", "bad_json", "JSON"),
        ("[]", "bad_request", ""),
        ("{}", "bad_request", "prompt"),
        (r#"{"prompt":1}"#, "bad_request", "prompt"),
        (r#"{"prompt":""}"#, "bad_request", "prompt"),
        (r#"{"prompt":" \n"}"#, "bad_request", "prompt"),
        (r#"{"prompt":"x","promt":"y"}"#, "bad_request", "promt"),
        (r#"{"prompt":"x","files":"f"}"#, "bad_request", "files"),
        (r#"{"prompt":"x","files":[1]}"#, "bad_request", "files"),
        (r#"{"prompt":"x","files":["f"]}"#, "unknown_file", "files"),
    ] {
        assert_error(&send(body), 400, code, words);
    }
    for length in [20_000, 3_000_000] {
        let huge = json!({"prompt": "x".repeat(length)}).to_string();
        assert_error(&send(&huge), 413, "too_large", "20000");
    }
    for wrong in [json!(1), json!({}), json!([]), json!(true), json!("maybe")] {
        let answer = api.post("/sessions", &json!({"agent": "acp", "permissions": wrong}));
        assert_error(&answer, 400, "bad_request", "permissions");
    }
    assert_eq!(api.describe(&id)["turn_count"], 0, "none of them was a turn");
    assert_eq!(api.turn(&id, "hi").status, 200);
}

/// The prompt tells where the files are and ends with the user's text; the agent can read them.
fn files_of_a_turn_reach_the_agent(backend: Backend) {
    let api = backend.api("");
    let id = api.session();
    let upload = |token: &str, name: &str| {
        let body = api.server.upload(Some(token), name, b"the contents").json();
        let text = |key: &str| body[key].as_str().expect(key).to_owned();
        assert!(text("path").ends_with(&format!("{}/{name}", text("file_id"))), "{body}");
        (text("file_id"), format!("{}/{name}", text("file_id")))
    };
    let (first, second) = (upload(&api.token, "a.txt"), upload(&api.token, "b.txt"));
    let turn = |files: Value, prompt: &str| {
        let body = json!({"prompt": prompt, "files": files});
        api.post(&format!("/sessions/{id}/turn"), &body)
    };
    let answer = turn(json!([first.0, second.0]), "hello").json();
    let text = answer["text"].as_str().unwrap();
    assert!(text.contains(&first.1) && text.contains(&second.1), "{text}");
    assert!(text.ends_with("hello"), "{text}");
    assert_eq!(turn(json!([]), "plain").json()["text"], "echo: plain");
    // Which folder it is in depends on the node that has the session.
    let path =
        text.lines().find_map(|line| line.strip_prefix("- ").filter(|l| l.ends_with(&first.1)));
    let path = path.expect("a line with its path");
    assert_eq!(api.shell(&id, &format!("cat {path}")), "the contents");
    let other = api.home.app("other");
    let (foreign, _) = upload(&other, "c.txt");
    assert_error(&turn(json!([foreign]), "x"), 400, "unknown_file", "files");
    assert_eq!(api.describe(&id)["turn_count"], 3);
}

/// Sessions run concurrently and never see each other's events.
fn sessions_run_concurrently(backend: Backend) {
    let api = backend.api("");
    let ids: Vec<String> = (0..8).map(|_| api.session()).collect();
    // All turns have begun before any of them may end.
    let turns: Vec<u64> = ids.iter().map(|id| api.start_gated_turn(id)).collect();
    for (id, turn) in ids.iter().zip(turns) {
        api.open_gate(id);
        api.wait_for_turn(id, turn, "finished");
    }
    std::thread::scope(|scope| {
        for (n, id) in ids.iter().enumerate() {
            let api = &api;
            scope.spawn(move || {
                for round in 0..3 {
                    let words = format!("[[sleep 100]] [[say session {n} round {round}]]");
                    assert_eq!(api.ask(id, &words), format!("session {n} round {round}"));
                }
            });
        }
    });
    for id in &ids {
        let log = api.log(id);
        assert_gapless(&log);
        assert_eq!(log.iter().filter(|event| event["event"] == "turn").count(), 4);
    }
}
