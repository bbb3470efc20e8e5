//! Peers that send without an end, guess without an end, or start many requests: agents on the owner's socket, and
//! strangers over HTTP.

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::time::Duration;

use hob_testkit::TestHome;
use nix::sys::resource::{Resource, setrlimit};
use serde_json::json;

use crate::api::*;
use crate::attacks::{answers_until, assert_small};
use crate::memory_setup::{capture, said, transcript};

/// Opens connections, announces a frame on each, sends all of it but the last bytes, and waits for the file `end`.
const UNFINISHED_FRAMES: &str = r#"
import os, socket, struct, sys, time
path, count, length = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
part, kept = b'x' * 500000, []
for number in range(count):
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(0.02)
    kept.append(connection)
    try:
        connection.connect(path)
        connection.sendall(struct.pack('>I', length))
        for begin in range(0, length - len(part), len(part)):
            connection.sendall(part)
    except OSError:
        pass
open('sent', 'w').close()
while not os.path.exists('end'):
    time.sleep(0.01)
"#;

/// Frames of agents that never ended stayed in memory, as many and as long as an agent liked.
#[test]
fn unfinished_frames_of_agents_do_not_fill_memory() {
    let api = api("");
    let path = transcript(&api.home, "t.jsonl", &[said("s", 0, "user", "the owners lantern")]);
    assert_eq!(capture(&api.home, &["--cwd", "/"], &path)["inserted"], 1);
    let socket = api.home.hob_home().join("hob.sock").display().to_string();
    // Frames that only the owner may send, and shorter ones.
    for (count, length) in [(20, 60_000_000), (120, 7_000_000)] {
        let id = api.session();
        fs::write(api.workspace(&id).join("frames.py"), UNFINISHED_FRAMES).unwrap();
        let send = format!(
            "setsid python3 frames.py {socket} {count} {length} > /dev/null 2>&1 & until [ -e sent ]; do sleep 0.05; done; echo sent"
        );
        assert_eq!(api.shell(&id, &send), "sent");
        assert_small(&api.server);
        let owner = api.home.run(&["recall", "--json", "--project", "*", "lantern"]);
        assert!(String::from_utf8_lossy(&owner.stdout).contains("the owners lantern"), "{owner:?}");
        fs::write(api.workspace(&id).join("end"), "").unwrap();
        assert_eq!(api.close(&id).status, 200);
    }
}

/// Bodies of strangers were read whole before anybody asked who they are.
#[test]
fn unfinished_bodies_of_strangers_do_not_fill_memory() {
    let api = api("");
    let part = vec![b'x'; 7_900_000];
    let mut kept = Vec::new();
    let wrong = "authorization: Bearer hob_wrong\r\n";
    for (path, token, count) in [
        ("/admin/login", "", 80),
        ("/sessions", "", 20),
        ("/sessions", wrong, 20),
        ("/run", wrong, 20),
        ("/files", wrong, 20),
        ("/v1/messages", wrong, 20),
        ("/mcp", wrong, 20),
    ] {
        let kind = match path {
            "/files" => "multipart/form-data; boundary=edge",
            _ => "application/json",
        };
        for _ in 0..count {
            let mut stream = TcpStream::connect(api.server.address()).unwrap();
            stream.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
            // What the server refuses early cannot be sent.
            let _ = write!(
                stream,
                "POST {path} HTTP/1.1\r\nhost: localhost\r\n{token}content-type: {kind}\r\n\
                 content-length: 8000000\r\n\r\n"
            );
            let _ = stream.write_all(&part);
            kept.push(stream);
        }
        assert_small(&api.server);
    }
    assert_eq!(api.ask(&api.session(), "[[say hello]]"), "hello");
    let token = fs::read_to_string(api.home.hob_home().join("admin.token")).unwrap();
    let sign_in = api.server.post("/admin/login", None, &json!({"token": token.trim()}));
    assert_eq!(sign_in.status, 200, "{}", sign_in.text);
    drop(kept);
}

/// Wrong tokens of requests with admin rights could be tried without a limit.
#[test]
fn wrong_bearer_tokens_are_limited() {
    let api = api("");
    let ask = |token: &str| api.server.get("/admin/apps", Some(token)).status;
    let wrong: Vec<u16> = (0..500).map(|number| ask(&format!("hob_wrong{number}"))).collect();
    assert!(wrong.starts_with(&[401]), "{wrong:?}");
    assert!(wrong.ends_with(&[429]), "{wrong:?}");
    let token = fs::read_to_string(api.home.hob_home().join("admin.token")).unwrap();
    assert_eq!(ask(token.trim()), 200, "the right one is always accepted");
    assert_eq!(api.get("/sessions").status, 200, "and so are those of apps");
}

