//! Requests that no honest client sends: names that lead elsewhere, endless uploads, garbage. The server
//! refuses them, stays up, and uses little memory.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hob_testkit::leak::files_below;
use hob_testkit::wire::WireRequest;
use hob_testkit::{HobServer, Random, Wire, is_campaign};
use serde_json::json;

use crate::setup::{home, memory};

/// How much more memory than before any of this may take.
const MORE: f64 = 48.0;

/// Runs something, and looks at the server's memory before and after.
fn bounded(server: &HobServer, what: &str, work: impl FnOnce()) {
    let before = memory(server.pid(), "VmRSS");
    // Resets the peak.
    let _ = fs::write(format!("/proc/{}/clear_refs", server.pid()), "5");
    work();
    let (peak, after) = (memory(server.pid(), "VmHWM"), memory(server.pid(), "VmRSS"));
    println!("abuse: {what}: RSS {before:.0} MB before, {peak:.0} MB at most, {after:.0} MB after");
    assert!(peak < before + MORE, "{what}: {before:.0} MB grew to {peak:.0} MB");
    assert_eq!(server.get("/healthz", None).status, 200, "{what}: it still answers");
}

/// Returns whether this is a proper answer to a broken request: a client error, or a closed connection.
fn is_refusal(status: Option<u16>) -> bool {
    status.is_none_or(|status| (400..500).contains(&status))
}

/// Sends bytes and returns the status of the first answer, if there is one.
fn raw(server: &HobServer, bytes: &[u8]) -> Option<u16> {
    let mut wire = Wire::connect(server.address()).ok()?;
    // The other side may close while we still write.
    let _ = wire.send(bytes);
    wire.head().ok().map(|head| head.status)
}

/// Sends bytes and closes the writing side. For requests without an end, which the server would wait for.
fn raw_cut(server: &HobServer, bytes: &[u8]) -> Option<u16> {
    let mut wire = Wire::connect(server.address()).ok()?;
    let _ = wire.send(bytes);
    wire.end();
    wire.head().ok().map(|head| head.status)
}

fn escaped(name: &str) -> String {
    name.bytes().map(|byte| format!("%{byte:02x}")).collect()
}

#[test]
fn hostile_names_in_paths_are_refused() {
    let home = home("");
    let server = home.serve();
    let token = home.app("abuse");
    let client = server.client(&token);
    let id = client.session();
    client.ask(&id, "hello");
    let names = [
        "..".to_owned(),
        "../admin.token".to_owned(),
        "../../../../etc/passwd".to_owned(),
        format!("../workspaces/{id}"),
        format!("{id}/../{id}"),
        format!("{id}\0"),
        format!("{id}\n"),
        format!(" {id}"),
        id.to_uppercase() + "F",
        "\u{202e}\u{feff}".to_owned(),
        "'; DROP TABLE sessions; --".to_owned(),
        "x".repeat(60_000),
        "%".to_owned(),
        "\u{fffd}".to_owned(),
    ];
    let document = server.get("/openapi.json", None).json();
    let mut count = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys().filter(|_| path.contains('{')) {
            for name in &names {
                let path = ["{id}", "{n}", "{request_id}", "{app}"]
                    .iter()
                    .fold(path.clone(), |path, part| path.replace(part, &escaped(name)));
                let method = method.to_uppercase();
                let body = Some(json!({"prompt": "x", "option": "yes"}).to_string());
                let token = Some(token.as_str());
                let asked = WireRequest {
                    method: &method,
                    path: &path,
                    token,
                    body,
                    ..WireRequest::default()
                };
                let reply = Wire::connect(server.address()).unwrap().call(&asked).unwrap();
                assert!(is_refusal(Some(reply.status())), "{method} {path:.200}: {reply:?}");
                count += 1;
            }
        }
    }
    // Written plainly, some of these are not even requests.
    for name in ["../admin.token", "..", "%zz", "%c0%ae%c0%ae", "a b", "\u{0}", "{id}"] {
        let request = format!(
            "GET /sessions/{name} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n\r\n"
        );
        let status = raw(&server, request.as_bytes());
        assert!(is_refusal(status), "{name:?}: {status:?}");
        count += 1;
    }
    let files = ["..", "../x", "/etc/passwd", "", "x", &"a".repeat(32), &"../".repeat(50)];
    for file in files {
        let body = json!({"prompt": "x", "files": [file]});
        let answer = server.post(&format!("/sessions/{id}/turn"), Some(&token), &body);
        assert_eq!(answer.status, 400, "{file:?}: {}", answer.text);
        count += 1;
    }
    println!("abuse: {count} requests with names that lead elsewhere");
    assert!(server.stop().success());
}

