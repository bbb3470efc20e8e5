//! The HTTP API: authentication, refusals and the shape of errors.

use std::io::{Read, Write};
use std::net::TcpStream;

use hob_testkit::TestHome;
use serde_json::{Value, json};

fn assert_error(answer: &hob_testkit::server::Answer, status: u16, code: &str, words: &str) {
    assert_eq!(answer.status, status, "{}", answer.text);
    let body = answer.json();
    let keys: Vec<&String> = body.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["ok", "error", "code"]);
    assert_eq!(body["ok"], false);
    assert_eq!(body["code"], code, "{}", answer.text);
    assert!(body["error"].as_str().unwrap().contains(words), "{}", answer.text);
}

#[test]
fn wrong_token_answers_401() {
    let home = TestHome::new();
    let token = home.app("tests");
    let admin = "the-admin-token";
    let server = home.serve_with(|command| {
        command.env("HOB_ADMIN_TOKEN", admin);
    });
    let run = json!({"prompt": "hi", "agent": "demo"});
    assert_eq!(server.get("/healthz", None).json()["ok"], true);
    assert_eq!(server.get("/openapi.json", None).status, 200);
    for wrong in [None, Some("x"), Some(admin), Some(&token[..token.len() - 1])] {
        let answer = server.post("/run", wrong, &run);
        assert_error(&answer, 401, "unauthorized", "token");
        assert_eq!(answer.headers["www-authenticate"], "Bearer");
    }
    // Who may not call learns nothing about the body either.
    assert_error(&server.call("POST", "/run", None, Some(b"{")), 401, "unauthorized", "token");
    assert_eq!(server.post("/run", Some(&token), &run).status, 200);
    for wrong in [None, Some("x"), Some(token.as_str())] {
        assert_error(&server.get("/admin/apps", wrong), 401, "unauthorized", "token");
        let answer = server.post("/admin/apps", wrong, &json!({"app": "x"}));
        assert_error(&answer, 401, "unauthorized", "token");
        assert_error(
            &server.call("DELETE", "/admin/apps/tests", wrong, None),
            401,
            "unauthorized",
            "",
        );
    }
    assert_eq!(server.get("/admin/apps", Some(admin)).status, 200);
}

