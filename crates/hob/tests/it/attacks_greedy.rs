//! A greedy app: it takes whatever it can get. The owner and the other apps must still be served, and the server must
//! stay small.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;

use hob_testkit::wait_until;
use serde_json::{Value, json};

use crate::api::*;
use crate::attacks::{answers_until, assert_small};
use crate::memory_setup::{capture, json_of, said, transcript};

/// Opens a stream of a session's events that nobody reads.
fn unread_stream(api: &Api, token: &str, id: &str) -> TcpStream {
    let mut stream = TcpStream::connect(api.server.address()).unwrap();
    write!(
        stream,
        "GET /sessions/{id}/events HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n\
         accept: text/event-stream\r\n\r\n"
    )
    .unwrap();
    stream
}

/// What a session stores about itself is small, because every list of sessions reads it.
#[test]
fn descriptions_of_sessions_are_bounded() {
    let api = api("");
    for (field, most) in
        [("meta", 64 << 10), ("model", 1 << 10), ("system", 512 << 10), ("mcp_servers", 512 << 10)]
    {
        let long = "x".repeat(most);
        let value = match field {
            "meta" => json!({"a": long}),
            "mcp_servers" => json!([{"name": "a", "command": "a", "args": [long], "env": []}]),
            _ => json!(long + "x"),
        };
        let answer = api.post("/sessions", &json!({"agent": "acp", field: value}));
        assert_error(&answer, 400, "bad_request", field);
    }
    let meta = json!({"a": "x".repeat(60 << 10)});
    api.create(&json!({"agent": "acp", "meta": meta, "system": "x".repeat(512 << 10)}));
}

/// A list held the descriptions of all sessions in memory at once, and an app may have any number of closed ones.
#[test]
fn lists_of_many_sessions_do_not_fill_memory() {
    let api = api("");
    // It takes megabytes once it is parsed.
    let meta = json!({"a": vec![0; 32_000]});
    let make = || {
        let one = |_| {
            let id = api.create(&json!({"agent": "acp", "meta": meta}));
            assert_eq!(api.close(&id).status, 200);
            id
        };
        (0..50).map(one).collect::<Vec<String>>()
    };
    let mut made: Vec<String> = std::thread::scope(|scope| {
        let made: Vec<_> = (0..4).map(|_| scope.spawn(make)).collect();
        made.into_iter().flat_map(|made| made.join().unwrap()).collect()
    });
    made.sort();
    let of_app = || api.get("/sessions").json();
    let of_owner = || json_of(&api.home.run(&["sessions", "list", "--all", "--json"]));
    let mut lists = Vec::new();
    std::thread::scope(|scope| {
        let asked = [scope.spawn(of_app), scope.spawn(of_owner), scope.spawn(of_app)];
        answers_until(&api, || asked.iter().all(|asked| asked.is_finished()));
        lists.extend(asked.map(|asked| asked.join().unwrap()));
    });
    for list in &lists {
        let sessions = list["sessions"].as_array().unwrap();
        assert!(sessions.iter().all(|session| session["meta"] == meta), "whole descriptions");
        let mut ids: Vec<&str> =
            sessions.iter().map(|session| session["session_id"].as_str().unwrap()).collect();
        ids.sort_unstable();
        assert_eq!(ids, made);
    }
    assert_eq!((&lists[0]["ok"], &lists[0]["count"]), (&json!(true), &json!(made.len())));
}

/// Messages between two turns are stored, so that an agent that sends them without end would fill the disk.
#[test]
fn agent_that_floods_between_turns_is_stopped() {
    let api = api("");
    let id = api.session();
    assert_eq!(api.turn(&id, "[[afterwards 200]]").status, 200);
    wait_until("a notice says why", || {
        let log = api.log(&id);
        let is_notice = |event: &&Value| event["event"] == "notice";
        log.iter().find(is_notice).map(|event| event["message"].to_string())
    });
    api.wait_for_no_process();
    let bytes: usize = api.log(&id).iter().map(|event| event.to_string().len()).sum();
    assert!(bytes < 20 << 20, "{bytes}");
    assert_eq!(api.ask(&id, "[[say hello]]"), "hello", "the session goes on");
}