/// All files of the home but those of the databases, the logs and the agents.
fn files_of(home: &Path) -> BTreeSet<PathBuf> {
    let changing = ["hob.db", "memory.db", "logs", "run", "tmp", "workspaces"];
    let moves = |path: &Path| {
        let below = path.strip_prefix(home).unwrap_or(path).display().to_string();
        changing.iter().any(|name| below.starts_with(name))
    };
    files_below(home).into_iter().filter(|path| !moves(path)).collect()
}

#[test]
fn hostile_names_of_uploads_stay_in_their_folder() {
    let home = home("");
    let server = home.serve();
    let token = home.app("abuse");
    let before = files_of(&home.hob_home());
    let long = "n".repeat(100_000);
    let names = [
        "../../admin.token",
        "/etc/cron.d/x",
        "..\\..\\config.toml",
        "....//....//x",
        "%2e%2e%2fadmin.token",
        "x\0y",
        ".",
        "..",
        "-rf",
        "~/x",
        "con\u{202e}txt.exe",
        "a/b/c/../../../../d",
        &long,
    ];
    let room = home.hob_home().join("files/abuse");
    let mut stored = 0;
    for name in names {
        let answer = server.upload(Some(&token), name, b"content");
        if answer.status == 200 {
            stored += 1;
            let path = PathBuf::from(answer.json()["path"].as_str().unwrap());
            let real = path.canonicalize().unwrap();
            let inside = real.strip_prefix(room.canonicalize().unwrap()).unwrap();
            assert_eq!(inside.components().count(), 2, "{name:.100}: {path:?}");
            assert_eq!(fs::read(&path).unwrap(), b"content");
        } else {
            assert_eq!(answer.status, 400, "{name:.100}: {}", answer.text);
        }
    }
    let new: Vec<PathBuf> = files_of(&home.hob_home()).difference(&before).cloned().collect();
    assert!(new.iter().all(|path| path.starts_with(&room)), "{new:?}");
    assert_eq!(new.len(), stored);
    println!("abuse: {} names of uploads, {stored} stored", names.len());
    assert!(server.stop().success());
}

/// The beginning of a form as a request with no length.
fn form_head(token: &str, more: &str) -> String {
    format!(
        "POST /files HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n\
         content-type: multipart/form-data; boundary=edge\r\ntransfer-encoding: chunked\r\n{more}\r\n"
    )
}

fn part(name: &str, file: Option<&str>) -> String {
    let file = file.map(|file| format!("; filename=\"{file}\"")).unwrap_or_default();
    format!("--edge\r\ncontent-disposition: form-data; name=\"{name}\"{file}\r\n\r\n")
}

/// Sends a form in chunks until it is done, the other side closes, or it has answered.
fn send_form<'a>(
    server: &HobServer,
    head: &str,
    parts: impl Iterator<Item = &'a [u8]>,
) -> Option<u16> {
    let mut wire = Wire::connect(server.address()).unwrap();
    wire.send(head.as_bytes()).unwrap();
    for bytes in parts {
        let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
        chunk.extend_from_slice(bytes);
        chunk.extend_from_slice(b"\r\n");
        if wire.send(&chunk).is_err() || has_answer(wire.stream()) {
            break;
        }
    }
    let _ = wire.send(b"0\r\n\r\n");
    wire.head().ok().map(|head| head.status)
}

fn has_answer(stream: &TcpStream) -> bool {
    let _ = stream.set_nonblocking(true);
    let peeked = stream.peek(&mut [0; 1]);
    let _ = stream.set_nonblocking(false);
    peeked.is_ok()
}

