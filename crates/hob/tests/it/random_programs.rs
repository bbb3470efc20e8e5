//! Random programs inside of an agent: whatever they do, nothing outside of the sandbox is read or changed, and the server
//! answers everybody.
//!
//! `HOB_CAMPAIGN` runs 500 seeds instead of 20. `HOB_SEED` runs one.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hob_testkit::agent::random_program::Targets;
use hob_testkit::{HobServer, TestHome, program, wait_until};
use serde_json::{Value, json};

use crate::api::*;
use crate::attacks::{MAX_SERVER_MB, resident_mb};
use crate::backend::Backend;
use crate::memory_setup::{capture, said, transcript};

const SEEDS: u64 = 20;
const CAMPAIGN_SEEDS: u64 = 500;
/// How long the server may leave others without an answer, in addition to what the machine itself takes.
const MAX_PAUSE: Duration = Duration::from_millis(250);
/// A request passes several threads, each of which may have to wait for a processor as long as the control does.
const HOPS: u32 = 4;
/// How many programs run in one session.
const PROGRAMS_PER_SESSION: u64 = 5;

/// Answers every connection with the marker, until the test ends.
fn serve_marker(listener: UnixListener, marker: &str) {
    let marker = marker.to_owned();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut stream = stream;
            let _ = stream.write_all(marker.as_bytes());
        }
    });
}

/// Echoes single bytes: a control that shows how long the machine itself takes.
fn serve_echo() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut byte = [0];
                while stream.read_exact(&mut byte).is_ok() && stream.write_all(&byte).is_ok() {}
            });
        }
    });
    address
}

/// What can be seen of a file: its type, mode, owner, content and time of change.
type Seen = (u32, u32, i64, Vec<u8>);

/// Returns everything below some folders and files. Hob itself changes databases, logs and its own folders, so these are
/// left out.
fn snapshot(roots: &[PathBuf], changed_by_hob: &[PathBuf]) -> BTreeMap<PathBuf, Seen> {
    let mut found = BTreeMap::new();
    let mut left = roots.to_vec();
    while let Some(path) = left.pop() {
        if changed_by_hob.contains(&path) {
            continue;
        }
        let Ok(metadata) = path.symlink_metadata() else { continue };
        let content = match metadata.is_file() {
            true => fs::read(&path).unwrap_or_default(),
            false => Vec::new(),
        };
        let at = if metadata.is_file() { metadata.mtime() } else { 0 };
        found.insert(path.clone(), (metadata.permissions().mode(), metadata.uid(), at, content));
        if metadata.is_dir() {
            left.extend(
                fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path()),
            );
        }
    }
    found
}

/// Sets a flag even if the test panics, so that its threads end.
struct SetAtEnd<'f>(&'f AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

struct Delays {
    server: Duration,
    machine: Duration,
    resident_mb: u64,
}

/// Asks the server again and again while `work` runs. Returns the longest delays, and the most memory.
fn measure<T: Send>(
    server: &HobServer,
    echo: &str,
    work: impl FnOnce() -> T + Send,
) -> (T, Delays) {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let (mut longest, mut most) = (Duration::ZERO, 0);
            while !is_over.load(Ordering::Acquire) {
                let asked = Instant::now();
                assert_eq!(server.get("/healthz", None).status, 200);
                longest = longest.max(asked.elapsed());
                most = most.max(resident_mb(server.pid()));
                std::thread::sleep(Duration::from_millis(5));
            }
            (longest, most)
        });
        let control = scope.spawn(|| {
            let mut longest = Duration::ZERO;
            let mut byte = [0];
            while !is_over.load(Ordering::Acquire) {
                let asked = Instant::now();
                let mut stream = TcpStream::connect(echo).unwrap();
                stream.write_all(&byte).unwrap();
                stream.read_exact(&mut byte).unwrap();
                longest = longest.max(asked.elapsed());
                std::thread::sleep(Duration::from_millis(5));
            }
            longest
        });
        let ended = SetAtEnd(&is_over);
        let done = work();
        drop(ended);
        let ((server, resident_mb), machine) = (asking.join().unwrap(), control.join().unwrap());
        (done, Delays { server, machine, resident_mb })
    })
}