/// The owner, its hooks, the console and another app work.
fn assert_others_are_served(api: &Api, other: &str) {
    let id = api.create_as(other, &json!({"agent": "acp"}));
    let path = format!("/sessions/{id}/turn");
    let answer = api.call_as(other, "POST", &path, &[], &json!({"prompt": "[[say hello]]"}));
    assert_eq!((answer.status, &answer.json()["text"]), (200, &json!("hello")), "{}", answer.text);
    let upload = api.server.upload(Some(other), "x.txt", b"the words");
    assert_eq!(upload.status, 200, "{}", upload.text);
    let run = api.home.run(&["run", "--agent", "acp", "[[say from the owner]]"]);
    let said_by_run = String::from_utf8_lossy(&run.stdout).into_owned();
    assert!(said_by_run.contains("from the owner"), "{run:?}");
    let path = transcript(&api.home, "t.jsonl", &[said("s", 0, "user", "the owners lantern")]);
    assert_eq!(capture(&api.home, &["--cwd", "/"], &path)["inserted"], 1);
    assert!(api.home.run(&["status"]).status.success());
    assert!(api.home.run(&["app", "list"]).status.success());
}

/// One app took every place, and every connection that the server could have.
#[test]
fn greedy_app_leaves_places_and_connections_for_others() {
    let api = api("[sessions]\nmax_live = 3\n[limits]\napp_requests = 40\n");
    let other = api.home.app("other");
    let ids: Vec<String> = (0..3).map(|_| api.session()).collect();
    assert_error(&api.post("/sessions", &json!({"agent": "acp"})), 503, "pool_full", "3");
    assert_error(&api.post("/run", &json!({"agent": "acp", "prompt": "x"})), 503, "pool_full", "3");
    let mut streams: Vec<TcpStream> =
        (0..60).map(|n| unread_stream(&api, &api.token, &ids[n % 3])).collect();
    let refused = wait_until("the app has too many requests open", || {
        let answer = api.get("/sessions");
        // This request may have had the last place while the streams were refused.
        streams.push(unread_stream(&api, &api.token, &ids[0]));
        (answer.status == 429).then_some(answer)
    });
    assert_error(&refused, 429, "app_requests", "limits.app_requests");
    assert!(refused.headers.contains_key("retry-after"));
    assert_others_are_served(&api, &other);
    drop(streams);
    wait_until("its requests have ended", || (api.get("/sessions").status == 200).then_some(()));
}

/// Lines of an agent waited in memory, however long, until they were stored; so did what clients did not read.
#[test]
fn long_lines_of_agents_do_not_fill_memory() {
    let api = api("");
    let other = api.home.app("other");
    let ids: Vec<String> = (0..3).map(|_| api.session()).collect();
    let turns: Vec<(&String, u64)> = ids
        .iter()
        .map(|id| (id, api.start_turn(id, "[[thoughts 60 1000000]] [[say done]]")))
        .collect();
    let streams: Vec<TcpStream> =
        (0..30).map(|n| unread_stream(&api, &api.token, &ids[n % 3])).collect();
    answers_until(&api, || ids.iter().all(|id| api.describe(id)["state"] == "idle"));
    for (id, turn) in &turns {
        let answer = api.get_turn(id, *turn);
        assert_eq!(answer["state"], "finished", "{}", answer["error"]);
        assert_eq!((&answer["text"], &answer["more_events"]), (&json!("done"), &json!(true)));
        assert_small(&api.server);
    }
    assert_others_are_served(&api, &other);
    drop(streams);
    // The events are all there, page by page.
    let (mut after, mut messages) = (0, 0);
    loop {
        let page = api.get(&format!("/sessions/{}/events?after={after}", ids[0])).json();
        let events = page["events"].as_array().unwrap();
        messages += events.iter().filter(|event| event["event"] == "message").count();
        after = events.last().map_or(after, |event| event["seq"].as_u64().unwrap());
        if page["more"] == false {
            break;
        }
    }
    assert_eq!(messages, 62, "sixty thoughts, the text and the result");
    assert_small(&api.server);
}

/// A line that is too long for the protocol was dropped in silence, and the turn went on without it.
#[test]
fn endless_line_ends_the_turn_with_an_error() {
    let api = api("");
    let id = api.session();
    let answer = api.turn(&id, "[[thoughts 1 9000000]] [[say done]]");
    assert_error(&answer, 502, "agent_failed", "a line of more than 8 MiB");
    let again = || {
        let answer = api.turn(&id, "[[say again]]").json();
        assert_eq!(answer["text"], "again", "{answer}");
    };
    again();
    let answer = api.turn(&id, "[[big 3000000]] [[big 3000000]]").json();
    let text = answer["text"].as_str().unwrap();
    assert!(text.len() < 4_300_000 && text.ends_with("more than 4 MiB.]"), "{}", text.len());
    again();
    let run = json!({"agent": "acp", "prompt": "[[thoughts 1 9000000]] [[say done]]"});
    assert_error(&api.post("/run", &run), 502, "agent_failed", "a line of more than 8 MiB");
    assert_small(&api.server);
}

