//! The console: its page, signing in, and the origin guard that keeps other pages out.

use std::io::{Read, Write};
use std::net::TcpStream;

use hob_testkit::server::{Answer, folder_holds};
use hob_testkit::{HobServer, TestHome, wait_until};
use serde_json::{Value, json};

pub const ADMIN: &str = "the-admin-token-of-this-test";

pub fn serve(home: &TestHome) -> HobServer {
    serve_as(home, ADMIN)
}

fn serve_as(home: &TestHome, admin: &str) -> HobServer {
    home.serve_with(|command| {
        command.env("HOB_ADMIN_TOKEN", admin).env("HOB_LOG", "trace");
    })
}

fn login(server: &HobServer, token: &str) -> Answer {
    server.post("/admin/login", None, &json!({"token": token}))
}

/// Signs in and returns the cookie as a browser sends it back.
pub fn sign_in(server: &HobServer) -> String {
    let answer = login(server, ADMIN);
    assert_eq!(answer.status, 200, "{}", answer.text);
    let set = answer.headers["set-cookie"].to_str().unwrap().to_owned();
    for word in ["; HttpOnly", "; SameSite=Strict", "; Path=/", "; Max-Age="] {
        assert!(set.contains(word), "{set}");
    }
    set.split(';').next().unwrap().to_owned()
}

fn with_cookie(
    server: &HobServer,
    method: &str,
    path: &str,
    more: &[(&str, &str)],
    cookie: &str,
) -> Answer {
    let mut headers = vec![("cookie", cookie)];
    headers.extend(more);
    server.request(method, path, None, &headers, b"{}")
}

fn code(answer: &Answer) -> (u16, String) {
    (answer.status, answer.json()["code"].as_str().unwrap_or_default().to_owned())
}

/// A request written by hand, since a client would mend its headers.
fn raw(server: &HobServer, head: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    let length = body.len();
    write!(stream, "{head}connection: close\r\ncontent-length: {length}\r\n\r\n{body}").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let status = text.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or_default();
    (status, text)
}

#[test]
fn console_page_loads_nothing_from_elsewhere() {
    let home = TestHome::new();
    let server = home.serve();
    let (one, two) = (server.get("/", None), server.get("/", None));
    assert_eq!(one.status, 200);
    assert!(one.headers["content-type"].to_str().unwrap().starts_with("text/html"));
    assert_eq!(one.headers["cache-control"], "no-store");
    let policy =
        |answer: &Answer| answer.headers["content-security-policy"].to_str().unwrap().to_owned();
    let nonce = |answer: &Answer| {
        let policy = policy(answer);
        policy.split_once("'nonce-").unwrap().1.split('\'').next().unwrap().to_owned()
    };
    for word in ["unsafe", "http:", "https:", " *"] {
        assert!(!policy(&one).contains(word), "{}", policy(&one));
    }
    for word in
        ["default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'", "connect-src 'self'"]
    {
        assert!(policy(&one).contains(word), "{}", policy(&one));
    }
    assert_ne!(nonce(&one), nonce(&two), "one for each answer");
    assert!(nonce(&one).len() >= 16);
    assert!(one.text.contains(&nonce(&one)) && !one.text.contains("__HOB_NONCE__"));
    let expect = [
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
    ];
    for (name, value) in expect {
        assert_eq!(one.headers[name], value, "{name}");
    }
    // Nothing from elsewhere, nothing inline.
    for word in ["src=\"http", "href=\"http", "src=\"//", "onclick=", "javascript:"] {
        assert!(!one.text.contains(word), "{word}");
    }
    for part in one.text.split("<script").skip(1) {
        assert!(part.split('>').next().unwrap().contains("src="), "an inline script");
    }
    for path in ["/assets/nothing.js", "/assets/../index.html", "/assets/", "/index.html"] {
        assert_eq!(server.get(path, None).status, 404, "{path}");
    }
    // The page's own files are there, are known again, and never change.
    let files = one.text.split('"').filter(|part| part.starts_with("/assets/"));
    for path in files {
        let file = server.get(path, None);
        assert_eq!(file.status, 200, "{path}");
        assert!(file.headers["cache-control"].to_str().unwrap().contains("immutable"));
        assert!(!policy(&file).contains("unsafe"));
        let etag = file.headers["etag"].to_str().unwrap();
        let known = server.request("GET", path, None, &[("if-none-match", etag)], b"");
        assert_eq!((known.status, known.text.len()), (304, 0));
    }
}