#[test]
fn endless_uploads_are_bounded() {
    let home = home("max_file_bytes = 1048576\nmax_body_bytes = 1048576");
    let server = home.serve();
    let token = home.app("abuse");
    let head = form_head(&token, "");
    let megabyte = vec![b'x'; 1 << 20];
    let many = if is_campaign() { 1024 } else { 128 };
    let room = home.hob_home().join("files/abuse");
    let stored = || fs::read_dir(&room).into_iter().flatten().count();
    // Once, so that everything that is created at first use exists.
    assert_eq!(server.upload(Some(&token), "first.txt", b"x").status, 200);

    bounded(&server, "1,000 parts, each a file", || {
        let parts = (0..1000).map(|n| part("file", Some(&format!("{n}.txt"))) + "x\r\n");
        let text = parts.collect::<String>() + "--edge--\r\n";
        let status = send_form(&server, &head, std::iter::once(text.as_bytes()));
        assert!(status == Some(200) || is_refusal(status), "{status:?}");
        assert!(stored() <= 2, "one request stores at most one file");
    });
    bounded(&server, "1,000 parts, none a file", || {
        let parts = (0..1000).map(|n| part(&format!("field{n}"), None) + "x\r\n");
        let text = parts.collect::<String>() + "--edge--\r\n";
        let status = send_form(&server, &head, std::iter::once(text.as_bytes()));
        assert_eq!(status, Some(400));
    });
    let before = stored();
    let file = part("file", Some("big.bin"));
    let endless = || std::iter::repeat_n(megabyte.as_slice(), many);
    bounded(&server, "a file larger than any", || {
        let form = std::iter::once(file.as_bytes()).chain(endless());
        let status = send_form(&server, &head, form);
        assert!(is_refusal(status), "{status:?}");
    });
    bounded(&server, "a field larger than any", || {
        let field = part("field", None);
        let form = std::iter::once(field.as_bytes()).chain(endless());
        let status = send_form(&server, &head, form);
        assert!(is_refusal(status), "{status:?}");
    });
    bounded(&server, "a file with no end", || {
        let whole = [file.as_bytes(), b"content\r\n--edg"].concat();
        let status = send_form(&server, &head, std::iter::once(whole.as_slice()));
        assert!(is_refusal(status), "{status:?}");
        // Broken off in the middle of a chunk.
        let cut = [head.as_bytes(), b"ffff\r\n", file.as_bytes(), b"conte"].concat();
        assert!(is_refusal(raw_cut(&server, &cut)));
    });
    hob_testkit::wait_until("nothing of what was refused is left", || {
        (stored() == before).then_some(())
    });
    assert!(server.stop().success());
}

/// Bytes before the first boundary and in the header of a part belong to no file, so the limit of files does not
/// bound them.
#[test]
fn forms_without_a_start_are_bounded() {
    let home = home("max_file_bytes = 1048576\nmax_body_bytes = 1048576");
    let server = home.serve();
    let token = home.app("abuse");
    let head = form_head(&token, "");
    let megabyte = vec![b'x'; 1 << 20];
    let endless = || std::iter::repeat_n(megabyte.as_slice(), 128);
    assert_eq!(server.upload(Some(&token), "first.txt", b"x").status, 200);
    bounded(&server, "a form that does not begin", || {
        let status = send_form(&server, &head, endless());
        assert!(is_refusal(status), "{status:?}");
    });
    bounded(&server, "a header of a part larger than any", || {
        let begin = b"--edge\r\ncontent-disposition: form-data; name=\"".as_slice();
        let status = send_form(&server, &head, std::iter::once(begin).chain(endless()));
        assert!(is_refusal(status), "{status:?}");
    });
    assert!(server.stop().success());
}

/// Deflated zeros without an end: 13 bits for 258 of them.
fn zeros_deflated(blocks: usize) -> Vec<u8> {
    let mut bits: Vec<bool> = Vec::new();
    // The last block, with fixed codes.
    bits.extend([true, true, false]);
    let code = |bits: &mut Vec<bool>, value: u32, length: u32| {
        bits.extend((0..length).rev().map(|bit| value >> bit & 1 == 1));
    };
    code(&mut bits, 0b0011_0000, 8);
    for _ in 0..blocks {
        // 258 more of what came one before.
        code(&mut bits, 0b1100_0101, 8);
        code(&mut bits, 0, 5);
    }
    code(&mut bits, 0, 7);
    let mut bytes = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3];
    bytes.extend(
        bits.chunks(8).map(|eight| {
            eight.iter().enumerate().map(|(at, bit)| u8::from(*bit) << at).sum::<u8>()
        }),
    );
    // The sum is wrong, which is known only to those who have inflated it all.
    bytes.extend([0; 8]);
    bytes
}

#[test]
fn compressed_bodies_are_not_inflated() {
    let home = home("");
    let server = home.serve();
    let token = home.app("abuse");
    assert_eq!(server.upload(Some(&token), "first.txt", b"x").status, 200);
    // 400 MB in 2.5 MB.
    let bomb = zeros_deflated(1_600_000);
    bounded(&server, "a body that inflates to 400 MB", || {
        let head = format!(
            "POST /sessions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n\
             content-type: application/json\r\ncontent-encoding: gzip\r\ncontent-length: {}\r\n\r\n",
            bomb.len()
        );
        let status = raw(&server, &[head.as_bytes(), &bomb].concat());
        assert!(is_refusal(status), "{status:?}");
    });
    bounded(&server, "an upload that inflates to 400 MB", || {
        let head = form_head(&token, "content-encoding: gzip\r\n");
        let status = send_form(&server, &head, bomb.chunks(1 << 16));
        assert!(is_refusal(status), "{status:?}");
    });
    bounded(&server, "a file that inflates to 400 MB", || {
        let answer = server.upload(Some(&token), "bomb.gz", &bomb);
        assert_eq!(answer.status, 200, "a file is a file: {}", answer.text);
        let path = answer.json()["path"].as_str().unwrap().to_owned();
        assert_eq!(fs::metadata(path).unwrap().len(), bomb.len() as u64);
    });
    assert!(server.stop().success());
}