/// An ACP agent that asks for a file again and again, and never reads an answer.
const DEAF_AGENT: &str = r#"
import json, sys
def send(message):
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()
for line in sys.stdin:
    message = json.loads(line)
    method, result = message.get("method"), {}
    if method == "initialize":
        result = {"protocolVersion": 1, "agentCapabilities": {}}
    elif method == "session/new":
        result = {"sessionId": "s"}
        folder = message["params"]["cwd"]
    elif method == "session/prompt":
        open("large.txt", "w").write("x" * 4_000_000)
        for number in range(100_000):
            send({"jsonrpc": "2.0", "id": number, "method": "fs/read_text_file",
                "params": {"sessionId": "s", "path": folder + "/large.txt"}})
    if "id" in message and method:
        send({"jsonrpc": "2.0", "id": message["id"], "result": result})
"#;

#[test]
fn agent_that_reads_no_answers_has_to_wait() {
    let home = hob_testkit::TestHome::new();
    let script = home.user_home().join("deaf.py");
    fs::write(&script, DEAF_AGENT).unwrap();
    let agent = format!(
        "[sessions]\nturn_timeout_secs = 8\n[agents.deaf]\ndriver = \"acp\"\ncommand = [\"python3\", {script:?}]\n"
    );
    configure(&home, &agent);
    let token = home.app("tests");
    let api = crate::backend::Backend::File.start(home, &token);
    let id = api.create(&json!({"agent": "deaf"}));
    let turn = api.start_turn(&id, "go");
    answers_until(&api, || api.get_turn(&id, turn)["state"] == "timed_out");
    assert_eq!(api.turn(&api.session(), "[[say hello]]").json()["text"], "hello");
    assert_eq!(api.close(&id).status, 200);
}

/// The uploads of one app could fill the disk.
#[test]
fn uploads_of_an_app_are_bounded() {
    let api = api("[limits]\napp_upload_bytes = 1000000\n");
    let other = api.home.app("other");
    let words = vec![b'x'; 600_000];
    assert_eq!(api.server.upload(Some(&api.token), "one.txt", &words).status, 200);
    let second = api.server.upload(Some(&api.token), "two.txt", &words);
    assert_error(&second, 507, "app_uploads", "limits.app_upload_bytes");
    assert_eq!(api.server.upload(Some(&api.token), "small.txt", b"x").status, 200);
    assert_eq!(api.server.upload(Some(&other), "one.txt", &words).status, 200);
    let folder = api.home.hob_home().join("files/tests");
    wait_until("nothing of the refused file is left", || {
        (fs::read_dir(&folder).unwrap().count() == 2).then_some(())
    });
    let api = api.restart_after(|server| server.kill());
    let third = api.server.upload(Some(&api.token), "three.txt", &words);
    assert_error(&third, 507, "app_uploads", "limits.app_upload_bytes");
}

/// A session says which layers of the sandbox its agent has, as `hob doctor` does.
#[test]
fn session_says_which_layers_of_the_sandbox_are_active() {
    let api = api(&hob_testkit::TestHome::scripted_agent("free", "acp", &["acp"])
        .replace("[agents.free]\n", "[agents.free]\nsandbox = \"off\"\n"));
    let sandbox = api.describe(&api.session())["sandbox"].clone();
    let doctor = api.home.run(&["doctor", "--json"]);
    let doctor: Value = serde_json::from_slice(&doctor.stdout).unwrap();
    let check =
        doctor["checks"].as_array().unwrap().iter().find(|c| c["name"] == "sandbox").unwrap();
    let text = check.to_string();
    assert_eq!(sandbox["mode"], "workspace");
    let has = |layer: &str| sandbox["layers"].as_array().unwrap().contains(&json!(layer));
    assert_eq!(has("namespaces"), text.contains("by namespaces"), "{sandbox} {text}");
    let version = sandbox["landlock_version"].as_u64();
    assert_eq!(has("landlock"), version.is_some());
    let is_named = version.is_none_or(|version| text.contains(&format!("Landlock {version}")));
    assert!(is_named && has("limits"), "{sandbox} {text}");
    let id = api.create(&json!({"agent": "free"}));
    let expected = json!({"mode": "off", "layers": [], "landlock_version": null,
        "memory_bytes": null, "disk_bytes": null});
    assert_eq!(api.describe(&id)["sandbox"], expected);
}

