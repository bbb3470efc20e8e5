//! The overhead of the backend over the real `claude`: a warm continuation compared with a bare reference
//! driver (paste, wait until the box shows it, Enter, poll the transcript every 5 ms) and with a fresh
//! process, and the memory of an idle session. Offline, against the scripted model API.
//!
//!     cargo bench -p hob-agents --bench claude [-- ROUNDS]
#![allow(clippy::disallowed_methods, reason = "tests make files and processes of their own")]

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use hob_agents::claude::{
    BackendOptions, ClaudeBackend, ConfigFolder, Event, LaunchSpec, Origin, Profile,
    prepare_own_folder, transcript_path,
};
use hob_agents::{LiveLimit, Runtime, SandboxConfig};
use hob_child::sweep::Marker;
use hob_child::{Child, ChildSpec, Children, ChildrenOptions, Size, Streams};
use hob_files::Trash;
use hob_testkit::{ModelApi, program};
use serde_json::{Value, json};

fn main() {
    let rounds = std::env::args().filter_map(|argument| argument.parse().ok()).next().unwrap_or(30);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    runtime.expect("a runtime").block_on(run(rounds));
}

struct Fixture {
    folder: tempfile::TempDir,
    config: PathBuf,
    environment: Vec<(OsString, OsString)>,
    command: String,
    children: Children,
}

impl Fixture {
    fn backend_options(&self, launch_spec: LaunchSpec, live: LiveLimit) -> BackendOptions {
        let folder = self.folder.path();
        let sandbox = SandboxConfig {
            home: folder.join("home"),
            backups: None,
            socket: folder.join("hob.sock"),
            files: folder.join("files"),
            temporary: folder.join("temporary"),
            private: folder.join("private"),
            has_view: false,
            has_control_groups: false,
            max_memory_bytes: None,
            max_disk_bytes: None,
            environment: Vec::new(),
        };
        let trash = Trash::open(&folder.join("trash")).expect("a folder");
        let runtime = Runtime::new(self.children.clone(), live, sandbox, trash);
        BackendOptions::new(runtime, launch_spec, folder.join("runtime"))
    }
}

