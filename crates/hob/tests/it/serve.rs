//! `hob serve`: one per home, killed and started again, stopped in order.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::time::{Duration, Instant};

use hob_testkit::leak::{files_below, processes_with};
use hob_testkit::server::folder_holds;
use hob_testkit::{Stopwatch, TestHome, program, wait_until};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

fn scripted() -> TestHome {
    let home = TestHome::new();
    home.configure(&TestHome::scripted_agent("claude", "claude-tui", &[]));
    home
}

/// Starts a run that never ends and waits until its whole process tree exists.
fn hang(home: &TestHome, address: &str, token: &str, words: &str) -> TcpStream {
    let body = json!({"prompt": format!("{words} [[hang]]")}).to_string();
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "POST /run HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    wait_until("the agent and its daemon run", || (agents(home).len() >= 2).then_some(()));
    stream
}

/// Agents and what they started; the server itself and the shims aside.
fn agents(home: &TestHome) -> Vec<i32> {
    let hob = program("hob").display().to_string();
    processes_with(&format!("HOME={}", home.user_home().display()))
        .into_iter()
        .filter(|pid| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.split(|byte| *byte == 0).next() != Some(hob.as_bytes())
        })
        .collect()
}

#[test]
fn second_server_exits_3_and_names_the_first() {
    let home = TestHome::new();
    let server = home.serve();
    let second = home.run(&["serve", "--listen", "127.0.0.1:0"]);
    assert_eq!(second.status.code(), Some(3), "{second:?}");
    let error = String::from_utf8_lossy(&second.stderr);
    assert!(error.contains(&server.pid().to_string()), "{error}");
    assert!(second.stdout.is_empty());
    assert_eq!(server.get("/healthz", None).status, 200, "the first is not disturbed");
}

#[test]
fn port_in_use_exits_1_and_names_the_port() {
    let home = TestHome::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = home.run(&["serve", "--listen", &address]);
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains(&address) && error.contains("--listen"), "{error}");
    for wrong in ["nonsense", "127.0.0.1", "127.0.0.1:x", ":80", "127.0.0.1:99999", "::1", "a b:80"]
    {
        let output = home.run(&["serve", "--listen", wrong]);
        assert_eq!(output.status.code(), Some(2), "{wrong}: {output:?}");
    }
    assert!(home.serve().stop().success(), "nothing was left that is in the way");
}

#[test]
fn kill_9_leaves_no_agent_and_a_clean_next_start() {
    let home = scripted();
    let token = home.app("tests");
    let server = home.serve();
    let _client = hang(&home, server.address(), &token, "[[daemon]] [[stubborn]]");
    let killed = Stopwatch::start();
    server.kill();
    wait_until("agents and grandchildren are gone", || agents(&home).is_empty().then_some(()));
    // Contract, section 2.
    killed.assert_within(Duration::from_secs(3), "after kill -9 every agent is gone within 3 s");
    assert!(home.hob_home().join("hob.sock").exists(), "a stale socket is there");
    let server = home.serve();
    let answer = server.post("/run", Some(&token), &json!({"prompt": "hi"}));
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(files_below(&home.hob_home().join("workspaces")).len(), 0);
    assert_eq!(files_below(&home.hob_home().join("run")).len(), 0);
    assert!(server.stop().success());
}

/// Also when the shims are killed together with the server, the next start ends what is left. In a sandbox with
/// namespaces the kernel ends it at once.
#[test]
fn next_start_ends_what_a_killed_shim_left() {
    let home = scripted();
    let config = home.hob_home().join("config.toml");
    let trusted = std::fs::read_to_string(&config)
        .unwrap()
        .replace("writable", "sandbox = \"off\"\nwritable");
    std::fs::write(&config, trusted).unwrap();
    let token = home.app("tests");
    let server = home.serve();
    let _client = hang(&home, server.address(), &token, "[[daemon]]");
    let shims: Vec<i32> = hob_child::tree::descendants(server.pid())
        .into_iter()
        .filter(|process| process.parent == server.pid())
        .map(|process| process.pid)
        .collect();
    server.signal(Signal::SIGSTOP);
    for shim in shims {
        let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(shim), Signal::SIGKILL);
    }
    server.kill();
    wait_until("only the daemon is left", || (agents(&home).len() == 1).then_some(()));
    let server = home.serve();
    assert_eq!(agents(&home), [0; 0]);
    assert!(server.stop().success());
}

