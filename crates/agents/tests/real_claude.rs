//! The backend with the real `claude`, offline against the scripted model API.
//!
//! The counts are small; `HOB_CAMPAIGN=1` runs the full ones and prints figures. The agent comes from
//! `e2e/package.json`; without it the tests fail.
#![allow(clippy::disallowed_methods, reason = "tests make files and processes of their own")]

mod turns;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use hob_agents::claude::{
    BackendError, BackendOptions, ClaudeBackend, ConfigFolder, Event, LaunchSpec, Origin, Profile,
    prepare_own_folder, transcript_path,
};
use hob_agents::{LiveLimit, Runtime, SandboxConfig};
use hob_child::sweep::Marker;
use hob_child::{Children, ChildrenOptions};
use hob_domain::Block;
use hob_files::Trash;
use hob_testkit::leak::processes_with;
use hob_testkit::model_api::without_reminders;
use hob_testkit::{ModelApi, Random, Stopwatch, program};
use serde_json::{Value, json};
use turns::{collect, result, user};

/// Returns the pinned program, or another version for a comparison.
fn real(name: &str) -> PathBuf {
    if let Some(other) = std::env::var_os("HOB_TEST_CLAUDE") {
        return other.into();
    }
    let path =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../e2e/node_modules/.bin").join(name);
    assert!(path.exists(), "{name} is not installed: run `npm ci` in e2e/, or scripts/test");
    path.canonicalize().unwrap()
}

fn campaign() -> bool {
    std::env::var_os("HOB_CAMPAIGN").is_some()
}

struct Setup {
    backend: ClaudeBackend,
    profile: Profile,
    folder: tempfile::TempDir,
    api: ModelApi,
}

fn setup() -> Setup {
    setup_with(&[], |_| {})
}

fn setup_with(env: &[(&str, &str)], adjust: impl FnOnce(&mut BackendOptions)) -> Setup {
    let api = ModelApi::start();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::create_dir_all(path("work")).unwrap();
    let children = Children::new(ChildrenOptions {
        shim: program("hob-scripted-agent"),
        records: path("run"),
        marker: Marker::new("real", "1"),
        umask: 0o022,
        control_groups: None,
    })
    .unwrap();
    let mut environment: Vec<(String, String)> = api
        .claude_environment()
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
    let key = environment.iter().find(|(name, _)| name == "ANTHROPIC_API_KEY").unwrap().1.clone();
    let config = prepare_own_folder(&path("config"), &key).unwrap();
    environment.push(("PATH".to_owned(), std::env::var("PATH").unwrap_or_default()));
    environment.push(("HOME".to_owned(), folder.path().display().to_string()));
    environment.extend(env.iter().map(|(name, value)| (name.to_string(), value.to_string())));
    let command = vec![real("claude").display().to_string()];
    let mut launch_spec = LaunchSpec::new(command, ConfigFolder::Own(config));
    launch_spec.environment =
        environment.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
    let sandbox = SandboxConfig {
        home: folder.path().join("home"),
        backups: None,
        socket: folder.path().join("hob.sock"),
        files: folder.path().join("files"),
        temporary: folder.path().join("temporary"),
        private: folder.path().join("private"),
        has_view: false,
        has_control_groups: false,
        max_memory_bytes: None,
        max_disk_bytes: None,
        environment: Vec::new(),
    };
    let trash = Trash::open(&folder.path().join("trash")).unwrap();
    let runtime = Runtime::new(children, LiveLimit::new(16), sandbox, trash);
    let mut options = BackendOptions::new(runtime, launch_spec, path("runtime"));
    options.turn_timeout = Duration::from_secs(60);
    options.runtime.live = LiveLimit::new(8);
    adjust(&mut options);
    let mut profile = Profile::new(path("work"));
    profile.permission_mode = Some("bypassPermissions".to_owned());
    Setup { backend: ClaudeBackend::new(options), profile, folder, api }
}