/// A server with secrets, and what programs attack.
struct Setup {
    api: Api,
    targets: Targets,
    roots: Vec<PathBuf>,
    /// What Hob and its agents may change below the roots.
    excepted: Vec<PathBuf>,
    before: BTreeMap<PathBuf, Seen>,
    marker: String,
    /// The token and the session of another app.
    other: String,
    theirs: String,
}

/// Starts a server whose agents have this sandbox.
fn setup(sandbox: &str) -> Setup {
    let marker = format!("lanternfish{}{sandbox}", std::process::id());
    // Not in `/tmp`, of which an agent has its own: what is elsewhere can be seen.
    let home = TestHome::new_in(Path::new(env!("CARGO_TARGET_TMPDIR")));
    configure(&home, "");
    let (token, other) = (home.app("tests"), home.app("other"));
    let user = home.user_home().canonicalize().unwrap();
    let owned = |name: &str, text: &str| {
        let path = user.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    };
    let hidden = [".ssh/id_ed25519", ".aws/credentials", ".netrc"].map(|name| owned(name, &marker));
    let readable = [".bashrc", "project/main.rs", ".config/systemd/user/x.service"];
    let readable = readable.map(|name| owned(name, "open to readers\n"));
    let bus = user.join("bus.sock");
    serve_marker(UnixListener::bind(&bus).unwrap(), &marker);
    let name = format!("hob-test-{marker}");
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    serve_marker(UnixListener::bind_addr(&address).unwrap(), &marker);
    let server = home.serve_with(|command| {
        command.env("SECRET_OF_THE_SERVER", &marker).env("HOB_AGENTS_ACP_SANDBOX", sandbox);
    });
    let api = Api::new(Backend::File, server, home, &token);
    let record = said("s", 0, "user", &format!("the owners {marker}"));
    let path = transcript(&api.home, "t.jsonl", &[record]);
    assert_eq!(capture(&api.home, &["--cwd", "/"], &path)["inserted"], 1);
    fs::remove_file(&path).unwrap();
    // The other app's agent keeps a file, and its prompt is a secret too.
    let theirs = api.create_as(&other, &json!({"agent": "acp"}));
    let body = json!({"prompt": format!("[[note {marker}]] [[say ok]]")});
    let turn = format!("/sessions/{theirs}/turn");
    assert_eq!(api.call_as(&other, "POST", &turn, &[], &body).status, 200);
    let hob = api.home.hob_home().canonicalize().unwrap();
    let kept = hob.join("workspaces").join(&theirs).join("notes");
    assert!(fs::read_to_string(&kept).unwrap().contains(&marker));
    // The scripted agent's conversations are open to all apps.
    let conversations = user.join(".hob-scripted");
    fs::remove_dir_all(&conversations).unwrap();
    fs::create_dir_all(&conversations).unwrap();
    let own_files = ["key", "admin.token", "config.toml"].map(|name| hob.join(name));
    let text = |path: &PathBuf| fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
    let tokens = own_files[..2].iter().filter_map(text).filter(|text| text.len() > 8);
    let markers = [marker.clone()].into_iter().chain(tokens).collect();
    let roots = [vec![user.clone(), kept.clone()], own_files.to_vec()].concat();
    let excepted = vec![conversations, bus.clone()];
    let targets = Targets {
        secrets: [hidden.to_vec(), vec![kept], own_files.to_vec()].concat(),
        readable: readable.to_vec(),
        folders: vec![
            user.clone(),
            user.join(".ssh"),
            user.join(".config/systemd/user"),
            hob.clone(),
        ],
        sockets: vec![bus],
        abstract_socket: name,
        hob: hob.join("hob.sock"),
        http: api.server.address().to_owned(),
        server: api.server.pid(),
        markers,
    };
    let before = snapshot(&roots, &excepted);
    Setup { api, targets, roots, excepted, before, marker, other, theirs }
}

impl Setup {
    /// Runs the program of a seed in a session and returns what it says.
    fn run(&self, session: &str, seed: u64) -> String {
        let file = self.api.workspace(session).join("targets.json");
        fs::write(&file, serde_json::to_vec(&self.targets).unwrap()).unwrap();
        let agent = program("hob-scripted-agent").display().to_string();
        let command = format!(
            "timeout 60 {agent} random {seed} targets.json 2>&1 < /dev/null | head -c 20000"
        );
        self.api.shell(session, &command)
    }