async fn run(rounds: usize) {
    let api = ModelApi::start();
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir_all(folder.path().join("work")).expect("a folder");
    let mut environment: Vec<(OsString, OsString)> = api
        .claude_environment()
        .into_iter()
        .map(|(name, value)| (name.into(), value.into()))
        .collect();
    let key = "sk-ant-scripted-0123456789-0123456789";
    let config = prepare_own_folder(&folder.path().join("config"), key).expect("a config folder");
    environment.push(("PATH".into(), std::env::var_os("PATH").unwrap_or_default()));
    environment.push(("HOME".into(), folder.path().into()));
    let children = Children::new(ChildrenOptions {
        shim: program("hob-scripted-agent"),
        records: folder.path().join("run"),
        marker: Marker::new("bench", "1"),
        umask: 0o022,
        control_groups: None,
    })
    .expect("children");
    let command = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../e2e/node_modules/.bin/claude");
    let command = command.canonicalize().expect("run scripts/setup-e2e agents first");
    let command = command.display().to_string();
    let fixture = Fixture { folder, config, environment, command, children };

    let mut launch_spec =
        LaunchSpec::new(vec![fixture.command.clone()], ConfigFolder::Own(fixture.config.clone()));
    launch_spec.environment = fixture.environment.clone();
    let options = fixture.backend_options(launch_spec, LiveLimit::new(2));
    let backend = ClaudeBackend::new(options);
    let profile = Profile::new(fixture.folder.path().join("work"));

    // Fresh: a process for every turn.
    let mut fresh = Vec::new();
    for number in 0..rounds.min(10) {
        let messages = [user(&format!("fresh {number}"))];
        fresh.push(turn(&backend, &profile, &messages, Origin::Fresh).await);
    }
    // Warm and bare alternate turn by turn, so that both see the same machine.
    let mut bare_driver = Bare::start(&fixture).await;
    let mut messages = vec![user("turn 0")];
    turn(&backend, &profile, &messages, Origin::Fresh).await;
    let (mut warm, mut bare) = (Vec::new(), Vec::new());
    for number in 1..=rounds {
        let last = messages[messages.len() - 1]["content"].as_str().unwrap_or_default().to_owned();
        messages.push(json!({"role": "assistant", "content": format!("echo: {last}")}));
        messages.push(user(&format!("turn {number}")));
        warm.push(turn(&backend, &profile, &messages, Origin::Warm).await);
        bare.push(bare_driver.turn(&format!("turn {number}")).await);
    }
    let of = |times: &[Times], pick: fn(&Times) -> f64| {
        let mut values: Vec<f64> = times.iter().map(pick).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let bare_median = {
        bare.sort_by(f64::total_cmp);
        bare[bare.len() / 2]
    };
    println!("rounds                       {rounds}");
    println!(
        "fresh: first event, whole    {:7.1} ms {:7.1} ms",
        of(&fresh, |t| t.first),
        of(&fresh, |t| t.whole)
    );
    println!(
        "warm: first event, whole     {:7.1} ms {:7.1} ms",
        of(&warm, |t| t.first),
        of(&warm, |t| t.whole)
    );
    println!("bare driver: whole           {bare_median:7.1} ms");
    println!("warm adds to the bare driver {:7.1} ms", of(&warm, |t| t.whole) - bare_median);
    println!(
        "fresh to warm, first event   {:7.1} x",
        of(&fresh, |t| t.first) / of(&warm, |t| t.first)
    );
    backend.close().await;
    memory(&fixture).await;
    fixture.children.close().await;
}

#[derive(Debug)]
struct Times {
    first: f64,
    whole: f64,
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn ms(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1000.0
}

async fn turn(
    backend: &ClaudeBackend,
    profile: &Profile,
    messages: &[Value],
    origin: Origin,
) -> Times {
    let started = Instant::now();
    let mut completion = backend.complete(profile, messages);
    let mut first = None;
    while let Some(event) = completion.next().await {
        first.get_or_insert_with(|| ms(started));
        if matches!(event.expect("a turn"), Event::Result(_)) {
            break;
        }
    }
    let whole = ms(started);
    assert_eq!(completion.origin().await, Some(origin));
    Times { first: first.expect("an event"), whole }
}

/// The reference driver: it types, and polls the file every 5 ms.
struct Bare {
    child: Child,
    transcript: PathBuf,
}

impl Bare {
    async fn start(fixture: &Fixture) -> Bare {
        let cwd = fixture.folder.path().join("work").canonicalize().expect("a folder");
        let id = "5b9d3b1e-0000-4000-8000-00000000bbbb";
        let mut env = fixture.environment.clone();
        env.push(("CLAUDE_CONFIG_DIR".into(), fixture.config.clone().into()));
        env.push(("TERM".into(), "xterm-256color".into()));
        let spec = ChildSpec {
            program: fixture.command.clone().into(),
            args: ["--session-id", id].iter().map(OsString::from).collect(),
            env,
            cwd: cwd.clone(),
            streams: Streams::Terminal { size: Size::default() },
            owner: None,
            confinement: None,
        };
        let child = fixture.children.spawn(spec).await.expect("claude starts");
        let transcript = transcript_path(&fixture.config, &cwd, id);
        let mut bare = Bare { child, transcript };
        bare.shows("❯\u{a0}", 0).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        bare.turn("turn 0").await;
        bare
    }

    async fn shows(&self, text: &str, mut from: u64) {
        let mut seen = Vec::new();
        while !String::from_utf8_lossy(&seen).contains(text) {
            let (start, bytes) = self.child.output().read_from(from).await.expect("it runs");
            from = start + bytes.len() as u64;
            seen.extend(bytes);
        }
    }

    async fn turn(&mut self, prompt: &str) -> f64 {
        let ends = || {
            let text = std::fs::read_to_string(&self.transcript).unwrap_or_default();
            text.matches("\"turn_duration\"").count()
        };
        let before = ends();
        let started = Instant::now();
        let (from, bytes) = self.child.output().since(u64::MAX);
        let from = from + bytes.len() as u64;
        self.child
            .write_terminal(format!("\x1b[200~{prompt}\x1b[201~").as_bytes())
            .await
            .expect("it runs");
        self.shows(prompt.split(' ').next_back().unwrap_or(prompt), from).await;
        self.child.write_terminal(b"\r").await.expect("it runs");
        while ends() == before {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        ms(started)
    }
}

/// Measures the memory that idle sessions of the scripted agent cost this process and their shims.
async fn memory(fixture: &Fixture) {
    let agent = program("hob-scripted-agent").display().to_string();
    let mut launch_spec =
        LaunchSpec::new(vec![agent], ConfigFolder::Own(fixture.folder.path().join("scripted")));
    launch_spec.environment = fixture.environment.clone();
    let options = fixture.backend_options(launch_spec, LiveLimit::new(60));
    let backend = ClaudeBackend::new(options);
    let profile = Profile::new(fixture.folder.path().join("work"));
    let turn = async |number: usize| {
        let messages = [user(&format!("session {number}"))];
        let mut completion = backend.complete(&profile, &messages);
        while let Some(event) = completion.next().await {
            event.expect("a turn");
        }
    };
    for number in 0..5 {
        turn(number).await;
    }
    let own = private_kib(std::process::id());
    for number in 5..55 {
        turn(number).await;
    }
    let own = private_kib(std::process::id()).saturating_sub(own);
    let shims: Vec<u64> = hob_child::tree::descendants(std::process::id() as i32)
        .into_iter()
        .filter(|process| process.parent == std::process::id() as i32)
        .map(|process| private_kib(process.pid as u32))
        .collect();
    let shim = shims.iter().sum::<u64>() / shims.len().max(1) as u64;
    let busy = cpu_ticks(&shims_pids());
    tokio::time::sleep(Duration::from_secs(5)).await;
    let busy = cpu_ticks(&shims_pids()) - busy;
    println!("an idle session, private     {:7} KiB here, {shim} KiB in its shim", own / 50);
    println!("55 idle sessions, 5 s        {busy:7} ticks of CPU here and in all shims");
    backend.close().await;
}

fn shims_pids() -> Vec<i32> {
    let own = std::process::id() as i32;
    let children = hob_child::tree::descendants(own).into_iter().filter(|p| p.parent == own);
    children.map(|process| process.pid).chain([own]).collect()
}

fn private_kib(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let lines = text.lines().filter(|line| line.starts_with("Private_"));
    lines.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).sum()
}

fn cpu_ticks(pids: &[i32]) -> u64 {
    let ticks = |pid: &i32| -> Option<u64> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        Some(fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?)
    };
    pids.iter().filter_map(ticks).sum()
}
