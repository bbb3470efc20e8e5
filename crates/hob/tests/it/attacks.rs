//! Attacks by the agents of apps. Each of them succeeded against an earlier build.
//!
//! An agent does here what an injected text might tell it to do. What it may reach is its own workspace; the owner, the
//! server and the other apps must not notice it.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hob_child::tree;
use hob_testkit::{HobServer, TestHome, program, wait_until};
use serde_json::{Value, json};

use crate::api::*;
use crate::memory_setup::{capture, said, transcript};
use crate::process_numbers::NumberChoice;

/// A server must stay far below this, whatever an agent leaves for it to read.
pub const MAX_SERVER_MB: u64 = 300;
/// How long the server may leave another client without an answer on a busy machine. An attack that works stops it for
/// good, or for as long as the attacker likes.
const MAX_SILENCE: Duration = Duration::from_secs(5);

/// Returns the resident memory of a process in MB.
pub fn resident_mb(pid: i32) -> u64 {
    memory_mb(pid, "VmRSS:")
}

/// Returns the most resident memory that a process has had, in MB.
pub fn peak_mb(pid: i32) -> u64 {
    memory_mb(pid, "VmHWM:")
}

fn memory_mb(pid: i32, kind: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("a live process");
    let line = status.lines().find_map(|line| line.strip_prefix(kind)).expect("its memory");
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().expect("a number") / 1024
}

#[track_caller]
pub fn assert_small(server: &HobServer) {
    let resident = resident_mb(server.pid());
    assert!(resident < MAX_SERVER_MB, "the server has taken {resident} MB");
}

