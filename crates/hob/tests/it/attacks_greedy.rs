//! A greedy app: it takes whatever it can get. The owner and the other apps must still be served, and the server must
//! stay small.

use std::fs;
use std::io::Write;
use std::net::TcpStream;

use hob_testkit::wait_until;
use serde_json::{Value, json};

use crate::api::*;
use crate::attacks::{answers_until, assert_small};
use crate::memory_setup::{capture, said, transcript};

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