#[test]
fn x_api_key_header_is_accepted() {
    let home = TestHome::new();
    let token = home.app("tests");
    let server = home.serve();
    let body = r#"{"prompt":"hi","agent":"demo"}"#;
    let mut stream = TcpStream::connect(server.address()).unwrap();
    write!(
        stream,
        "POST /run HTTP/1.1\r\nhost: x\r\nconnection: close\r\nx-api-key: {token}\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
}

#[test]
fn bad_requests_name_the_field() {
    let home = TestHome::new();
    let token = home.app("tests");
    let server = home.serve();
    let post = |body: &str| server.call("POST", "/run", Some(&token), Some(body.as_bytes()));
    let check = |body: &str, code: &str, words: &str| assert_error(&post(body), 400, code, words);
    check("", "bad_json", "not valid JSON");
    check("{", "bad_json", "not valid JSON");
    check("nonsense", "bad_json", "not valid JSON");
    check("[]", "bad_request", "must be a JSON object");
    check("{}", "bad_request", "prompt");
    check(r#"{"prompt":1}"#, "bad_request", "prompt");
    check(r#"{"prompt":"  "}"#, "bad_request", "prompt");
    check(r#"{"prompt":"x","promt":"y"}"#, "bad_request", "promt");
    check(r#"{"prompt":"x","timeout_secs":"soon"}"#, "bad_request", "timeout_secs");
    check(r#"{"prompt":"x","timeout_secs":0.9}"#, "bad_request", "timeout_secs");
    check(r#"{"prompt":"x","timeout_secs":1e9}"#, "bad_request", "timeout_secs");
    check(r#"{"prompt":"x","model":""}"#, "bad_request", "model");
    check(r#"{"prompt":"x","files":"f"}"#, "bad_request", "files");
    check(r#"{"prompt":"x","files":["f"]}"#, "unknown_file", "files");
    check(r#"{"prompt":"x","agent":"nobody"}"#, "unknown_agent", "nobody");
    check(r#"{"prompt":"x","agent":"../x"}"#, "unknown_agent", "agent");
    let null =
        post(r#"{"prompt":"x","agent":"demo","model":null,"files":null,"timeout_secs":null}"#);
    assert_eq!(null.status, 200, "{}", null.text);
}

#[test]
fn body_over_the_limit_answers_413() {
    let home = TestHome::new();
    home.configure("max_body_bytes = 20000\n");
    let token = home.app("tests");
    let server = home.serve();
    let ask = |length: usize| {
        server.post("/run", Some(&token), &json!({"prompt": "x".repeat(length), "agent": "demo"}))
    };
    assert_eq!(ask(19_000).status, 200);
    assert_error(&ask(20_000), 413, "too_large", "20000");
    assert_error(&ask(5_000_000), 413, "too_large", "20000");
    assert_eq!(ask(10).status, 200);
}

#[test]
fn unknown_paths_and_methods_answer_in_the_error_shape() {
    let home = TestHome::new();
    let server = home.serve();
    assert_error(&server.get("/nowhere", None), 404, "not_found", "path");
    let answer = server.get("/run", None);
    assert_error(&answer, 405, "method_not_allowed", "method");
    assert_eq!(answer.headers["allow"], "POST");
    assert!(!answer.headers["x-request-id"].is_empty());
}

#[test]
fn apps_are_created_listed_and_deleted_over_http() {
    let home = TestHome::new();
    let admin = "the-admin-token";
    let server = home.serve_with(|command| {
        command.env("HOB_ADMIN_TOKEN", admin);
    });
    let create = |name: Value| server.post("/admin/apps", Some(admin), &json!({"app": name}));
    let made = create(json!("one"));
    assert_eq!(made.status, 200, "{}", made.text);
    let token = made.json()["token"].as_str().unwrap().to_owned();
    assert_error(&create(json!("one")), 409, "conflict", "one");
    assert_error(&create(json!("a b")), 400, "bad_request", "app");
    assert_error(&create(json!(7)), 400, "bad_request", "app");
    let list = server.get("/admin/apps", Some(admin)).json();
    assert_eq!((&list["count"], &list["apps"][0]["app"]), (&json!(1), &json!("one")));
    let created = list["apps"][0]["created_at"].as_str().unwrap();
    assert!(created.ends_with('Z') && created.contains('T'), "{created}");
    let run = json!({"prompt": "hi", "agent": "demo"});
    assert_eq!(server.post("/run", Some(&token), &run).status, 200);
    assert_eq!(server.call("DELETE", "/admin/apps/one", Some(admin), None).status, 200);
    assert_eq!(server.post("/run", Some(&token), &run).status, 401, "worthless at once");
    let again = server.call("DELETE", "/admin/apps/one", Some(admin), None);
    assert_error(&again, 404, "not_found", "one");
}

#[test]
fn openapi_names_every_route_and_its_answers() {
    let home = TestHome::new();
    let server = home.serve();
    let document = server.get("/openapi.json", None).json();
    // A test of the gateway compares the document with the router.
    let paths = document["paths"].as_object().unwrap();
    for path in ["/", "/run", "/sessions/{id}/turn", "/files", "/admin/apps", "/admin/login"] {
        assert!(paths.contains_key(path), "{path}");
    }
    let answers = document["paths"]["/run"]["post"]["responses"].as_object().unwrap();
    let codes: Vec<&String> = answers.keys().collect();
    assert_eq!(codes, ["200", "400", "401", "408", "413", "429", "500", "502", "503", "504"]);
}

#[test]
fn slow_or_broken_client_does_not_delay_others() {
    let home = TestHome::new();
    let server = home.serve();
    let mut slow: Vec<TcpStream> =
        (0..200).map(|_| TcpStream::connect(server.address()).unwrap()).collect();
    for stream in &mut slow {
        stream.write_all(b"POST /run HTTP/1.1\r\nhost: x\r\nx-a: ").unwrap();
    }
    let mut garbage = TcpStream::connect(server.address()).unwrap();
    garbage.write_all(&[0, 255, 13, 10, 13, 10]).unwrap();
    let mut headers = TcpStream::connect(server.address()).unwrap();
    let huge = format!("GET /healthz HTTP/1.1\r\nx-a: {}\r\n\r\n", "y".repeat(2 << 20));
    let _ = headers.write_all(huge.as_bytes());
    assert_eq!(server.get("/healthz", None).status, 200);
    assert!(server.stop().success());
}