/// Polls the server until `condition` holds. It must answer all the time.
#[track_caller]
pub fn answers_until(api: &Api, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    loop {
        let asked = Instant::now();
        assert_eq!(api.server.get("/healthz", None).status, 200);
        assert!(asked.elapsed() < MAX_SILENCE, "no answer for {:?}", asked.elapsed());
        assert_small(&api.server);
        if condition() {
            return;
        }
        assert!(started.elapsed() < Duration::from_secs(60), "the condition never held");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Polls the server as another client while `act` runs. It must answer all the time.
#[track_caller]
fn answers_while(api: &Api, act: impl FnOnce()) {
    let is_over = AtomicBool::new(false);
    let longest = std::thread::scope(|scope| {
        let polling = scope.spawn(|| {
            let mut longest = Duration::ZERO;
            while !is_over.load(Ordering::Relaxed) {
                let asked = Instant::now();
                assert_eq!(api.server.get("/healthz", None).status, 200);
                longest = longest.max(asked.elapsed());
                assert_small(&api.server);
                std::thread::sleep(Duration::from_millis(5));
            }
            longest
        });
        // The other thread must end even if `act` panics.
        let over = SetOnDrop(&is_over);
        act();
        drop(over);
        polling.join().expect("no panic")
    });
    assert!(longest < MAX_SILENCE, "no answer for {longest:?}");
}

struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Waits until an app's next turn is in its memory.
#[track_caller]
fn assert_still_remembers(api: &Api, token: &str, word: &str) {
    let id = api.create_as(token, &json!({"agent": "acp"}));
    let body = json!({"prompt": format!("[[say the {word} is here]]")});
    let answer = api.call_as(token, "POST", &format!("/sessions/{id}/turn"), &[], &body);
    assert_eq!(answer.status, 200, "{}", answer.text);
    answers_until(api, || !api.recalled(token, word).is_empty());
}

/// `.git` as a link to an endless device: the memory read it whole, again after every restart.
#[test]
fn git_link_to_an_endless_device_is_not_read() {
    let api = api("");
    let other = api.home.app("other");
    let id = api.session();
    api.shell(&id, "ln -s /dev/zero .git");
    assert_still_remembers(&api, &other, "lantern");
    assert_small(&api.server);
    let api = api.restart_after(|server| server.kill());
    assert_still_remembers(&api, &other, "anchor");
    answers_until(&api, || !api.recalled(&api.token, "zero").is_empty());
}

/// `.git` as a pipe: every call from such a folder held one of the places that the owner needs, for ever.
#[test]
fn calls_from_a_folder_with_a_pipe_as_git_do_not_block_the_owner() {
    let api = api("");
    let path = transcript(&api.home, "t.jsonl", &[said("s", 0, "user", "the owners lantern")]);
    assert_eq!(capture(&api.home, &["--cwd", "/"], &path)["inserted"], 1);
    let id = api.session();
    let hob = format!(
        "HOB_SOCKET={} {}",
        api.home.hob_home().join("hob.sock").display(),
        program("hob").display()
    );
    let calls = format!(
        "mkfifo .git; for i in $(seq 80); do {hob} recall x > /dev/null 2>&1 & done; sleep 2; echo made"
    );
    assert_eq!(api.shell(&id, &calls), "made");
    let asked = Instant::now();
    let owner = api.home.run(&["recall", "--json", "--project", "*", "lantern"]);
    let said = String::from_utf8_lossy(&owner.stdout);
    assert!(said.contains("the owners lantern"), "{said}");
    assert!(asked.elapsed() < MAX_SILENCE, "{:?}", asked.elapsed());
    assert_eq!(api.server.get("/healthz", None).status, 200);
}

/// A folder that says it is a working tree of the owner's repository got that project's memory.
#[test]
fn unpacked_archive_cannot_claim_a_projects_memory() {
    let api = api("");
    let user = api.home.user_home().canonicalize().unwrap();
    let (bank, archive) = (user.join("bank"), user.join("archive"));
    fs::create_dir_all(bank.join(".git")).unwrap();
    fs::create_dir_all(archive.join("fake")).unwrap();
    fs::write(archive.join(".git"), "gitdir: fake").unwrap();
    fs::write(archive.join("fake/commondir"), bank.join(".git").display().to_string()).unwrap();
    fs::write(archive.join("fake/gitdir"), archive.join(".git").display().to_string()).unwrap();
    let words = "the vault code is in drawer seven";
    let path = transcript(&api.home, "t.jsonl", &[said("s", 0, "user", words)]);
    let project = |path: &Path| path.display().to_string();
    assert_eq!(capture(&api.home, &["--cwd", &project(&bank)], &path)["inserted"], 1);
    let start = |folder: &Path| {
        let output = api.home.run(&["session-start", "--cwd", &project(folder)]);
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(start(&bank).contains("drawer seven"));
    assert!(!start(&archive).contains("drawer seven"));
}

/// An agent could replace the folder of an upload by a link, and Hob wrote the file wherever the link led.
#[test]
fn agent_cannot_change_the_folder_of_uploads() {
    let api = api("");
    let id = api.session();
    let upload = api.server.upload(Some(&api.token), "x.txt", b"the words").json();
    let path = upload["path"].as_str().unwrap();
    assert_eq!(api.shell(&id, &format!("cat {path}")), "the words");
    let folder = Path::new(path).parent().unwrap().display().to_string();
    let app = Path::new(path).ancestors().nth(2).unwrap().display().to_string();
    for command in [
        format!("mkdir {app}/new"),
        format!("mv {folder} {app}/else"),
        format!("rm {path}"),
        format!("echo more >> {path}"),
        format!("ln -s /tmp {app}/link"),
    ] {
        let said = api.shell(&id, &format!("{command} 2> /dev/null && echo yes || echo no"));
        assert_eq!(said, "no", "{command}");
    }
}

/// The transcript of a conversation as a pipe stopped the whole server; as a file of many gigabytes it filled memory.
#[test]
fn replaced_transcript_does_not_stop_the_server() {
    for replace in ["rm $f; mkfifo $f", "truncate -s 9G $f", "rm $f; ln -s /dev/zero $f"] {
        let api = api("");
        let id = api.create(&json!({"agent": "claude", "permissions": "allow"}));
        let find = "f=$(ls ${CLAUDE_CONFIG_DIR:-$HOME/.claude}/projects/*/*.jsonl | head -1)";
        let command = json!({"command": format!("{find}; touch begun; {replace}")});
        let turn = api.start_turn(&id, &format!("[[tool Bash {command}]] [[say done]]"));
        let begun = api.workspace(&id).join("begun");
        answers_until(&api, || begun.exists());
        // Longer than the server takes to look at the file again.
        let looked = Instant::now();
        answers_until(&api, || looked.elapsed() > Duration::from_secs(2));
        assert!(api.get_turn(&id, turn)["state"].is_string(), "{replace}");
        assert_eq!(api.close(&id).status, 200, "{replace}");
        assert_eq!(api.server.get("/healthz", None).status, 200);
        let (_home, _) = api.end_with(|server| assert_eq!(server.stop().code(), Some(0)));
    }
}

/// Removing a tree of many nested folders blocked the threads that answer everybody, for a time that grows with the square
/// of the depth.
#[test]
fn deep_folders_of_a_run_do_not_stop_the_server() {
    let api = api("");
    let dig = "python3 -c 'import os\nfor i in range(10000): os.mkdir(\"d\"); os.chdir(\"d\")'";
    let id = api.session();
    assert_eq!(api.shell(&id, &format!("{dig}; echo dug")), "dug");
    answers_while(&api, || assert_eq!(api.close(&id).status, 200));

    let prompt = format!("[[tool Bash {}]] [[say done]]", json!({"command": dig}));
    let body = json!({"agent": "acp", "prompt": prompt});
    answers_while(&api, || {
        std::thread::scope(|scope| {
            let runs: Vec<_> = (0..3).map(|_| scope.spawn(|| api.post("/run", &body))).collect();
            for run in runs {
                let run = run.join().unwrap();
                assert_eq!(run.status, 200, "{}", run.text);
            }
        });
    });

    let other = api.home.app("other");
    for _ in 0..4 {
        let id = api.create_as(&other, &json!({"agent": "acp"}));
        let path = format!("/sessions/{id}/turn");
        let turn = api.call_as(&other, "POST", &path, &[], &json!({"prompt": prompt}));
        assert_eq!(turn.status, 200, "{}", turn.text);
    }
    let admin = fs::read_to_string(api.home.hob_home().join("admin.token")).unwrap();
    answers_while(&api, || {
        let revoked = api.call_as(admin.trim(), "DELETE", "/admin/apps/other", &[], &Value::Null);
        assert_eq!(revoked.status, 200, "{}", revoked.text);
    });
    let trash = api.home.hob_home().join("trash");
    answers_until(&api, || fs::read_dir(&trash).unwrap().next().is_none());
}

/// A prompt that is one word of megabytes: stemming it took hours, and no app's turns were remembered meanwhile.
#[test]
fn endless_word_does_not_stop_the_memory() {
    let api = api("");
    let other = api.home.app("other");
    let id = api.session();
    let answer = api.turn(&id, &"y".repeat(3 << 20));
    assert_eq!(answer.status, 200);
    assert_still_remembers(&api, &other, "lantern");
}

/// Returns the number that a process has outside of its namespace. `argument` is one of its arguments.
fn outer_number(inside: i32, argument: &str) -> Option<i32> {
    let is_it = |pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(argument)
            && tree::numbers(*pid).last() == Some(&inside)
    };
    tree::all().into_iter().map(|process| process.pid).find(is_it)
}

/// A connection was attributed to whatever process had the number of the one that opened it. An agent's process could
/// connect, end, and become the owner once its number was given to a process outside of the sandbox.
#[test]
fn connection_of_an_ended_process_is_not_the_owners() {
    let Some(numbers) = NumberChoice::available() else {
        println!("skipped: there are too many numbers of processes");
        return;
    };
    let home = TestHome::new();
    configure(&home, "");
    let token = home.app("tests");
    let api = crate::backend::Backend::File.start(home, &token);
    let path = transcript(&api.home, "t.jsonl", &[said("s", 0, "user", "the owners lantern")]);
    assert_eq!(capture(&api.home, &["--cwd", "/"], &path)["inserted"], 1);
    let id = api.session();
    let script = r#"
import json, os, socket, struct, sys, time
open('begun', 'w').close()
while not os.path.exists('stopped'):
    time.sleep(0.01)
connection = socket.socket(socket.AF_UNIX)
child = os.fork()
if child == 0:
    connection.connect(sys.argv[1])
    open('child.part', 'w').write(str(os.getpid()))
    os.rename('child.part', 'child')
    while not os.path.exists('end'):
        time.sleep(0.01)
    os._exit(0)
os.waitpid(child, 0)
while not os.path.exists('go'):
    time.sleep(0.01)
body = json.dumps({'call': 'tool', 'name': 'memory_recall', 'cwd': '/', 'arguments': {'cue': 'lantern', 'project': '*'}}).encode()
try:
    connection.sendall(struct.pack('>I', len(body)) + body)
    connection.settimeout(10)
    answer = connection.recv(65536)
except OSError as error:
    answer = str(error).encode()
open('answer.part', 'wb').write(answer)
os.rename('answer.part', 'answer')
"#;
    let folder = api.workspace(&id);
    let socket = api.home.hob_home().join("hob.sock").display().to_string();
    fs::write(folder.join("attack.py"), script).unwrap();
    let attack = json!({"command": format!("(setsid python3 attack.py {socket} > /dev/null 2>&1 &) ; while [ ! -e ready ]; do sleep 0.01; done")});
    let turn = api.start_turn(&id, &format!("[[tool Bash {attack}]] [[say done]]"));
    // The server is stopped while the connection waits to be accepted, so that it looks at the peer too late.
    wait_until("the attack has begun", || folder.join("begun").exists().then_some(()));
    api.server.signal(nix::sys::signal::Signal::SIGSTOP);
    fs::write(folder.join("stopped"), "").unwrap();
    let inside: i32 = wait_until("the child has connected", || {
        fs::read_to_string(folder.join("child")).ok()?.parse().ok()
    });
    let child = wait_until("the child's number outside", || outer_number(inside, "attack.py"));
    fs::write(folder.join("end"), "").unwrap();
    wait_until("the child has ended", || {
        (!Path::new(&format!("/proc/{child}")).exists()).then_some(())
    });
    let reused = numbers.process(child);
    api.server.signal(nix::sys::signal::Signal::SIGCONT);
    let reused = reused.expect("a process with the number of the child");
    fs::write(folder.join("go"), "").unwrap();
    let answer = wait_until("an answer", || fs::read(folder.join("answer")).ok());
    fs::write(folder.join("ready"), "").unwrap();
    drop(reused);
    let answer = String::from_utf8_lossy(&answer).into_owned();
    assert!(!answer.contains("owners"), "{answer}");
    api.wait_for_turn(&id, turn, "finished");
}

/// Escape sequences in what others wrote reached the owner's terminal: they move the cursor, set the clipboard, or forge
/// what a command says.
#[test]
fn commands_print_no_control_characters_of_others() {
    let api = api("");
    let hostile = "the lantern\u{1b}]52;c;eA==\u{7}\u{9b}2K\rforged\u{202e}";
    let path = transcript(&api.home, "t.jsonl", &[said("s", 0, "user", hostile)]);
    assert_eq!(capture(&api.home, &["--cwd", "/"], &path)["inserted"], 1);
    let body = json!({"agent": "acp", "model": hostile, "meta": {"name": hostile}});
    let id = api.create(&body);
    assert_eq!(api.turn(&id, &format!("[[say {hostile}]]")).status, 200);
    let prompt = format!("[[say {hostile}]]");
    for arguments in [
        vec!["recall", "--project", "*", "lantern"],
        vec!["recall", "--json", "--project", "*", "lantern"],
        vec!["session-start", "--cwd", "/"],
        vec!["sessions", "show", &id],
        vec!["sessions", "show", "--json", &id],
        vec!["sessions", "tail", "--no-follow", &id],
        vec!["sessions", "list"],
        vec!["run", "--agent", "acp", &prompt],
        vec!["recall", hostile],
    ] {
        let output = api.home.run(&arguments);
        for stream in [&output.stdout, &output.stderr] {
            let text = String::from_utf8_lossy(stream);
            let acts = |c: char| c.is_control() && c != '\n' && c != '\t' || c == '\u{202e}';
            assert!(!text.contains(acts), "{arguments:?}: {text:?}");
        }
    }
    let found = api.home.run(&["recall", "--json", "--project", "*", "lantern"]);
    let found: serde_json::Value = serde_json::from_slice(&found.stdout).unwrap();
    assert_eq!(found["hits"][0]["text"], hostile, "JSON keeps the text");
}

/// Returns an app's server, or `None` on a kernel that does not allow agents a view of their own.
fn api_with_views(settings: &str) -> Option<Api> {
    if hob_child::namespace_processes::is_available(&program("hob"))
        || std::env::var_os("HOB_BIN").is_some()
    {
        return Some(api(settings));
    }
    println!("skipped: this kernel allows no unprivileged namespaces");
    None
}

fn succeeds(api: &Api, id: &str, command: &str) -> bool {
    api.shell(id, &format!("if ( {command} ) > /dev/null 2>&1; then echo yes; else echo no; fi"))
        == "yes"
}

/// An agent could connect to any socket with a path. The owner's tmux, ssh-agent, D-Bus and Docker run commands for
/// every process that connects.
#[test]
fn agent_cannot_use_the_owners_sockets() {
    let Some(api) = api_with_views("") else { return };
    let temporary = tempfile::tempdir().unwrap();
    let paths = [temporary.path().join("tmux.sock"), api.home.user_home().join("agent.sock")];
    let _listeners: Vec<_> =
        paths.iter().map(|path| std::os::unix::net::UnixListener::bind(path).unwrap()).collect();
    let id = api.session();
    for path in &paths {
        let connect = format!(
            "python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect(\"{}\")'",
            path.display()
        );
        assert!(!succeeds(&api, &id, &connect), "{}", path.display());
    }
    let own = "python3 -c 'import socket; a = socket.socket(socket.AF_UNIX); a.bind(\"s\"); a.listen(); \
        socket.socket(socket.AF_UNIX).connect(\"s\")'";
    assert!(succeeds(&api, &id, own), "its own sockets work");
}

/// The owner's terminals were open: an agent could read what the owner types and write what the owner sees.
#[test]
fn agent_cannot_open_other_terminals() {
    let Some(api) = api_with_views("") else { return };
    let terminal = nix::pty::openpty(None, None).unwrap();
    let path = nix::unistd::ttyname(&terminal.slave).unwrap();
    let id = api.session();
    assert!(!succeeds(&api, &id, &format!("echo forged > {}", path.display())));
    assert!(succeeds(&api, &id, "python3 -c 'import pty; pty.spawn([\"true\"])'"), "its own work");
}

/// The process table and the folder for temporary files were shared by all apps and the owner.
#[test]
fn agent_sees_no_processes_and_no_temporary_files_of_others() {
    let Some(api) = api_with_views("") else { return };
    let temporary = tempfile::tempdir().unwrap();
    fs::write(temporary.path().join("secret"), "the plans").unwrap();
    let mut command = std::process::Command::new("sleep");
    let mut secret = command.arg("1234.5").spawn().unwrap();
    let id = api.session();
    let seen = api.shell(&id, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '");
    secret.kill().unwrap();
    secret.wait().unwrap();
    assert!(!seen.contains("1234.5"), "{seen}");
    assert!(!succeeds(&api, &id, &format!("cat {}/secret", temporary.path().display())));
    assert!(succeeds(&api, &id, "echo x > /tmp/own && cat /tmp/own"));
    let other = api.session();
    assert!(!succeeds(&api, &other, "cat /tmp/own"), "each session has its own");
    assert!(!Path::new("/tmp/own").exists());
}

/// `chmod` is beyond Landlock: an agent could open Hob's home and the owner's keys to other users.
#[test]
fn agent_cannot_change_the_mode_of_the_owners_files() {
    let Some(api) = api_with_views("") else { return };
    let file = api.home.user_home().join("private");
    fs::write(&file, "").unwrap();
    let id = api.session();
    let (home, before) = (api.home.hob_home(), mode(&file));
    for path in [home.clone(), home.join("key"), file.clone()] {
        assert!(
            !succeeds(&api, &id, &format!("chmod 777 {}", path.display())),
            "{}",
            path.display()
        );
    }
    assert_eq!((mode(&home), mode(&home.join("key")), mode(&file)), (0o700, 0o600, before));
}

/// Agents could read the owner's credentials.
#[test]
fn agent_reads_no_credentials_unless_its_entry_names_them() {
    let home = TestHome::new();
    fs::create_dir_all(home.user_home().join(".ssh")).unwrap();
    fs::write(home.user_home().join(".ssh/id_ed25519"), "the key").unwrap();
    fs::write(home.user_home().join(".netrc"), "the password").unwrap();
    let named = TestHome::scripted_agent("named", "acp", &["acp"]);
    configure(&home, &format!("{named}readable = [\"~/.ssh\"]\n"));
    let token = home.app("tests");
    let api = crate::backend::Backend::File.start(home, &token);
    let id = api.session();
    for path in [".ssh/id_ed25519", ".netrc"] {
        assert!(!api.shell(&id, &format!("cat $HOME/{path} 2>&1")).contains("the "), "{path}");
    }
    let id = api.create(&json!({"agent": "named"}));
    assert_eq!(api.shell(&id, "cat $HOME/.ssh/id_ed25519"), "the key");
    assert!(!api.shell(&id, "cat $HOME/.netrc 2>&1").contains("the password"));
}

/// Returns the entry of a built-in agent with another program, and else unchanged.
fn built_in(name: &str, arguments: &[&str]) -> String {
    let agent = program("hob-scripted-agent").display().to_string();
    let command: Vec<&str> =
        std::iter::once(agent.as_str()).chain(arguments.iter().copied()).collect();
    format!("[agents.{name}]\ncommand = {command:?}\n")
}

/// Built-in agents could write the owner's configuration of their program, which names commands that the owner's own
/// program runs. They could also replace a folder there by a link, and the next agent could write where it led.
#[test]
fn agent_cannot_change_the_owners_configuration_of_agents() {
    let home = TestHome::new();
    let user = home.user_home();
    let files = [
        ".claude/settings.json",
        ".claude/projects/x/y.jsonl",
        ".claude.json",
        ".codex/config.toml",
        ".gemini/settings.json",
        ".config/opencode/opencode.json",
        ".local/share/opencode/plugin.js",
    ];
    for file in files {
        let path = user.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "{}").unwrap();
    }
    let entries: String =
        [("claude", &[][..]), ("codex", &["acp"]), ("gemini", &["acp"]), ("opencode", &["acp"])]
            .map(|(name, arguments)| built_in(name, arguments))
            .concat();
    home.configure(&entries);
    let token = home.app("tests");
    let api = crate::backend::Backend::File.start(home, &token);
    for agent in ["claude", "codex", "gemini", "opencode"] {
        let id = api.create(&json!({"agent": agent, "permissions": "allow"}));
        for file in files {
            let path = format!("$HOME/{file}");
            let change = format!("echo evil >> {path}; rm -f {path}; echo evil > {path}");
            api.shell(&id, &format!("( {change} ) > /dev/null 2>&1; echo tried"));
            assert_eq!(fs::read_to_string(user.join(file)).unwrap(), "{}", "{agent}: {file}");
        }
        let plant =
            "mv $HOME/.claude/projects $HOME/.claude/old; ln -s $HOME $HOME/.claude/projects";
        api.shell(&id, &format!("( {plant} ) > /dev/null 2>&1; echo tried"));
        assert!(!user.join(".claude/projects").is_symlink(), "{agent}");
        for variable in ["CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME", "XDG_CONFIG_HOME"] {
            let own = format!("[ -z \"${variable}\" ] || echo x > \"${variable}/own\"");
            assert!(succeeds(&api, &id, &own), "{agent}: {variable}");
        }
    }
}

/// A writable path inside another one was looked up by itself: an agent could replace it by a link, and the next agent
/// could write where it led.
#[test]
fn link_in_place_of_a_writable_path_opens_nothing() {
    let home = TestHome::new();
    let target = home.user_home().join("private");
    fs::create_dir_all(&target).unwrap();
    let agent = program("hob-scripted-agent").display().to_string();
    configure(
        &home,
        &format!(
            "[agents.nested]\ndriver = \"acp\"\ncommand = [{agent:?}, \"acp\"]\n\
             writable = [\"~/.hob-scripted\", \"~/.x\", \"~/.x/projects\"]\n"
        ),
    );
    let token = home.app("tests");
    let api = crate::backend::Backend::File.start(home, &token);
    let plant =
        "rm -rf $HOME/.x/projects; ln -s $HOME/private $HOME/.x/projects; ls -d $HOME/.x/projects";
    let first = api.create(&json!({"agent": "nested"}));
    assert!(api.shell(&first, plant).contains("projects"), "it may write its own folder");
    let second = api.create(&json!({"agent": "nested"}));
    api.shell(
        &second,
        "echo x > $HOME/private/escaped 2>&1; echo x > $HOME/.x/projects/escaped 2>&1; echo tried",
    );
    assert!(!target.join("escaped").exists());
}

/// An agent needs the owner's login, but not the token that renews it, and no other app may see it.
#[test]
fn login_reaches_an_agent_as_a_copy_for_its_app_only() {
    let home = TestHome::new();
    let login = home.user_home().join(".codex/auth.json");
    fs::create_dir_all(login.parent().unwrap()).unwrap();
    fs::write(&login, r#"{"tokens":{"access_token":"an-access","refresh_token":"a-refresh"}}"#)
        .unwrap();
    home.configure(&built_in("codex", &["acp"]));
    let (token, other) = (home.app("tests"), home.app("other"));
    let api = crate::backend::Backend::File.start(home, &token);
    let id = api.create(&json!({"agent": "codex"}));
    let copy = api.shell(&id, "cat $CODEX_HOME/auth.json");
    assert!(copy.contains("an-access") && !copy.contains("a-refresh"), "{copy}");
    let original = api.shell(&id, "cat $HOME/.codex/auth.json 2>&1");
    assert!(!original.contains("a-refresh"), "{original}");
    let folder = api.shell(&id, "echo $CODEX_HOME");
    api.shell(&id, "echo changed > $CODEX_HOME/auth.json; echo done");
    assert!(fs::read_to_string(&login).unwrap().contains("a-refresh"), "the owner's is unchanged");
    let stranger = api.create_as(&other, &json!({"agent": "codex"}));
    let seen = api
        .with_token(&other)
        .shell(&stranger, &format!("cat {folder}/auth.json 2>&1; ls {folder} 2>&1"));
    assert!(!seen.contains("changed"), "{seen}");
}

/// Prompts of runs were arguments, which every process of the machine can read.
#[test]
fn prompts_of_a_run_are_on_no_command_line() {
    let api = api("");
    let body = json!({
        "prompt": "[[sleep 1500]] [[say done]] a-secret-plan", "agent": "claude", "system": "a-secret-role",
    });
    let arguments = || {
        let lines = tree::all()
            .into_iter()
            .filter_map(|process| fs::read(format!("/proc/{}/cmdline", process.pid)).ok());
        lines.map(|line| String::from_utf8_lossy(&line).into_owned()).collect::<Vec<_>>()
    };
    std::thread::scope(|scope| {
        let run = scope.spawn(|| api.call("POST", "/run", &[], &body));
        let mut has_run = false;
        while !run.is_finished() {
            for line in arguments() {
                assert!(!line.contains("a-secret"), "{line:?}");
                has_run |= line.contains("--output-format");
            }
        }
        let answer = run.join().unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text);
        assert!(has_run, "the program was seen");
    });
}

/// An agent of the owner's own `hob run` could read all sealed secrets and delete the memory.
#[test]
fn agent_cannot_do_the_owners_acts() {
    let home = TestHome::new();
    configure(&home, "");
    let token = home.app("tests");
    let api = crate::backend::Backend::File.start(home, &token);
    let secret = "the deploy key is ghp_aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY3zA5";
    let path = transcript(&api.home, "t.jsonl", &[said("s", 0, "user", secret)]);
    assert_eq!(capture(&api.home, &["--cwd", "/"], &path)["inserted"], 1);
    let hob = format!(
        "HOB_SOCKET={} {}",
        api.home.hob_home().join("hob.sock").display(),
        program("hob").display()
    );
    let acts = [
        // Earlier builds had no `--yes`.
        "recall --unseal --project '*' deploy",
        "forget --session-id s",
        "recall --unseal --yes --project '*' deploy",
        "forget --session-id s --yes",
        "export --unseal --yes",
        "app create evil",
        "app revoke tests --yes",
        "key rotate --yes",
        "backup $PWD/all",
        "allow",
        "deny",
        "config set log debug",
        "stop",
    ];
    let script = acts.map(|act| format!("{hob} {act} 2>&1")).join("; ");
    let prompt = format!(
        "[[tool Bash {}]] [[say done]]",
        json!({"command": format!("({script}) > said; true")})
    );
    let workspace = api.home.user_home().join("work");
    fs::create_dir_all(&workspace).unwrap();
    let mut command = api.home.command(&["run", "--agent", "acp", &prompt]);
    let output = command.current_dir(&workspace).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let texts = crate::memory_setup::exported_texts(&api.home);
    assert!(texts.iter().any(|text| text.contains("the deploy key")), "{texts:?}");
    let apps = api.home.run(&["app", "list"]);
    let apps = String::from_utf8_lossy(&apps.stdout).into_owned();
    assert!(apps.contains("tests") && !apps.contains("evil"), "{apps}");
    let said = fs::read_to_string(workspace.join("said")).expect("the agent ran the commands");
    assert!(!said.contains("ghp_aB3d"), "{said}");
    assert!(api.home.run(&["status"]).status.success(), "{said}");
    let config = fs::read_to_string(api.home.hob_home().join("config.toml")).unwrap();
    assert!(!config.contains("log ="), "{config}");
}

/// A revoked app's runs went on to their end, and its agents until the next sweep.
#[test]
fn revoked_app_loses_its_runs_and_agents_at_once() {
    let api = api("[sessions]\nsweep_interval_secs = 3600\n");
    let id = api.session();
    api.shell(&id, "sleep 1234.75 > /dev/null 2>&1 & echo started");
    let runs = |argument: &str| {
        let has = |line: Vec<u8>| String::from_utf8_lossy(&line).contains(argument);
        let line = |pid: i32| fs::read(format!("/proc/{pid}/cmdline"));
        tree::all().iter().any(|process| line(process.pid).is_ok_and(has))
    };
    assert!(runs("1234.75"));
    let body = json!({"prompt": "[[sleep 30000]] [[say late]]", "agent": "claude"});
    std::thread::scope(|scope| {
        let run = scope.spawn(|| api.call("POST", "/run", &[], &body));
        wait_until("the run has started", || runs("--output-format").then_some(()));
        let admin = fs::read_to_string(api.home.hob_home().join("admin.token")).unwrap();
        let revoked = api.call_as(admin.trim(), "DELETE", "/admin/apps/tests", &[], &Value::Null);
        assert_eq!(revoked.status, 200, "{}", revoked.text);
        let answer = run.join().unwrap();
        assert_ne!(answer.status, 200, "{}", answer.text);
    });
    wait_until("the agents have ended", || (!runs("1234.75")).then_some(()));
    assert_eq!(api.server.get("/sessions", Some(&api.token)).status, 401);
}

/// A body of many small values took hundreds of times its size.
#[test]
fn body_of_millions_of_values_is_refused() {
    let api = api("");
    let values = vec!["[]"; 2_700_000].join(",");
    let body = format!("{{\"agent\":\"acp\",\"meta\":{{\"x\":[{values}]}}}}");
    for _ in 0..3 {
        let answer = api.server.call("POST", "/sessions", Some(&api.token), Some(body.as_bytes()));
        assert_eq!(answer.status, 400, "{}", answer.text);
        assert_small(&api.server);
    }
}

/// Ten wrong tokens locked the owner out for a minute.
#[test]
fn wrong_tokens_do_not_lock_the_owner_out() {
    let api = api("");
    let sign_in =
        |token: &str| api.server.post("/admin/login", None, &json!({"token": token})).status;
    let wrong: Vec<u16> = (0..15).map(|_| sign_in("hob_wrong")).collect();
    assert_eq!((wrong[0], wrong[14]), (401, 429));
    let token = fs::read_to_string(api.home.hob_home().join("admin.token")).unwrap();
    assert_eq!(sign_in(token.trim()), 200);
}

/// A socket with an odd name made every later agent start without its view, or without `/usr`.
#[test]
fn socket_with_an_odd_name_changes_nothing_for_others() {
    let Some(api) = api_with_views("") else { return };
    let other = api.home.app("other");
    let id = api.session();
    let bind = "import os, socket, time\nif os.fork(): os._exit(0)\nos.setsid()\n\
        names = [b'\\xff', b'/proc/self/cwd/usr', b'/proc/self/cwd/bin']\n\
        sockets = [socket.socket(socket.AF_UNIX) for _ in names]\n\
        [s.bind(n) for s, n in zip(sockets, names)]\nopen('bound', 'w').close()\ntime.sleep(60)";
    api.shell(&id, &format!("cat > bind.py <<'END'\n{bind}\nEND\npython3 bind.py > /dev/null 2>&1; until [ -e bound ]; do sleep 0.05; done; echo ok"));
    let other = api.with_token(&other);
    let id = other.create(&json!({"agent": "acp"}));
    let seen = other.shell(
        &id,
        "ls /usr/bin/env /bin/sh; cat /proc/1/comm | head -c 3; ls -d /proc/[0-9]* | wc -l",
    );
    assert!(seen.contains("/usr/bin/env") && seen.contains("/bin/sh"), "{seen}");
    let processes: usize = seen
        .lines()
        .last()
        .unwrap()
        .trim()
        .trim_start_matches(|c: char| !c.is_ascii_digit())
        .parse()
        .unwrap();
    assert!(processes < 15, "it has a view of its own: {seen}");
}

/// A process with a name that is not UTF-8 outlived its session.
#[test]
fn process_with_an_odd_name_ends_with_its_session() {
    let api = api("");
    let id = api.session();
    let odd = "import ctypes, os, signal, sys, time\nif os.fork(): os._exit(0)\nos.setsid()\nif os.fork(): os._exit(0)\n\
        signal.signal(signal.SIGTERM, signal.SIG_IGN)\nctypes.CDLL(None).prctl(15, b'\\xff\\xfe', 0, 0, 0)\n\
        open('named', 'w').close()\ntime.sleep(1000)";
    api.shell(&id, &format!("cat > odd.py <<'END'\n{odd}\nEND\npython3 odd.py marker-1234.625 > /dev/null 2>&1; until [ -e named ]; do sleep 0.05; done; echo ok"));
    let runs = || {
        let entries = fs::read_dir("/proc").unwrap().flatten();
        let line = |entry: fs::DirEntry| fs::read(entry.path().join("cmdline")).unwrap_or_default();
        entries.map(line).any(|line| String::from_utf8_lossy(&line).contains("marker-1234.625"))
    };
    assert!(runs());
    assert_eq!(api.call("DELETE", &format!("/sessions/{id}"), &[], &json!(null)).status, 200);
    wait_until("the process has ended", || (!runs()).then_some(()));
}
