//! Live terminals: the list, the screens, watching and typing.

use std::time::Duration;

use hob_terminal::{ScreenModel, Size};
use hob_testkit::web_socket::SocketMessage;
use hob_testkit::{TestHome, WebSocket, wait_until};
use serde_json::{Value, json};

use crate::api::{Api, STREAM, assert_error};
use crate::backend::Backend;
use crate::console::{ADMIN, serve, sign_in};

pub fn api() -> Api {
    let home = TestHome::new();
    // Where Claude Code keeps its transcripts.
    std::fs::create_dir_all(home.user_home().join(".claude")).unwrap();
    let agent = |name: &str, driver: &str, arguments: &[&str]| {
        TestHome::scripted_agent(name, driver, arguments).replace("~/.hob-scripted", "~/.claude")
    };
    let acp = TestHome::scripted_agent("acp", "acp", &["acp"]);
    home.configure(&format!("{acp}{}", agent("claude", "claude-tui", &[])));
    let token = home.app("tests");
    let server = serve(&home);
    Api::new(Backend::File, server, home, &token)
}

pub fn live(api: &Api) -> Vec<Value> {
    let answer = api.server.get("/admin/live", Some(ADMIN));
    assert_eq!(answer.status, 200, "{}", answer.text);
    let body = answer.json();
    assert_eq!(body["ok"], true);
    body["live"].as_array().expect("a list").clone()
}

pub fn screen(api: &Api, id: &str) -> String {
    let answer = api.server.get(&format!("/admin/live/{id}/screen"), Some(ADMIN));
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.text
}

/// A session of the scripted Claude in its terminal, once it shows its prompt.
pub fn terminal(api: &Api) -> String {
    let id = api.create(&json!({"agent": "claude"}));
    wait_until("its terminal shows the prompt", || {
        let ready = live(api).iter().any(|one| one["id"] == *id && one["terminal"] == true);
        (ready && screen(api, &id).contains("for shortcuts")).then_some(())
    });
    id
}

/// The audit of one thing, oldest first.
fn audit(api: &Api, id: &str) -> Vec<(String, Value)> {
    let body = api.server.get("/admin/audit", Some(ADMIN)).json();
    let entries = body["entries"].as_array().unwrap().clone();
    let of_it = entries.into_iter().rev().filter(|entry| entry["target"] == id);
    of_it.map(|e| (e["action"].as_str().unwrap().to_owned(), e["detail"].clone())).collect()
}

/// Somebody who watches, with a terminal of their own.
struct Watching {
    socket: WebSocket,
    model: ScreenModel,
    hello: Value,
    messages: Vec<Value>,
    bytes: usize,
    closed: Option<Option<u16>>,
}

fn watch(api: &Api, id: &str) -> Watching {
    let bearer = format!("Bearer {ADMIN}");
    let path = format!("/admin/live/{id}/attach");
    let socket = WebSocket::open(api.server.address(), &path, &[("authorization", &bearer)]);
    let mut socket = socket.unwrap_or_else(|status| panic!("refused with {status}"));
    let SocketMessage::Json(hello) = socket.next() else { panic!("no hello") };
    assert_eq!((&hello["type"], &hello["id"]), (&json!("hello"), &json!(id)));
    let cells = |key: &str| hello[key].as_u64().unwrap() as u16;
    let model = ScreenModel::new(Size { rows: cells("rows"), cols: cells("cols") });
    Watching { socket, model, hello, messages: Vec::new(), bytes: 0, closed: None }
}

impl Watching {
    #[track_caller]
    fn until(&mut self, what: &str, done: impl Fn(&Watching) -> bool) {
        while !done(self) {
            assert!(self.closed.is_none(), "{what}: {:?} {}", self.messages, self.model.text());
            match self.socket.next() {
                SocketMessage::Json(message) => {
                    if message["type"] == "size" {
                        let cells = |key: &str| message[key].as_u64().unwrap() as u16;
                        self.model.resize(Size { rows: cells("rows"), cols: cells("cols") });
                    }
                    self.messages.push(message);
                }
                SocketMessage::Bytes(bytes) => {
                    self.bytes += bytes.len();
                    self.model.feed(&bytes);
                }
                SocketMessage::Closed(code) => self.closed = Some(code),
            }
        }
    }

    #[track_caller]
    fn shows(&mut self, text: &str) {
        self.until(text, |watching| watching.model.text().contains(text));
    }