#[test]
fn sigterm_lets_running_work_finish() {
    let home = scripted();
    let token = home.app("tests");
    let server = home.serve();
    std::thread::scope(|scope| {
        let run = scope.spawn(|| {
            server.post("/run", Some(&token), &json!({"prompt": "[[sleep 700]] [[say done]]"}))
        });
        wait_until("the agent runs", || (!agents(&home).is_empty()).then_some(()));
        server.signal(Signal::SIGTERM);
        wait_until("no new connection is taken", || {
            TcpStream::connect(server.address()).is_err().then_some(())
        });
        let answer = run.join().unwrap();
        assert_eq!((answer.status, &answer.json()["result"]), (200, &json!("done")));
    });
    let mut server = server;
    assert_eq!(server.wait().code(), Some(0));
    assert!(!home.hob_home().join("hob.sock").exists());
}

#[test]
fn sigterm_ends_every_agent_after_the_grace() {
    let home = scripted();
    let token = home.app("tests");
    let server = home.serve_with(|command| {
        command.env("HOB_SHUTDOWN_GRACE_SECS", "0");
    });
    let _client = hang(&home, server.address(), &token, "[[daemon]] [[stubborn]]");
    assert_eq!(server.stop().code(), Some(0));
    assert_eq!(agents(&home), [0; 0]);
    assert_eq!(files_below(&home.hob_home().join("workspaces")).len(), 0);
}