/// The buffer for a request's head exists for every slow client, so it is bounded.
#[test]
fn headers_over_64_kib_are_refused() {
    let home = home("");
    let server = home.serve();
    for size in [65_536, 100_000, 300_000] {
        let value = "y".repeat(size);
        let request = format!("GET /healthz HTTP/1.1\r\nhost: x\r\nx: {value}\r\n\r\n");
        let status = raw(&server, request.as_bytes());
        assert!(is_refusal(status), "{size} bytes: {status:?}");
    }
    assert!(server.stop().success());
}

#[test]
fn garbage_requests_are_refused() {
    let home = home("");
    let server = home.serve();
    let token = home.app("abuse");
    let get = |more: &str| {
        format!("GET /sessions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n{more}\r\n")
    };
    assert_eq!(raw(&server, get("").as_bytes()), Some(200));
    bounded(&server, "huge headers", || {
        for size in [600_000, 2 << 20, 64 << 20] {
            let status = raw(&server, get(&format!("x: {}\r\n", "y".repeat(size))).as_bytes());
            assert!(is_refusal(status), "{size} bytes: {status:?}");
        }
        let many: String = (0..20_000).map(|n| format!("x{n}: y\r\n")).collect();
        let status = raw(&server, get(&many).as_bytes());
        assert!(is_refusal(status), "20,000 headers: {status:?}");
        let target = format!("GET /{} HTTP/1.1\r\nhost: x\r\n\r\n", "z".repeat(1 << 20));
        assert!(is_refusal(raw(&server, target.as_bytes())), "a path of a megabyte");
    });
    let post = |more: &str| {
        format!("POST /sessions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n{more}")
    };
    let broken = [
        post("content-length: -1\r\n\r\n{}"),
        post("content-length: 99999999999999999999999\r\n\r\n{}"),
        post("content-length: 2\r\ncontent-length: 3\r\n\r\n{}x"),
        post(
            "content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n",
        ),
        post("transfer-encoding: chunked, identity\r\n\r\n2\r\n{}\r\n0\r\n\r\n"),
        post("transfer-encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFF\r\n{}"),
        post("transfer-encoding: chunked\r\n\r\n-1\r\n{}"),
        post("transfer-encoding: chunked\r\n\r\n2;ext\r\n{}xx"),
        "GET /sessions HTTP/9.9\r\n\r\n".to_owned(),
        "GET\r\n\r\n".to_owned(),
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(),
        "\u{16}\u{3}\u{1}\u{2}\u{0}\u{1}".to_owned(),
        get("bad header\r\n"),
        get("x: a\u{0}b\r\n"),
        get(" folded: x\r\n"),
    ];
    for request in &broken {
        let status = raw(&server, request.as_bytes());
        assert!(is_refusal(status), "{request:?}: {status:?}");
    }
    for request in
        [post("content-length: 100\r\n\r\n{}"), "\r\n\r\n".to_owned(), get("")[..20].to_owned()]
    {
        let status = raw_cut(&server, request.as_bytes());
        assert!(is_refusal(status), "{request:?}: {status:?}");
    }
    // A good request, then garbage in the same breath: the first is answered, the rest is not.
    let rounds = if is_campaign() { 2_000 } else { 200 };
    let mut random = Random::new(9);
    let (mut whole, mut refused) = (0, 0);
    bounded(&server, &format!("{rounds} pipelines with garbage"), || {
        for _ in 0..rounds {
            let garbage: Vec<u8> =
                (0..64 + random.below(2000)).map(|_| random.below(256) as u8).collect();
            let good = 1 + random.below(3) as usize;
            let mut stream = TcpStream::connect(server.address()).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            let _ = stream.write_all(&[get("").repeat(good).as_bytes(), &garbage].concat());
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer);
            let answer = String::from_utf8_lossy(&answer);
            let answered = answer.matches("HTTP/1.1 200").count();
            refused += usize::from(answer.contains("HTTP/1.1 400"));
            assert!(answered <= good && !answer.contains("HTTP/1.1 5"), "{answer:.300}");
            whole += usize::from(answered == good);
        }
    });
    println!(
        "abuse: of {rounds} pipelines {whole} had all good requests answered, {refused} a 400 last"
    );
    assert_eq!(server.client(&token).get("/sessions").status, 200);
    assert!(server.stop().success());
}