    /// Reads until the viewer shows what the server shows.
    #[track_caller]
    fn shows_the_screen(&mut self, api: &Api, id: &str) {
        let lines = |text: &str| -> Vec<String> {
            text.trim_end().lines().map(|line| line.trim_end().to_owned()).collect()
        };
        self.until("the server's screen", |watching| {
            let is_shown = || lines(&watching.model.text()) == lines(&screen(api, id));
            // The server may pass bytes on a moment before it draws them itself.
            is_shown() || {
                std::thread::sleep(Duration::from_millis(50));
                is_shown()
            }
        });
    }

    #[track_caller]
    fn hears(&mut self, message: Value) {
        self.until(&message.to_string(), |watching| watching.messages.contains(&message));
    }

    #[track_caller]
    fn is_refused(&mut self, words: &str) {
        self.until(words, |watching| {
            watching.messages.iter().any(|message| {
                let reason = message["reason"].as_str().unwrap_or_default();
                message["type"] == "refused" && reason.contains(words)
            })
        });
    }
}

#[test]
fn live_list_shows_sessions_and_their_screens() {
    let api = api();
    let (id, acp) = (terminal(&api), api.session());
    api.ask(&id, "[[say hello <world> & all]]");
    let list = live(&api);
    let one = list.iter().find(|one| one["id"] == *id).unwrap();
    assert_eq!((&one["kind"], &one["session_id"]), (&json!("session"), &json!(id)));
    assert_eq!((&one["app"], &one["agent"]), (&json!("tests"), &json!("claude")));
    assert_eq!(
        (&one["terminal"], &one["cols"], &one["rows"]),
        (&json!(true), &json!(120), &json!(40))
    );
    assert_eq!((&one["busy"], &one["turns"]), (&json!(false), &json!(1)));
    assert_eq!((&one["viewers"], &one["writer"]), (&json!(0), &json!(false)));
    assert_eq!(one["tokens"], 15);
    assert!(api.processes().contains(&(one["pid"].as_i64().unwrap() as i32)));
    let other = list.iter().find(|one| one["id"] == *acp).unwrap();
    assert_eq!((&other["terminal"], &other["pid"]), (&json!(false), &Value::Null));

    let place = format!("/admin/live/{id}/screen");
    let with = |query: &str, accept: &str| {
        let answer = api.server.request(
            "GET",
            &format!("{place}{query}"),
            Some(ADMIN),
            &[("accept", accept)],
            b"",
        );
        assert_eq!(answer.status, 200, "{}", answer.text);
        assert_eq!(answer.headers["cache-control"], "no-store");
        (answer.headers["content-type"].to_str().unwrap().to_owned(), answer.text)
    };
    let (kind, text) = with("", "*/*");
    assert!(kind.starts_with("text/plain") && text.contains("● hello <world> & all"), "{text}");
    assert!(!text.contains('\x1b'));
    let (_, ansi) = with("?format=ansi", "*/*");
    assert!(ansi.contains("\x1b[1mClaude Code") && ansi.contains("\x1b[?2004h"), "{ansi:?}");
    let (kind, svg) = with("?format=svg", "*/*");
    assert_eq!(kind, "image/svg+xml");
    assert!(svg.starts_with("<svg ") && svg.contains("hello &lt;world&gt; &amp; all"), "{svg}");
    assert_eq!(with("", "image/svg+xml"), (kind, svg));
    let (_, body) = with("", "application/json");
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((&body["ok"], &body["id"], &body["cols"]), (&json!(true), &json!(id), &json!(120)));
    assert!(body["cursor"]["row"].as_u64().unwrap() > 0, "{body}");
    assert_eq!(body["text"].as_str().unwrap(), text.trim_end_matches('\n'));
    assert_eq!(body["ansi"].as_str().unwrap(), ansi);

    let get = |path: &str| api.server.get(path, Some(ADMIN));
    assert_error(&get(&format!("{place}?format=png")), 400, "bad_request", "format");
    assert_error(&get("/admin/live/nothing/screen"), 404, "not_found", "no live session");
    assert_error(&get(&format!("/admin/live/{id}/attach")), 400, "not_websocket", "WebSocket");
    api.close(&id);
    wait_until("it shows nothing more", || (get(&place).status == 404).then_some(()));
    assert_error(&get(&place), 404, "not_found", "no live session");
    wait_until("it is off the list", || {
        live(&api).iter().all(|one| one["id"] != *id).then_some(())
    });
}