#[test]
fn idle_server_stops_by_itself() {
    let home = TestHome::new();
    let mut server = home.serve_with(|command| {
        command.env("HOB_IDLE_SHUTDOWN_SECS", "1");
    });
    let held = UnixStream::connect(home.hob_home().join("hob.sock")).unwrap();
    let since = Instant::now();
    while since.elapsed() < Duration::from_millis(1500) {
        assert!(std::path::Path::new(&format!("/proc/{}", server.pid())).exists());
        std::thread::sleep(Duration::from_millis(50));
    }
    drop(held);
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn socket_answers_a_hello() {
    let home = TestHome::new();
    let server = home.serve();
    let mut stream = UnixStream::connect(home.hob_home().join("hob.sock")).unwrap();
    let mut call = |body: &str| -> Value {
        stream.write_all(&(body.len() as u32).to_be_bytes()).unwrap();
        stream.write_all(body.as_bytes()).unwrap();
        let mut length = [0; 4];
        stream.read_exact(&mut length).unwrap();
        let mut body = vec![0; u32::from_be_bytes(length) as usize];
        stream.read_exact(&mut body).unwrap();
        serde_json::from_slice(&body).unwrap()
    };
    let hello = call(r#"{"call":"hello","protocol":1}"#);
    assert_eq!(hello["hello"]["pid"], server.pid());
    assert_eq!(hello["hello"]["http"], server.url());
    assert!(
        call(r#"{"call":"hello","protocol":99}"#)["error"].as_str().unwrap().contains("protocol")
    );
    assert!(call("nonsense")["error"].is_string());
    assert!(
        call(r#"{"call":"hello","protocol":1}"#)["hello"].is_object(),
        "the connection lives on"
    );
}

#[test]
fn no_http_serves_only_the_socket() {
    let home = TestHome::new();
    let server = home.serve_with(|command| {
        command.arg("--no-http");
    });
    assert_eq!(server.url(), home.hob_home().join("hob.sock").display().to_string());
    let status = home.run(&["status", "--json"]);
    let status: Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!((&status["running"], &status["http"]), (&json!(true), &Value::Null));
}

#[test]
fn server_accepts_activated_sockets() {
    let home = TestHome::new();
    std::fs::create_dir_all(home.hob_home()).unwrap();
    let path = home.hob_home().join("handed.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let fd = listener.as_raw_fd();
    let mut server = home.serve_with(|command| {
        let hob = command.get_program().to_owned();
        let mut shell = std::process::Command::new("sh");
        shell
            .args(["-c", "export LISTEN_FDS=1 LISTEN_PID=$$; exec \"$0\" serve --no-http"])
            .arg(hob);
        shell.env_clear();
        for (name, value) in command.get_envs() {
            shell.env(name, value.unwrap_or_default());
        }
        shell.env("HOB_SOCKET", &path).env("HOB_IDLE_SHUTDOWN_SECS", "1");
        // SAFETY: dup2 and fcntl are async-signal-safe; the descriptor is open in the parent.
        unsafe {
            shell.pre_exec(move || {
                // A descriptor that is 3 already stays as it is, so its flag is cleared by hand.
                let done =
                    nix::libc::dup2(fd, 3) >= 0 && nix::libc::fcntl(3, nix::libc::F_SETFD, 0) >= 0;
                if done { Ok(()) } else { Err(std::io::Error::last_os_error()) }
            });
        }
        *command = shell;
    });
    assert_eq!(server.url(), path.display().to_string());
    let mut status = home.command(&["status", "--json"]);
    let status = status.env("HOB_SOCKET", &path).output().unwrap();
    assert!(status.status.success(), "{status:?}");
    assert_eq!(server.wait().code(), Some(0), "it stops by itself; the next connection starts it");
    assert!(path.exists(), "the activated socket is not removed");
}

#[test]
fn files_of_a_server_are_private_and_hold_no_secret() {
    let home = scripted();
    let token = home.app("tests");
    let server = home.serve();
    assert_eq!(server.post("/run", Some(&token), &json!({"prompt": "a-needle"})).status, 200);
    let failing = json!({"prompt": "[[garbage a-needle]] [[stderr a-needle]] [[exit 1]]"});
    let failed = server.post("/run", Some(&token), &failing);
    assert!(failed.status == 502 && failed.text.contains("a-needle"), "{}", failed.text);
    assert_eq!(server.post("/run", Some("hob_wrong-needle"), &json!({"prompt": "x"})).status, 401);
    // The files of the agents are removed in the background.
    wait_until("the trash is empty", || {
        files_below(&home.hob_home().join("trash")).is_empty().then_some(())
    });
    let mode = |path: &std::path::Path| {
        std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777
    };
    assert_eq!(mode(&home.hob_home()), 0o700);
    for file in files_below(&home.hob_home()) {
        if file.ends_with("config.toml") {
            continue;
        }
        assert_eq!(mode(&file), 0o600, "{}", file.display());
        assert_eq!(mode(file.parent().unwrap()), 0o700, "{}", file.display());
    }
    for secret in [token.as_str(), "hob_wrong-needle", "a-needle", "SQLite format"] {
        assert!(!folder_holds(&home.hob_home(), secret), "{secret} is in a file");
    }
    assert!(server.stop().success());
}

#[test]
fn home_with_a_passphrase_needs_it_to_start() {
    let home = TestHome::new();
    let serve = |passphrase: &str| {
        let mut command = home.command(&["serve", "--no-http"]);
        command.env("HOB_PASSPHRASE", passphrase);
        command
    };
    let token = home.app("tests");
    let server = home.serve_with(|command| {
        command.env("IAI_MCP_CRYPTO_PASSPHRASE", "open sesame");
    });
    let run = json!({"prompt": "hi", "agent": "demo"});
    assert_eq!(server.post("/run", Some(&token), &run).status, 200);
    assert!(server.stop().success());
    let wrong = serve("wrong").output().unwrap();
    assert_eq!(wrong.status.code(), Some(1));
    let error = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(error.contains("HOB_PASSPHRASE") && !error.contains("wrong"), "{error}");
    let missing = home.run(&["app", "list"]);
    assert_eq!(missing.status.code(), Some(1));
    let server = home.serve_with(|command| {
        command.env("HOB_PASSPHRASE", "open sesame");
    });
    assert_eq!(server.post("/run", Some(&token), &run).status, 200);
}

#[test]
fn database_of_another_key_is_refused_and_kept() {
    let home = TestHome::new();
    home.app("tests");
    let before = std::fs::read(home.hob_home().join("hob.db")).unwrap();
    std::fs::remove_file(home.hob_home().join("key")).unwrap();
    let output = home.run(&["serve", "--no-http"]);
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("hob.db") && error.contains("key"), "{error}");
    assert_eq!(std::fs::read(home.hob_home().join("hob.db")).unwrap(), before);
}

/// A file that `HOB_SOCKET` names by mistake was taken for a stale socket and removed.
#[test]
fn file_in_place_of_the_socket_is_kept() {
    let home = TestHome::new();
    let path = home.user_home().join("precious.txt");
    std::fs::write(&path, "precious").unwrap();
    let output = home.command(&["serve", "--no-http"]).env("HOB_SOCKET", &path).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("not a socket"), "{output:?}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
}