/// Walks the document, so that no route can be forgotten.
#[test]
fn admin_routes_need_a_cookie_or_the_token() {
    let home = TestHome::new();
    let server = serve(&home);
    let document = server.get("/openapi.json", None).json();
    let mut walked = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        if !path.starts_with("/admin") && path != "/metrics" || path == "/admin/login" {
            continue;
        }
        let place = path
            .split('/')
            .map(
                |part| {
                    if part.starts_with('{') { "0123456789abcdef0123456789abcdef" } else { part }
                },
            )
            .collect::<Vec<_>>()
            .join("/");
        for method in methods.as_object().unwrap().keys() {
            let method = method.to_uppercase();
            let ask =
                |headers: &[(&str, &str)]| server.request(&method, &place, None, headers, b"{");
            for headers in [
                &[][..],
                &[("authorization", "Bearer wrong")],
                &[("x-api-key", "wrong")],
                &[("authorization", "Basic eDp5")],
                &[("cookie", "hob_console=1.99999999999.00.00")],
                &[("cookie", "hob_console=")],
            ] {
                let answer = ask(headers);
                assert_eq!(
                    code(&answer),
                    (401, "unauthorized".to_owned()),
                    "{method} {place} {headers:?}"
                );
            }
            walked += 1;
        }
    }
    assert!(walked >= 25, "{walked} routes");
}