#[test]
fn live_routes_need_the_admin_and_the_own_origin() {
    let api = api();
    let id = terminal(&api);
    let path = format!("/admin/live/{id}/attach");
    for path in ["/admin/live", "/admin/live/stream", &format!("/admin/live/{id}/screen"), &path] {
        for token in [None, Some("wrong"), Some(api.token.as_str())] {
            assert_error(&api.server.get(path, token), 401, "unauthorized", "token");
        }
    }
    let address = api.server.address().to_owned();
    let open = |headers: &[(&str, &str)]| WebSocket::open(&address, &path, headers).map(drop);
    let (admin, app) = (format!("Bearer {ADMIN}"), format!("Bearer {}", api.token));
    let (own, cookie) = (format!("http://{address}"), sign_in(&api.server));
    assert_eq!(open(&[]), Err(401));
    assert_eq!(open(&[("authorization", &app)]), Err(401));
    assert_eq!(open(&[("authorization", &admin), ("origin", "http://evil.example")]), Err(403));
    assert_eq!(open(&[("authorization", &admin), ("origin", "null")]), Err(403));
    assert_eq!(open(&[("cookie", &cookie), ("origin", "http://evil.example")]), Err(403));
    assert_eq!(open(&[("cookie", &cookie), ("origin", "http://localhost:1")]), Err(403));
    assert_eq!(open(&[("cookie", &cookie)]), Err(403));
    assert_eq!(open(&[("authorization", &admin)]), Ok(()));
    assert_eq!(open(&[("authorization", &admin), ("origin", &own)]), Ok(()));
    assert_eq!(open(&[("cookie", &cookie), ("origin", &own)]), Ok(()));
    wait_until("all have left, and it is written down", || {
        let names: Vec<String> = audit(&api, &id).into_iter().map(|(name, _)| name).collect();
        let of = |name: &str| names.iter().filter(|other| *other == name).count();
        (of("attach") == 3 && of("detach") == 3).then_some(())
    });
}

#[test]
fn two_viewers_see_one_screen_and_one_types() {
    let api = api();
    let id = terminal(&api);
    let mut first = watch(&api, &id);
    assert_eq!(
        (&first.hello["terminal"], &first.hello["writer"]),
        (&json!(true), &json!("nobody"))
    );
    first.shows("for shortcuts");
    first.socket.send_bytes(b"typed");
    first.shows("❯\u{a0}typed");
    first.hears(json!({"type": "writer", "writer": "you"}));
    let mut second = watch(&api, &id);
    assert_eq!(second.hello["writer"], "other");
    second.shows("❯\u{a0}typed");
    // The terminal may still be drawing, and each viewer gets it in pieces of its own.
    first.shows_the_screen(&api, &id);
    second.shows_the_screen(&api, &id);
    second.socket.send_bytes(b"no");
    second.is_refused("another viewer has the input");
    second.socket.send_json(&json!({"type": "resize", "cols": 90, "rows": 30}));
    second.is_refused("can resize the terminal");
    let shown = live(&api).into_iter().find(|one| one["id"] == *id).unwrap();
    assert_eq!((&shown["viewers"], &shown["writer"]), (&json!(2), &json!(true)));

    second.socket.send_json(&json!({"type": "take"}));
    second.hears(json!({"type": "writer", "writer": "you"}));
    first.hears(json!({"type": "writer", "writer": "other"}));
    second.socket.send_bytes(b" on");
    first.shows("❯\u{a0}typed on");
    first.socket.send_bytes(b"no");
    first.is_refused("another viewer has the input");
    second.socket.send_json(&json!({"cols": 90, "rows": 30}));
    for watching in [&mut first, &mut second] {
        watching.hears(json!({"type": "size", "cols": 90, "rows": 30}));
    }
    second.socket.send_json(&json!({"type": "resize", "cols": 9999, "rows": 1}));
    first.hears(json!({"type": "size", "cols": 500, "rows": 5}));
    second.socket.send_json(&json!({"type": "release"}));
    first.hears(json!({"type": "writer", "writer": "nobody"}));
    second.socket.send_json(&json!({"type": "nonsense"}));
    second.is_refused("not a valid viewer message");

    // A text left in the box and the small screen do not disturb the next turn.
    drop(second);
    assert_eq!(api.ask(&id, "[[say the next answer]]"), "the next answer");
    first.hears(json!({"type": "size", "cols": 120, "rows": 40}));
    first.shows("● the next answer");
    // The end of the turn may still be in transit.
    first.until("the same screen", |watching| {
        watching.model.text() == screen(&api, &id).trim_end_matches('\n')
    });
    // A person may ask themselves.
    first.socket.send_bytes(b"[[say for a person]]");
    first.shows("❯\u{a0}[[say for a person]]");
    first.socket.send_bytes(b"\r");
    first.shows("● for a person");
    assert_eq!(api.ask(&id, "[[say and on]]"), "and on");

    api.close(&id);
    first.hears(json!({"type": "end", "reason": "the agent has ended"}));
    first.until("it is closed", |watching| watching.closed.is_some());
    assert_eq!(first.closed, Some(Some(1000)));
    let done = wait_until("it is written down", || {
        let done = audit(&api, &id);
        (done.iter().filter(|(action, _)| action == "detach").count() == 2).then_some(done)
    });
    let actions: Vec<&str> = done.iter().map(|(action, _)| action.as_str()).collect();
    assert_eq!(
        actions,
        ["attach", "take_writer", "attach", "take_writer", "detach", "take_writer", "detach"]
    );
    assert_eq!(done[3].1, json!({"from": "other"}));
    let all = api.server.get("/admin/audit", Some(ADMIN)).text;
    assert!(!all.contains("typed on") && !all.contains("for a person"), "{all}");
}