/// Four apps that come after a greedy one each get a place, and the first of them also a run next to its session.
#[test]
fn greedy_app_leaves_a_place_for_every_other_app() {
    let api = api("[sessions]\nmax_live = 5\n");
    let _sessions: Vec<String> = (0..5).map(|_| api.session()).collect();
    let refused = api.post("/sessions", &json!({"agent": "acp"}));
    assert_error(&refused, 503, "pool_full", "5");
    let run = json!({"agent": "acp", "prompt": "[[say hello]]"});
    for number in 0..4 {
        let other = api.home.app(&format!("other-{number}"));
        api.create_as(&other, &json!({"agent": "acp"}));
        if number == 0 {
            let answer = api.call_as(&other, "POST", "/run", &[], &run);
            assert_eq!(answer.json()["result"], "hello", "{}", answer.text);
        }
    }
    let owner = api.home.run(&["run", "--agent", "acp", "[[say from the owner]]"]);
    assert!(String::from_utf8_lossy(&owner.stdout).contains("from the owner"), "{owner:?}");
    assert_error(&api.post("/run", &run), 503, "pool_full", "sessions.max_live");
}

/// Long bodies that had arrived were kept, with copies, until their requests were answered.
#[test]
fn finished_bodies_of_an_app_do_not_fill_memory() {
    let api = api("");
    let prompt = format!("[[sleep 3000]] [[say done]] {}", "x".repeat(7_900_000));
    let body = json!({"agent": "acp", "prompt": prompt}).to_string();
    let head = format!(
        "POST /run HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        api.token,
        body.len()
    );
    let ask = || {
        let mut stream = TcpStream::connect(api.server.address()).unwrap();
        let mut answer = String::new();
        // The server may refuse a body before it has been sent.
        let _ = stream.write_all(head.as_bytes());
        let _ = stream.write_all(body.as_bytes());
        let _ = stream.read_to_string(&mut answer);
        answer
    };
    let mut answers = Vec::new();
    std::thread::scope(|scope| {
        let asked: Vec<_> = (0..60).map(|_| scope.spawn(ask)).collect();
        answers_until(&api, || asked.iter().all(|asked| asked.is_finished()));
        answers.extend(asked.into_iter().map(|asked| asked.join().unwrap()));
    });
    let count = |status: &str| answers.iter().filter(|answer| answer.contains(status)).count();
    assert!(count("HTTP/1.1 200") > 0, "some are served");
    let refused = answers.iter().find(|answer| answer.contains("HTTP/1.1 429"));
    let refused = refused.expect("some are refused").to_ascii_lowercase();
    assert!(refused.contains("app_bodies") && refused.contains("retry-after: 1"), "{refused}");
    assert_eq!(api.ask(&api.session(), "[[say hello]]"), "hello");
}

/// So were long prompts of turns that nobody waits for.
#[test]
fn long_prompts_of_turns_do_not_fill_memory() {
    let api = api("");
    let ids: Vec<String> = (0..8).map(|_| api.session()).collect();
    let prompt = format!("[[sleep 1000]] [[say done]] {}", "x".repeat(7_900_000));
    let ask = |id: &String| {
        let path = format!("/sessions/{id}/turn");
        let headers = [("prefer", "respond-async")];
        api.call_as(&api.token, "POST", &path, &headers, &json!({"prompt": prompt}))
    };
    let mut answers = Vec::new();
    std::thread::scope(|scope| {
        let asked: Vec<_> = ids.iter().map(|id| scope.spawn(move || ask(id))).collect();
        answers_until(&api, || asked.iter().all(|asked| asked.is_finished()));
        answers.extend(asked.into_iter().map(|asked| asked.join().unwrap()));
    });
    assert!(answers.iter().any(|answer| answer.status == 202));
    let refused = answers.iter().find(|answer| answer.status == 429).expect("some are refused");
    assert_error(refused, 429, "app_bodies", "24 MiB");
    let is_idle = |id: &String| api.describe(id)["state"] == "idle";
    answers_until(&api, || ids.iter().all(is_idle));
    let again = wait_until("the ended turns no longer count", || {
        let answer = ask(&ids[0]);
        (answer.status != 429).then_some(answer.status)
    });
    assert_eq!(again, 202);
}