#[test]
fn cookie_opens_what_the_admin_token_opens() {
    let home = TestHome::new();
    let server = serve(&home);
    for wrong in ["", "x", "the-admin-token-of-this-tes", "the-admin-token-of-this-test2"] {
        let answer = login(&server, wrong);
        assert_eq!(code(&answer), (401, "unauthorized".to_owned()));
        assert!(!answer.headers.contains_key("set-cookie"));
    }
    assert_eq!(server.post("/admin/login", None, &json!({})).status, 400);
    assert_eq!(server.post("/admin/login", None, &json!({"token": ADMIN, "x": 1})).status, 400);
    let cookie = sign_in(&server);
    let me = with_cookie(&server, "GET", "/admin/me", &[], &cookie);
    assert_eq!(me.status, 200, "{}", me.text);
    assert_eq!(me.headers["cache-control"], "no-store");
    let me = me.json();
    assert!(me["expires_at"].as_str().unwrap().ends_with('Z'));
    assert_eq!(me["limits"]["sessions"]["max_live"], 16);
    let demo = me["agents"].as_array().unwrap().iter().find(|agent| agent["name"] == "demo");
    assert_eq!(demo.unwrap(), &json!({"name": "demo", "driver": "demo", "installed": true}));
    assert_eq!(me["default_agent"], "claude", "a new session begins with it");
    let by_token = server.get("/admin/me", Some(ADMIN)).json();
    assert_eq!(by_token["expires_at"], Value::Null);
    assert_eq!(with_cookie(&server, "GET", "/admin/apps", &[], &cookie).status, 200);
    // It is the admin's, and no app's.
    assert_eq!(with_cookie(&server, "GET", "/sessions", &[], &cookie).status, 401);
    // A token that is there decides, also when it is wrong.
    let both = [("authorization", "Bearer x")];
    assert_eq!(with_cookie(&server, "GET", "/admin/apps", &both, &cookie).status, 401);
    // Whatever is changed in it makes it worthless.
    for place in ["hob_console=".len(), cookie.len() / 2, cookie.len() - 1] {
        let mut changed = cookie.clone().into_bytes();
        changed[place] = if changed[place] == b'0' { b'1' } else { b'0' };
        let changed = String::from_utf8(changed).unwrap();
        assert_eq!(
            with_cookie(&server, "GET", "/admin/me", &[], &changed).status,
            401,
            "{changed}"
        );
    }
    let origin = [("origin", server.url())];
    let out = with_cookie(&server, "POST", "/admin/logout", &origin, &cookie);
    assert_eq!(out.status, 200, "{}", out.text);
    let cleared = out.headers["set-cookie"].to_str().unwrap();
    assert!(cleared.starts_with("hob_console=;") && cleared.contains("Max-Age=0"), "{cleared}");
    let actions: Vec<String> = server.get("/admin/audit", Some(ADMIN)).json()["entries"]
        .as_array()
        .unwrap()
        .iter()
        .rev()
        .map(|entry| entry["action"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(
        actions,
        ["login_failed", "login_failed", "login_failed", "login_failed", "login", "logout"]
    );
}

#[test]
fn sign_in_survives_a_restart_but_not_a_new_token() {
    let home = TestHome::new();
    let server = serve(&home);
    let cookie = sign_in(&server);
    assert!(server.stop().success());
    let server = serve(&home);
    assert_eq!(with_cookie(&server, "GET", "/admin/me", &[], &cookie).status, 200);
    assert!(server.stop().success());
    let server = serve_as(&home, "another-token");
    assert_eq!(with_cookie(&server, "GET", "/admin/me", &[], &cookie).status, 401);
    assert!(server.stop().success());
    // Nor is it good in another home.
    let other = TestHome::new();
    let server = serve(&other);
    assert_eq!(with_cookie(&server, "GET", "/admin/me", &[], &cookie).status, 401);
}

#[test]
fn cookie_expires() {
    let home = TestHome::new();
    home.configure("[console]\nsession_secs = 1\n");
    let server = serve(&home);
    let cookie = sign_in(&server);
    wait_until("the cookie is over", || {
        (with_cookie(&server, "GET", "/admin/me", &[], &cookie).status == 401).then_some(())
    });
}

#[test]
fn requests_of_other_origins_are_refused() {
    let home = TestHome::new();
    let server = serve(&home);
    let cookie = sign_in(&server);
    let create = |headers: &[(&str, &str)]| {
        let mut all = vec![("cookie", cookie.as_str())];
        all.extend(headers);
        code(&server.request("POST", "/admin/apps", None, &all, br#"{"app":"made"}"#))
    };
    let bad = (403, "bad_origin".to_owned());
    let elsewhere = [
        "https://evil.com",
        "null",
        "http://localhost",
        "http://127.0.0.1",
        "http://127.0.0.1:1",
        "file://",
        "",
    ];
    assert_eq!(create(&[]), bad, "a browser says where it comes from");
    for origin in elsewhere {
        assert_eq!(create(&[("origin", origin)]), bad, "{origin}");
    }
    let same_site = [("origin", server.url()), ("sec-fetch-site", "same-site")];
    assert_eq!(create(&same_site), bad, "another port of this machine");
    // Reading needs no origin, but is not for another page either.
    for from in ["cross-site", "same-site"] {
        let headers = [("sec-fetch-site", from)];
        assert_eq!(code(&with_cookie(&server, "GET", "/admin/apps", &headers, &cookie)), bad);
    }
    let own = [("sec-fetch-site", "same-origin")];
    assert_eq!(with_cookie(&server, "GET", "/admin/apps", &own, &cookie).status, 200);
    assert_eq!(server.get("/admin/apps", Some(ADMIN)).json()["count"], 0, "nothing was made");
    // Sockets are as good as changes, also with a token.
    let upgrade =
        [("upgrade", "websocket"), ("connection", "upgrade"), ("origin", "https://evil.com")];
    let answer = server.request("GET", "/admin/audit", Some(ADMIN), &upgrade, b"");
    assert_eq!(code(&answer), bad);
    let silent = &upgrade[..2];
    assert_eq!(code(&with_cookie(&server, "GET", "/admin/audit", silent, &cookie)), bad);
    let by_token = server.request("GET", "/admin/audit", Some(ADMIN), silent, b"");
    assert_eq!(by_token.status, 200, "a program has no origin");
    // Nobody signs in from elsewhere.
    let headers = [("origin", "https://evil.com")];
    let body = json!({"token": ADMIN}).to_string();
    let answer = server.request("POST", "/admin/login", None, &headers, body.as_bytes());
    assert_eq!(code(&answer), bad);
    let (status, _) = (create(&[("origin", server.url())]), ());
    assert_eq!(status.0, 200);
}

#[test]
fn unknown_host_names_are_refused() {
    let home = TestHome::new();
    home.configure("hosts = [\"hob.example.org\"]\n");
    let server = serve(&home);
    let port = server.address().rsplit(':').next().unwrap().to_owned();
    let ask = |path: &str, host: &str| {
        let head =
            format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {ADMIN}\r\n");
        raw(&server, &head, "")
    };
    for path in ["/", "/admin/me", "/admin/apps", "/admin/nowhere", "/assets/x.js", "/favicon.svg"]
    {
        for host in [
            "evil.com",
            "localhost.evil.com",
            "127.0.0.1.nip.io",
            &format!("127.0.0.1.nip.io:{port}"),
            "hob.example.org.evil.com",
            "localhost@evil.com",
            "",
        ] {
            let (status, text) = ask(path, host);
            assert!(status == 403 && text.contains("bad_host"), "{path} {host:?}: {text}");
        }
    }
    for host in [
        "localhost".to_owned(),
        format!("localhost:{port}"),
        format!("hob.localhost:{port}"),
        format!("127.0.0.1:{port}"),
        format!("[::1]:{port}"),
        "HOB.example.org".to_owned(),
        "hob.example.org:443".to_owned(),
    ] {
        assert_eq!(ask("/", &host).0, 200, "{host}");
        assert_eq!(ask("/admin/me", &host).0, 200, "{host}");
    }
    // Two hosts, none, and another one in the request line.
    let token = format!("authorization: Bearer {ADMIN}\r\n");
    let heads = [
        format!("GET /admin/me HTTP/1.1\r\nhost: localhost\r\nhost: evil.com\r\n{token}"),
        format!("GET http://evil.com/admin/me HTTP/1.1\r\nhost: localhost\r\n{token}"),
        format!("GET /admin/me HTTP/1.0\r\n{token}"),
    ];
    for head in heads {
        let (status, text) = raw(&server, &head, "");
        assert!(matches!(status, 400 | 403), "{head}: {text}");
    }
    // Apps come under whatever name they like.
    assert_eq!(ask("/healthz", "evil.com").0, 200);
    // The owner's socket has no name.
    let output = home.run(&["sessions", "list", "--json"]);
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn wrong_sign_ins_are_rate_limited() {
    let home = TestHome::new();
    let server = serve(&home);
    for attempt in 0..10 {
        assert_eq!(login(&server, &format!("guess-{attempt}")).status, 401);
    }
    let answer = login(&server, "another");
    assert_eq!(code(&answer), (429, "too_many_attempts".to_owned()));
    let wait: u64 = answer.headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=60).contains(&wait), "{wait}");
    assert_eq!(login(&server, ADMIN).status, 200, "the right token always works");
    assert_eq!(
        server.get("/admin/me", Some(ADMIN)).status,
        200,
        "who has the token is not shut out"
    );
}

#[test]
fn logs_hold_no_token() {
    let home = TestHome::new();
    let server = serve(&home);
    let cookie = sign_in(&server);
    let guess = "a-wrong-token-somebody-tried";
    login(&server, guess);
    server.get("/admin/me", Some(guess));
    server.get(&format!("/admin/nowhere?token={ADMIN}"), Some(ADMIN));
    let origin = [("origin", server.url())];
    let body = br#"{"app":"made"}"#;
    let mut headers = vec![("cookie", cookie.as_str())];
    headers.extend(origin);
    let made = server.request("POST", "/admin/apps", None, &headers, body).json();
    let made = made["token"].as_str().unwrap().to_owned();
    with_cookie(&server, "POST", "/admin/logout", &origin, &cookie);
    let audit = server.get("/admin/audit", Some(ADMIN)).text;
    assert!(server.stop().success());
    let value = cookie.split_once('=').unwrap().1;
    for secret in [ADMIN, guess, &made, value] {
        assert!(!folder_holds(&home.hob_home(), secret), "{secret} lies in a file");
        assert!(!audit.contains(secret));
    }
}