#[test]
fn slow_viewer_gets_a_redraw_and_delays_nobody() {
    let api = api();
    let id = terminal(&api);
    let mut slow = watch(&api, &id);
    slow.shows("for shortcuts");
    const FLOOD: usize = 16 << 20;
    assert_eq!(api.ask(&id, &format!("[[flood {FLOOD}]] [[say at the end]]")), "at the end");
    wait_until("the screen is quiet", || screen(&api, &id).contains("at the end").then_some(()));
    slow.shows("● at the end");
    assert!(slow.bytes < FLOOD / 2, "{} bytes were sent", slow.bytes);
    assert_eq!(slow.model.text(), screen(&api, &id).trim_end_matches('\n'));
    // A viewer that reads too slowly is cut off, and no other one is.
    slow.socket.send_bytes(&[b'x'; 100 << 10]);
    slow.until("it is closed", |watching| watching.closed.is_some());
    assert!(screen(&api, &id).contains("at the end"));
}

#[test]
fn session_without_a_terminal_shows_its_events() {
    let api = api();
    let id = api.session();
    api.ask(&id, "[[say first answer]]");
    let mut watching = watch(&api, &id);
    assert_eq!(watching.hello["terminal"], false);
    watching.shows("first answer");
    watching.shows("── turn 1: finished, end_turn");
    api.ask(&id, r#"[[tool Bash {"command":"echo hi"}]] [[say second answer]]"#);
    watching.shows("second answer");
    assert!(watching.model.text().contains("echo hi"), "{}", watching.model.text());
    watching.socket.send_bytes(b"x");
    watching.is_refused("no terminal");
    watching.socket.send_json(&json!({"type": "take"}));
    watching.is_refused("no terminal");
    assert!(screen(&api, &id).contains("first answer"));
    let svg = api.server.get(&format!("/admin/live/{id}/screen?format=svg"), Some(ADMIN)).text;
    assert!(svg.contains(">first answer<"), "{svg}");
    api.close(&id);
    watching.hears(json!({"type": "end", "reason": "the session is closed"}));
}

#[test]
fn viewers_hear_that_the_server_stops() {
    let api = api();
    let id = terminal(&api);
    let mut watching = watch(&api, &id);
    watching.shows("for shortcuts");
    let Api { server, home, .. } = api;
    assert!(server.stop().success());
    watching.hears(json!({"type": "end", "reason": "hob is stopping"}));
    drop(home);
}

#[test]
fn live_stream_sends_the_list_and_screens_as_they_change() {
    let api = api();
    let admin = api.with_token(ADMIN);
    let mut stream = admin.stream("GET", "/admin/live/stream", &[STREAM], &Value::Null);
    let first = stream.next().unwrap();
    assert_eq!((first.kind.as_str(), &first.json()["live"]), ("live", &json!([])));
    let id = terminal(&api);
    let mut seen = Vec::new();
    let found = loop {
        let event = stream.next().unwrap();
        let data = event.json();
        let is_screen = event.kind == "screen";
        seen.push(event.kind);
        if is_screen && data["ansi"].as_str().unwrap().contains("for shortcuts") {
            break data;
        }
        assert!(seen.len() < 100, "{seen:?}");
    };
    assert_eq!(
        (&found["id"], &found["cols"], &found["rows"]),
        (&json!(id), &json!(120), &json!(40))
    );
    assert!(seen.iter().any(|event| event == "live"));
    api.close(&id);
    stream.until(|event| event.kind == "live" && event.json()["live"] == json!([]));
}