    /// Returns what was changed, created or removed.
    fn changes(&self) -> Vec<PathBuf> {
        let now = snapshot(&self.roots, &self.excepted);
        let differs = |path: &&PathBuf| self.before.get(*path) != now.get(*path);
        self.before.keys().chain(now.keys()).filter(differs).cloned().collect()
    }
}

#[test]
fn random_programs_stay_inside() {
    if !hob_child::namespace_processes::is_available(&program("hob")) {
        println!("skipped: this kernel allows no unprivileged namespaces");
        return;
    }
    let setup = setup("workspace");
    let Setup { api, marker, other, theirs, .. } = &setup;
    let echo = serve_echo();
    let all = if std::env::var_os("HOB_CAMPAIGN").is_some() { CAMPAIGN_SEEDS } else { SEEDS };
    let one = std::env::var("HOB_SEED").ok().map(|seed| seed.parse::<u64>().expect("a number"));
    let seeds = one.map_or(1..=all, |seed| seed..=seed);
    let mut session = String::new();
    let mut worst = Delays { server: Duration::ZERO, machine: Duration::ZERO, resident_mb: 0 };
    for seed in seeds {
        if session.is_empty() || seed % PROGRAMS_PER_SESSION == 0 {
            if !session.is_empty() {
                assert_eq!(api.close(&session).status, 200, "seed {seed}");
            }
            session = api.session();
        }
        let (said, delays) = measure(&api.server, &echo, || setup.run(&session, seed));
        assert!(!said.contains("breach") && said.ends_with("ended"), "seed {seed}: {said}");
        let Delays { server, machine, resident_mb } = delays;
        assert!(
            server < MAX_PAUSE + machine * HOPS,
            "seed {seed}: no answer for {server:?}; the machine took {machine:?}"
        );
        assert!(resident_mb < MAX_SERVER_MB, "seed {seed}: {resident_mb} MB");
        assert_eq!(setup.changes(), Vec::<PathBuf>::new(), "seed {seed}");
        worst.server = worst.server.max(server);
        worst.machine = worst.machine.max(machine);
        worst.resident_mb = worst.resident_mb.max(resident_mb);
    }
    assert_eq!(api.close(&session).status, 200);
    println!(
        "longest answer {:?}, longest control {:?}, {} MB at most",
        worst.server, worst.machine, worst.resident_mb
    );
    // Everybody is served as before, and nothing of the programs is left.
    let turn = format!("/sessions/{theirs}/turn");
    let answer = api.call_as(other, "POST", &turn, &[], &json!({"prompt": "[[say hello]]"}));
    assert_eq!(answer.json()["text"], "hello", "{}", answer.text);
    let owner = api.home.run(&["recall", "--json", "--project", "*", marker]);
    assert!(String::from_utf8_lossy(&owner.stdout).contains(marker.as_str()), "{owner:?}");
    let path = format!("/sessions/{theirs}");
    assert_eq!(api.call_as(other, "DELETE", &path, &[], &Value::Null).status, 200);
    wait_until("no process of a program is left", || api.processes().is_empty().then_some(()));
}

/// The programs find what is open: without a sandbox they break out in many ways.
#[test]
fn random_programs_break_out_of_an_agent_without_a_sandbox() {
    let mut setup = setup("off");
    // Not the server itself, which they would end.
    setup.targets.server = std::process::id() as i32;
    let mut ways = BTreeSet::new();
    for seed in 1..=8 {
        let session = setup.api.session();
        let said = setup.run(&session, seed);
        let breaches = said.lines().filter_map(|line| line.strip_prefix("breach: "));
        ways.extend(breaches.map(|line| line.split(['/', '.']).next().unwrap().to_owned()));
        ways.extend(
            setup
                .changes()
                .iter()
                .map(|path| format!("change of {}", path.file_name().unwrap().to_string_lossy())),
        );
        assert_eq!(setup.api.close(&session).status, 200);
    }
    assert!(ways.len() >= 5, "{ways:?}");
    assert!(ways.iter().any(|way| way.starts_with("reading")), "{ways:?}");
    assert!(ways.iter().any(|way| way.contains("socket")), "{ways:?}");
    assert!(ways.iter().any(|way| way.starts_with("change")), "{ways:?}");
}