/// Lines of MCP that never ended.
#[test]
fn endless_lines_of_mcp_do_not_fill_memory() {
    let api = api("");
    let socket = api.home.hob_home().join("hob.sock").display().to_string();
    let id = api.session();
    let script = UNFINISHED_FRAMES.replace(
        "connection.sendall(struct.pack('>I', length))",
        "call = b'{\"call\":\"mcp\",\"cwd\":null}'; connection.sendall(struct.pack('>I', len(call)) + call); \
         connection.settimeout(1); connection.recv(100)",
    );
    fs::write(api.workspace(&id).join("lines.py"), script).unwrap();
    let send = format!(
        "setsid python3 lines.py {socket} 10 100000000 > /dev/null 2>&1 & until [ -e sent ]; do sleep 0.05; done; echo sent"
    );
    assert_eq!(api.shell(&id, &send), "sent");
    answers_until(&api, || true);
    fs::write(api.workspace(&id).join("end"), "").unwrap();
}

/// Asks about a folder whose path nobody can have on 120 connections at once, and counts the answers.
const ENDLESS_FOLDERS: &str = r#"
import json, socket, struct, sys
kept = []
for number in range(120):
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(50)
    connection.connect(sys.argv[1])
    kept.append(connection)
    calls = [{"call": "mcp"}, {"call": "session_start", "session_id": None, "budget_tokens": 100},
        {"call": "tool", "name": "memory_stats", "arguments": {}, "app": None}]
    call = json.dumps({**calls[number % 3], "cwd": "/a" * 30_000}).encode()
    connection.sendall(struct.pack('>I', len(call)) + call)
for connection in kept[::3]:
    connection.sendall(b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
answered = 0
for number, connection in enumerate(kept):
    stream = connection.makefile('rb')
    length = struct.unpack('>I', stream.read(4))[0]
    assert stream.read(length)
    answered += bool(stream.readline()) if number % 3 == 0 else 1
open('answered', 'w').write(str(answered))
"#;

/// To find the project of a path of thousands of names took seconds, and went on when nobody waited any more.
#[test]
fn calls_from_endless_folders_keep_nobody_waiting() {
    let api = api("");
    let other = api.home.app("other");
    let path = transcript(&api.home, "t.jsonl", &[said("s", 0, "user", "the owners lantern")]);
    assert_eq!(capture(&api.home, &["--cwd", "/"], &path)["inserted"], 1);
    let socket = api.home.hob_home().join("hob.sock").display().to_string();
    let id = api.session();
    let workspace = api.workspace(&id);
    fs::write(workspace.join("folders.py"), ENDLESS_FOLDERS).unwrap();
    api.shell(&id, &format!("setsid python3 folders.py {socket} > said 2>&1 & echo started"));
    answers_until(&api, || {
        let owner = api.home.run(&["recall", "--json", "--project", "*", "lantern"]);
        assert!(String::from_utf8_lossy(&owner.stdout).contains("the owners lantern"), "{owner:?}");
        fs::read_to_string(workspace.join("answered")).is_ok_and(|count| count == "120")
    });
    let body = json!({"agent": "acp", "prompt": "[[say hello]]"});
    assert_eq!(api.call_as(&other, "POST", "/run", &[], &body).json()["result"], "hello");
}

/// Opens connections that never name a caller: silent ones, some with half a request, and some that read no answer.
fn strangers(address: &str, count: usize) -> Vec<TcpStream> {
    let requests = [
        "",
        "GET /healthz HTTP/1.1\r\nhost: local",
        "GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n",
    ];
    let open = |number: usize| {
        let mut stream = TcpStream::connect(address).unwrap();
        // The server may have closed it already.
        let _ = stream.write_all(requests[number % requests.len()].as_bytes());
        stream
    };
    (0..count).map(open).collect()
}

/// Connections without a request took all places, each for fifteen seconds, and everybody else waited.
#[test]
fn connections_without_callers_keep_nobody_out() {
    let home = TestHome::new();
    configure(&home, "");
    let token = home.app("tests");
    let server = home.serve_with(|command| {
        // SAFETY: setrlimit is async-signal-safe, and the closure does nothing else.
        unsafe { command.pre_exec(|| Ok(setrlimit(Resource::RLIMIT_NOFILE, 400, 400)?)) };
    });
    let api = Api::new(crate::backend::Backend::File, server, home, &token);
    let admin = fs::read_to_string(api.home.hob_home().join("admin.token")).unwrap();
    let id = api.session();
    std::thread::scope(|scope| {
        // A request of a caller goes on, however many strangers come after it.
        let said = scope.spawn(|| api.ask(&id, "[[sleep 3000]] [[say done]]"));
        for _ in 0..4 {
            let kept = strangers(api.server.address(), 320);
            answers_until(&api, || {
                let asked = api.get(&format!("/sessions/{id}")).status;
                let owner = api.server.get("/admin/apps", Some(admin.trim())).status;
                (asked, owner) == (200, 200)
            });
            drop(kept);
        }
        assert_eq!(said.join().unwrap(), "done");
    });
}