fn text(events: &[Event]) -> String {
    let texts: Vec<&str> = events
        .iter()
        .filter_map(|event| match event {
            Event::Assistant { block: Block::Text(text), .. } => Some(text.as_str()),
            _ => None,
        })
        .collect();
    texts.join("\n\n")
}

impl Setup {
    async fn ask(&self, messages: &[Value]) -> Vec<Event> {
        match collect(self.backend.complete(&self.profile, messages)).await {
            Ok(events) => events,
            Err(error) => panic!("{error}"),
        }
    }

    fn processes(&self) -> Vec<i32> {
        processes_with(&format!("HOME={}", self.folder.path().display()))
    }

    async fn wait_until_gone(&self) {
        let stopwatch = Stopwatch::start();
        while !self.backend.live_sessions().is_empty() || !self.processes().is_empty() {
            stopwatch
                .assert_within(Duration::from_secs(3), "an ended process tree is gone within 3 s");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// The newest user text that reached the model.
    fn last_prompt(&self) -> String {
        let request = self.api.requests().pop().unwrap();
        let messages = request["messages"].as_array().unwrap();
        let texts = messages.iter().rev().filter(|message| message["role"] == "user");
        let texts = texts.filter_map(|message| match &message["content"] {
            Value::String(text) => Some(without_reminders(text)),
            Value::Array(blocks) => {
                let texts: Vec<&str> = blocks.iter().filter_map(|b| b["text"].as_str()).collect();
                let text = without_reminders(&texts.join("\n"));
                (!text.is_empty()).then_some(text)
            }
            _ => None,
        });
        texts.into_iter().next().unwrap_or_default()
    }
}

#[tokio::test]
async fn smoke_backend_round_trip() {
    let setup = setup();
    let events = setup.ask(&[user("[[think hm]] [[say hi]]")]).await;
    assert!(matches!(events[0], Event::User { .. }));
    assert_eq!(text(&events), "hi");
    assert_eq!(result(&events).stop_reason, "end_turn");
    assert_eq!(result(&events).usage.output_tokens, 5, "one message counts once");
    assert_eq!(setup.backend.live_sessions().len(), 1);
    setup.backend.close().await;
    setup.wait_until_gone().await;
}

#[tokio::test]
async fn smoke_backend_native_jsonl_injection() {
    let setup = setup();
    let messages = [
        user("My name is Beaver. Please remember it."),
        json!({"role": "assistant", "content": "Got it, your name is Beaver."}),
        user("What is my name?"),
    ];
    let mut completion = setup.backend.complete(&setup.profile, &messages);
    let origin = completion.origin().await;
    let events = collect(completion).await.unwrap();
    assert_eq!(origin, Some(Origin::Seeded));
    let request = setup.api.requests().pop().unwrap()["messages"].to_string();
    for words in ["My name is Beaver. Please", "Got it, your name is Beaver.", "What is my name?"] {
        assert!(request.contains(words), "{request}");
    }
    let config = setup.folder.path().join("config");
    let config = std::fs::read_dir(config).unwrap().next().unwrap().unwrap().path();
    let cwd = setup.profile.cwd.canonicalize().unwrap();
    let transcript = transcript_path(&config, &cwd, &result(&events).session_id);
    assert!(std::fs::read_to_string(transcript).unwrap().contains("My name is Beaver"));
    setup.backend.close().await;
}

/// Cancels at random moments of different turns: the tree is gone in 3 s, the next call works, and the
/// cancelled process is not pooled.
#[tokio::test]
async fn smoke_cancellation_kills_pty_no_zombie() {
    let rounds = if campaign() { 50 } else { 8 };
    let mut setup = setup();
    let mut random = Random::new(0xCAFE);
    let mut slowest = Duration::ZERO;
    for round in 0..rounds {
        let words = [
            "[[hang]]",
            "[[say part]] [[hang]]",
            r#"[[tool Bash {"command":"setsid sleep 300 & sleep 300"}]]"#,
            "[[error 529 for ever]]",
            r#"[[tool Bash {"command":"touch asked"}]]"#,
        ][round % 5];
        // The last turn waits in a permission dialog, which is its own error.
        let asks = round % 5 == 4;
        setup.profile.permission_mode =
            Some(if asks { "default" } else { "bypassPermissions" }.to_owned());
        let mut completion = setup.backend.complete(&setup.profile, &[user(words)]);
        if round % 3 == 0 {
            // Some moment during the start.
            let _ =
                tokio::time::timeout(Duration::from_millis(random.below(900)), completion.next())
                    .await;
        } else {
            let first = completion.next().await.unwrap();
            let dialog = asks && matches!(first, Err(BackendError::Dialog { .. }));
            assert!(dialog || matches!(first, Ok(Event::User { .. })), "{words}: {first:?}");
            tokio::time::sleep(Duration::from_millis(random.below(1200))).await;
        }
        drop(completion);
        let started = Instant::now();
        setup.wait_until_gone().await;
        slowest = slowest.max(started.elapsed());
    }
    setup.profile.permission_mode = Some("bypassPermissions".to_owned());
    assert_eq!(text(&setup.ask(&[user("[[say fine]]")]).await), "fine");
    println!("{rounds} cancels: every tree gone, the slowest after {slowest:?}");
    setup.backend.close().await;
    setup.wait_until_gone().await;
}

#[tokio::test]
async fn fresh_turns_in_a_row() {
    let count = if campaign() { 300 } else { 15 };
    let setup = setup_with(&[], |options| options.runtime.live = LiveLimit::new(1));
    let mut times = Vec::new();
    for number in 0..count {
        let started = Instant::now();
        let events = setup.ask(&[user(&format!("turn number {number} of many"))]).await;
        times.push(started.elapsed().as_millis());
        assert_eq!(text(&events), format!("echo: turn number {number} of many"));
    }
    times.sort_unstable();
    println!(
        "{count} fresh turns: all correct; median {} ms, slowest {} ms",
        times[times.len() / 2],
        times.last().unwrap()
    );
    setup.backend.close().await;
    setup.wait_until_gone().await;
}

/// Runs conversations of five turns with every kind of text: the model gets what was sent, after the
/// terminal's own normalisation.
#[tokio::test]
async fn texts_reach_the_model_unchanged() {
    let count = if campaign() { 100 } else { 5 };
    let setup = setup();
    let long = format!("{} end", "many words in one line, ".repeat(4_300));
    let tall = "a line of a tall text\n".repeat(1_200) + "end";
    let prompts = [
        r#"[[tool Bash {"command":"echo one"}]] [[say ran]]"#,
        r#"[[think hm]] [[tool Bash {"command":"echo a"}]] [[also Read {"file_path":"/etc/hostname"}]] [[say both]]"#,
        "[[big 60000]]",
        "/help me please",
        "!echo hi",
        "# a heading",
        "@nobody what is this",
        "? what is this",
        "exit",
        "quit",
        "ünïcödé 日本語 🎉 שלום",
        "tab\there\r\nand lines\n\n",
        "control \x07\x1b[31mred\x1b[0m \x03 end",
        "   leading blanks",
        &long,
        &tall,
        "[[say first]] [[say second]]",
    ];
    let mut random = Random::new(0xBEEF);
    for _ in 0..count {
        let mut messages = Vec::new();
        for turn in 0..5 {
            let prompt = prompts[random.below(prompts.len() as u64) as usize];
            messages.push(user(prompt));
            let mut completion = setup.backend.complete(&setup.profile, &messages);
            let origin = completion.origin().await;
            let events = match collect(completion).await {
                Ok(events) => events,
                Err(error) => panic!("{prompt:.60}: {error}"),
            };
            let expect = if turn == 0 { Origin::Fresh } else { Origin::Warm };
            assert_eq!(origin, Some(expect), "{prompt:.60}");
            assert_eq!(result(&events).num_turns, turn + 1);
            let sent: String = prompt
                .replace("\r\n", "\n")
                .replace('\t', "    ")
                .chars()
                .filter(|c| *c == '\n' || !c.is_control())
                .collect();
            let got = setup.last_prompt();
            let bare = got.strip_prefix('\u{2800}').unwrap_or(&got);
            assert!(
                got == sent.trim_end() || bare == sent.trim_end(),
                "{got:.80?} for {prompt:.80?}"
            );
            if !prompt.contains("[[") {
                assert_eq!(text(&events), format!("echo: {got}"));
            }
            let reply = match random.below(3) {
                0 => json!(text(&events)),
                _ => json!([{"type": "text", "text": text(&events)}]),
            };
            messages.push(json!({"role": "assistant", "content": reply}));
        }
    }
    println!("{count} conversations of 5 turns: what was sent is what the model got");
    setup.backend.close().await;
    setup.wait_until_gone().await;
}

#[tokio::test]
async fn api_errors_and_permissions_are_typed_errors() {
    let mut setup = setup_with(&[("CLAUDE_CODE_MAX_RETRIES", "0")], |_| {});
    let error =
        collect(setup.backend.complete(&setup.profile, &[user("[[error 400 bad input]]")])).await;
    assert!(matches!(error, Err(BackendError::Api { status: Some(400), .. })), "{error:?}");
    setup.profile.permission_mode = Some("default".to_owned());
    let prompt = user(r#"[[tool Bash {"command":"touch file"}]]"#);
    let error =
        collect(setup.backend.complete(&setup.profile, std::slice::from_ref(&prompt))).await;
    assert!(
        matches!(&error, Err(BackendError::Dialog { name, .. }) if name == "permission"),
        "{error:?}"
    );
    setup.wait_until_gone().await;
    // The tool is denied without a dialog, and the turn continues.
    setup.profile.permission_mode = Some("dontAsk".to_owned());
    let events = setup.ask(&[prompt]).await;
    assert!(!setup.profile.cwd.join("file").exists());
    assert_eq!(result(&events).stop_reason, "end_turn");
    setup.backend.close().await;
}

/// Nobody can answer the dialogs of these tools, and a plan mode would make other tools open one.
#[tokio::test]
async fn tools_with_dialogs_are_refused_and_the_turn_goes_on() {
    let mut setup = setup();
    setup.profile.permission_mode = Some("dontAsk".to_owned());
    let question = json!({"questions": [{"question": "Which?", "header": "Which", "multiSelect": false,
        "options": [{"label": "a", "description": "A"}, {"label": "b", "description": "B"}]}]});
    for tool in [
        "EnterPlanMode {}".to_owned(),
        r#"ExitPlanMode {"plan":"do it"}"#.to_owned(),
        format!("AskUserQuestion {question}"),
    ] {
        let events = setup.ask(&[user(&format!("[[tool {tool}]] [[say went on]]"))]).await;
        assert_eq!(text(&events), "went on", "{tool}");
    }
    let events = setup.ask(&[user(r#"[[tool Bash {"command":"touch made"}]] [[say done]]"#)]).await;
    assert_eq!(text(&events), "done");
    assert!(!setup.profile.cwd.join("made").exists(), "it is still denied");
    setup.backend.close().await;
}

/// In the terminal a backslash before Enter means a line break, and was lost.
#[tokio::test]
async fn backslash_at_the_end_reaches_the_model() {
    let setup = setup();
    for prompt in [r"C:\dir\", r"two\\", "a\nb\\"] {
        setup.ask(&[user(prompt)]).await;
        assert_eq!(setup.last_prompt().trim_end_matches([' ', '\u{2800}']), prompt);
    }
    setup.backend.close().await;
}
