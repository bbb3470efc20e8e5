//! The Claude backend on the scripted terminal agent: the tests of seed 002, and failures.
#![allow(clippy::disallowed_methods, reason = "tests make files and processes of their own")]

mod turns;

use std::path::PathBuf;
use std::time::Duration;

use futures_util::StreamExt;
use hob_agents::claude::{
    BackendError, BackendOptions, ClaudeBackend, Completion, ConfigFolder, Event, HistoryMode,
    LaunchSpec, Origin, Profile, transcript_path,
};
use hob_agents::{LiveLimit, Runtime, SandboxConfig};
use hob_child::sweep::Marker;
use hob_child::{Children, ChildrenOptions};
use hob_domain::Block;
use hob_files::Trash;
use hob_terminal::{TerminalKind, Terminals};
use hob_testkit::leak::processes_with;
use hob_testkit::{program, wait, wait_until};
use serde_json::{Value, json};
use turns::{collect, result, user};

struct Setup {
    backend: ClaudeBackend,
    profile: Profile,
    folder: tempfile::TempDir,
}

fn setup() -> Setup {
    setup_with(&[], |_| {})
}

fn setup_with(env: &[(&str, &str)], adjust: impl FnOnce(&mut BackendOptions)) -> Setup {
    setup_of(vec![program("hob-scripted-agent").display().to_string()], env, adjust)
}

fn setup_of(
    command: Vec<String>,
    env: &[(&str, &str)],
    adjust: impl FnOnce(&mut BackendOptions),
) -> Setup {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::create_dir_all(path("work")).unwrap();
    let children = Children::new(ChildrenOptions {
        shim: program("hob-scripted-agent"),
        records: path("run"),
        marker: Marker::new("backend", "1"),
        umask: 0o022,
        control_groups: None,
    })
    .unwrap();
    let mut launch_spec = LaunchSpec::new(command, ConfigFolder::Own(path("config")));
    launch_spec.set("PATH", std::env::var_os("PATH").unwrap_or_default());
    launch_spec.set("HOME", folder.path());
    env.iter().for_each(|(name, value)| launch_spec.set(name, value));
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
    options.turn_timeout = Duration::from_secs(20);
    adjust(&mut options);
    let profile = Profile::new(path("work"));
    Setup { backend: ClaudeBackend::new(options), profile, folder }
}

fn assistant(text: &str) -> Value {
    json!({"role": "assistant", "content": [{"type": "text", "text": text}]})
}

fn texts(events: &[Event]) -> Vec<&str> {
    let text = |event| match event {
        &Event::Assistant { block: Block::Text(ref text), .. } => Some(text.as_str()),
        _ => None,
    };
    events.iter().filter_map(text).collect()
}

impl Setup {
    async fn ask(&self, messages: &[Value]) -> Vec<Event> {
        collect(self.backend.complete(&self.profile, messages)).await.unwrap()
    }

    async fn fail(&self, messages: &[Value]) -> BackendError {
        collect(self.backend.complete(&self.profile, messages)).await.unwrap_err()
    }

    async fn origin(&self, messages: &[Value]) -> Origin {
        let mut completion = self.backend.complete(&self.profile, messages);
        let origin = completion.origin().await.unwrap();
        collect(completion).await.unwrap();
        origin
    }

    /// Yields to the backend's own tasks until no process is live.
    async fn wait_until_gone(&self) {
        let started = std::time::Instant::now();
        while self.live() > 0 || !self.processes().is_empty() {
            assert!(started.elapsed() < wait::DEADLINE, "{:?}", self.backend.live_sessions());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn live(&self) -> usize {
        self.backend.live_sessions().len()
    }

    /// Every process of this backend, without the shims.
    fn processes(&self) -> Vec<i32> {
        processes_with(&format!("HOME={}", self.folder.path().display()))
    }

    fn transcript(&self, session: &str) -> PathBuf {
        let config = self.folder.path().join("config");
        transcript_path(&config, &self.profile.cwd.canonicalize().unwrap(), session)
    }

    /// The prompts that reached the process, from its transcript.
    fn prompts(&self, session: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.transcript(session)).unwrap();
        let records = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        records
            .filter(|record| record["promptSource"] == "typed")
            .filter_map(|record| record["message"]["content"].as_str().map(str::to_owned))
            .collect()
    }
}

#[tokio::test]
async fn complete_rejects_empty_messages() {
    let error = setup().fail(&[]).await;
    assert!(matches!(&error, BackendError::Invalid(text) if text.contains("empty")), "{error}");
}

#[tokio::test]
async fn complete_rejects_non_user_last_message() {
    let error = setup().fail(&[assistant("hi")]).await;
    assert!(matches!(&error, BackendError::Invalid(text) if text.contains("user")), "{error}");
    let image = json!({"role": "user", "content": [{"type": "image", "source": {}}]});
    let error = setup().fail(&[image]).await;
    assert!(
        matches!(&error, BackendError::Invalid(text) if text.contains("text and tool results only")),
        "{error}"
    );
}

#[tokio::test]
async fn complete_after_close_is_refused() {
    let setup = setup();
    setup.backend.close().await;
    assert_eq!(setup.fail(&[user("hi")]).await, BackendError::Closed);
}

#[tokio::test]
async fn complete_fresh_session_yields_events() {
    let setup = setup();
    let events = setup.ask(&[user("hi")]).await;
    assert_eq!(events[0], Event::User { text: "hi".into() });
    assert_eq!(texts(&events), ["echo: hi"]);
    let result = result(&events);
    assert_eq!((result.stop_reason.as_str(), result.num_turns), ("end_turn", 1));
    assert_eq!((result.usage.input_tokens, result.usage.output_tokens), (10, 5));
    assert_eq!(setup.prompts(&result.session_id), ["hi"]);
    setup.backend.close().await;
    assert_eq!(setup.processes(), [0; 0]);
}

#[tokio::test]
async fn live_sessions_visible_during_turn_and_after() {
    let setup = setup();
    let mut completion = setup
        .backend
        .complete(&setup.profile, &[user("[[say on]] [[sleep 300]] [[tool Read {}]]")]);
    assert!(matches!(completion.next().await, Some(Ok(Event::User { .. }))));
    let live = setup.backend.live_sessions();
    assert_eq!((live.len(), live[0].busy, live[0].pid.is_some()), (1, true, true));
    let pid = live[0].pid;
    collect(completion).await.unwrap();
    let live = setup.backend.live_sessions();
    assert_eq!((live.len(), live[0].busy, live[0].turns, live[0].pid), (1, false, 1, pid));
    setup.backend.close().await;
    assert_eq!(setup.live(), 0);
}

#[tokio::test]
async fn continuation_reuses_live_session() {
    let setup = setup();
    let first = setup.ask(&[user("hi")]).await;
    let second = [user("hi"), assistant("echo: hi"), user("again")];
    let mut completion = setup.backend.complete(&setup.profile, &second);
    assert_eq!(completion.origin().await, Some(Origin::Warm));
    let second = collect(completion).await.unwrap();
    assert_eq!(result(&second).session_id, result(&first).session_id);
    assert_eq!(result(&second).num_turns, 2);
    assert_eq!(setup.prompts(&result(&first).session_id), ["hi", "again"]);
    assert_eq!(setup.live(), 1);
}

#[tokio::test]
async fn long_conversation_stays_in_one_process_in_any_spelling() {
    let setup = setup();
    let mut messages = vec![user("turn 0")];
    let mut sessions = Vec::new();
    for turn in 1..10 {
        let events = setup.ask(&messages).await;
        sessions.push(result(&events).session_id.clone());
        assert_eq!(result(&events).num_turns, turn);
        let text = texts(&events)[0].to_owned();
        messages.push(match turn % 2 {
            0 => json!({"role": "assistant", "content": text}),
            _ => json!({"role": "assistant", "content": [{"type": "text", "text": text,
                "cache_control": {"type": "ephemeral"}}]}),
        });
        messages.push(user(&format!("turn {turn}")));
    }
    sessions.dedup();
    assert_eq!(sessions.len(), 1);
}

#[tokio::test]
async fn unmatched_history_spawns_new_session_via_native_jsonl() {
    let setup = setup();
    let messages = [
        user("remember beaver"),
        json!({"role": "assistant", "content": "ok"}),
        user("[[say known: {history}]]"),
    ];
    let mut completion = setup.backend.complete(&setup.profile, &messages);
    assert_eq!(completion.origin().await, Some(Origin::Seeded));
    let events = collect(completion).await.unwrap();
    assert_eq!(texts(&events), ["known: remember beaver | ok"]);
    let session = &result(&events).session_id;
    assert_eq!(setup.prompts(session), ["[[say known: {history}]]"], "only the new text is typed");
    let text = std::fs::read_to_string(setup.transcript(session)).unwrap();
    let records: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let kinds: Vec<&str> = records.iter().take(4).map(|r| r["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["permission-mode", "file-history-snapshot", "user", "assistant"]);
    assert_eq!(records[2]["message"]["content"], "remember beaver");
    assert_eq!(records[3]["message"]["content"], json!([{"type": "text", "text": "ok"}]));
}

#[tokio::test]
async fn unmatched_history_uses_concat_message_when_configured() {
    let setup = setup_with(&[], |options| options.history = HistoryMode::ConcatMessage);
    let messages = [user("remember beaver"), assistant("ok"), user("how are you?")];
    let events = setup.ask(&messages).await;
    let prompts = setup.prompts(&result(&events).session_id);
    for words in [
        "Previous conversation context:",
        "[User]: remember beaver",
        "[Assistant]: ok",
        "Continue from here. New user message: how are you?",
    ] {
        assert!(prompts[0].contains(words), "{}", prompts[0]);
    }
    // The process is found by what the client sends, not by what was typed.
    let reply = texts(&events)[0].to_owned();
    let next = [&messages[..], &[assistant(&reply), user("more")]].concat();
    assert_eq!(setup.origin(&next).await, Origin::Warm);
}

#[tokio::test]
async fn tool_use_cycle_stashes_full_history_for_continuation() {
    for echo in ["whole", "texts", "last"] {
        let setup = setup();
        let prompt = user(r#"[[say look]] [[tool Bash {"command":"echo out"}]] [[say done]]"#);
        let events = setup.ask(std::slice::from_ref(&prompt)).await;
        let Some(Event::Assistant { block: Block::ToolUse { id, .. }, .. }) = events.get(2) else {
            panic!("{events:?}")
        };
        let said = match echo {
            "whole" => vec![
                json!({"role": "assistant", "content": [{"type": "text", "text": "look"},
                    {"type": "tool_use", "id": id, "name": "Bash", "input": {"command": "echo out"}}]}),
                json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": id,
                    "content": "out", "is_error": null}]}),
                assistant("done"),
            ],
            "texts" => vec![json!({"role": "assistant", "content": [
                {"type": "text", "text": "look"}, {"type": "text", "text": "done"}]})],
            _ => vec![json!({"role": "assistant", "content": "done"})],
        };
        let next = [&[prompt][..], &said, &[user("now what")]].concat();
        assert_eq!(setup.origin(&next).await, Origin::Warm, "{echo}");
        assert_eq!(setup.live(), 1);
    }
}

#[tokio::test]
async fn complete_failure_does_not_stash_broken_session() {
    let setup = setup();
    for (words, check) in [
        ("[[crash]]", "signal 9"),
        ("[[exit 3]]", "exit code 3"),
        ("[[error 529 Overloaded]]", "529"),
        ("[[permission rm -rf]]", "permission"),
    ] {
        let error = setup.fail(&[user(words)]).await;
        assert!(error.to_string().contains(check), "{words}: {error}");
        assert_eq!(setup.live(), 0, "{words}");
        assert_eq!(setup.processes(), [0; 0], "{words}");
    }
    assert_eq!(texts(&setup.ask(&[user("fine")]).await), ["echo: fine"]);
}

#[tokio::test]
async fn cancel_mid_turn_closes_session_and_leaves_pool_empty() {
    let command = r#"[[daemon]] [[tool Bash {"command":"sleep 1000"}]]"#;
    for words in ["[[hang]]", "[[say part]] [[hang]]", command, "[[retry 100000]]"] {
        let setup = setup();
        let mut completion = setup.backend.complete(&setup.profile, &[user(words)]);
        assert!(matches!(completion.next().await, Some(Ok(Event::User { .. }))), "{words}");
        assert_eq!(setup.live(), 1);
        drop(completion);
        setup.wait_until_gone().await;
        assert_eq!(setup.processes(), [0; 0], "{words}");
        // The next request works, with its own process and counter.
        let events = setup.ask(&[user("hi")]).await;
        assert_eq!(result(&events).num_turns, 1);
        let next = [user("hi"), assistant("echo: hi"), user("x")];
        assert_eq!(setup.origin(&next).await, Origin::Warm);
    }
}

#[tokio::test]
async fn concurrent_equal_requests_get_a_process_each() {
    let setup = setup();
    setup.ask(&[user("hi")]).await;
    let next = [user("hi"), assistant("echo: hi"), user("[[sleep 200]] again")];
    let mut first = setup.backend.complete(&setup.profile, &next);
    let mut second = setup.backend.complete(&setup.profile, &next);
    let mut origins = [first.origin().await.unwrap(), second.origin().await.unwrap()];
    origins.sort_by_key(|origin| origin.as_str());
    assert_eq!(origins, [Origin::Seeded, Origin::Warm]);
    let (first, second) = tokio::join!(collect(first), collect(second));
    assert_eq!(texts(&first.unwrap()), texts(&second.unwrap()));
}

#[tokio::test]
async fn pool_never_crosses_apps_or_profiles() {
    let setup = setup();
    setup.ask(&[user("hi")]).await;
    let next = [user("hi"), assistant("echo: hi"), user("again")];
    let other = |change: fn(&mut Profile)| {
        let mut profile = setup.profile.clone();
        change(&mut profile);
        profile
    };
    for profile in [
        other(|p| p.app = "another".into()),
        other(|p| p.model = Some("opus".into())),
        other(|p| p.system_prompt = Some("be brief".into())),
        other(|p| p.permission_mode = None),
    ] {
        let mut completion = setup.backend.complete(&profile, &next);
        assert_eq!(completion.origin().await, Some(Origin::Seeded));
        collect(completion).await.unwrap();
    }
    assert_eq!(setup.origin(&next).await, Origin::Warm, "its own is still there");
}

#[tokio::test]
async fn longest_idle_process_is_ended_and_busy_pool_is_full() {
    let setup = setup_with(&[], |options| options.runtime.live = LiveLimit::new(2));
    for name in ["a", "b", "c"] {
        setup.ask(&[user(name)]).await;
    }
    assert_eq!(setup.live(), 2);
    let again = |name: &str| [user(name), assistant(&format!("echo: {name}")), user("x")];
    assert_eq!(setup.origin(&again("b")).await, Origin::Warm);
    assert_eq!(setup.origin(&again("a")).await, Origin::Seeded, "it has made way");
    let hang = [user("[[hang]]")];
    let mut busy: Vec<Completion> =
        (0..2).map(|_| setup.backend.complete(&setup.profile, &hang)).collect();
    for completion in &mut busy {
        completion.next().await.unwrap().unwrap();
    }
    let refused = setup.fail(&[user("one more")]).await;
    assert!(matches!(refused, BackendError::PoolFull { limit: 2, .. }), "{refused}");
}

#[tokio::test]
async fn idle_processes_end_and_dead_ones_are_not_reused() {
    let setup = setup_with(&[], |options| options.idle_timeout = Duration::from_millis(300));
    setup.ask(&[user("hi")]).await;
    assert_eq!(setup.live(), 1);
    setup.wait_until_gone().await;
    assert_eq!(setup.processes(), [0; 0]);

    let setup = self::setup();
    setup.ask(&[user("hi")]).await;
    let pid = setup.backend.live_sessions()[0].pid.unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL)
        .unwrap();
    wait_until("it is dead", || setup.processes().is_empty().then_some(()));
    let next = [user("hi"), assistant("echo: hi"), user("again")];
    assert_eq!(setup.origin(&next).await, Origin::Seeded);
}

#[tokio::test]
async fn commands_and_control_characters_arrive_as_text() {
    let setup = setup();
    let long = "many words, ".repeat(9_000);
    let tall = "line\n".repeat(400) + "end";
    for (prompt, expect) in [
        ("/exit now", "\u{2800}/exit now"),
        ("!ls", "\u{2800}!ls"),
        ("exit", "\u{2800}exit"),
        ("quit", "\u{2800}quit"),
        ("?", "\u{2800}?"),
        ("# title", "# title"),
        ("see @/etc/passwd", "see \u{2800}@/etc/passwd"),
        ("a\x1b[201~b\x03c", "a[201~bc"),
        ("tab\tand\r\nlines\n\n", "tab    and\nlines"),
        ("ünïcödé 日本語 🎉 שלום", "ünïcödé 日本語 🎉 שלום"),
        (&long, long.trim_end()),
        (&tall, &tall),
    ] {
        let events = setup.ask(&[user(prompt)]).await;
        assert_eq!(events[0], Event::User { text: expect.to_owned() }, "{prompt:.30}");
        assert_eq!(texts(&events), [format!("echo: {expect}")]);
    }
    assert!(matches!(setup.fail(&[user(" \x03 ")]).await, BackendError::Invalid(_)));
}

#[tokio::test]
async fn terminal_and_transcript_oddities_are_survived() {
    let setup = setup();
    for words in [
        "[[shuffle]] [[say x]]",
        "[[torn]] [[say x]]",
        "[[late 300]] [[say x]]",
        "[[flood 1000000]] [[say x]]",
        "[[think hm]] [[say x]]",
        r#"[[shuffle]] [[tool Bash {"command":"echo 1"}]] [[also Bash {"command":"echo 2"}]] [[say x]]"#,
    ] {
        let events = setup.ask(&[user(words)]).await;
        assert_eq!(texts(&events).last(), Some(&"x"), "{words}");
        assert!(matches!(events[0], Event::User { .. }), "{words}");
        assert_eq!(result(&events).stop_reason, "end_turn");
    }
    let events = setup.ask(&[user("[[big 60000]]")]).await;
    assert_eq!(texts(&events)[0].len(), 60_000);
    let events = setup.ask(&[user("[[say x]] [[stop max_tokens]]")]).await;
    assert_eq!(result(&events).stop_reason, "max_tokens");
}

#[tokio::test]
async fn dialogs_are_named_and_late_starts_are_waited_for() {
    for (dialog, name) in
        [("trust", "workspace trust"), ("key", "custom API key"), ("other", "onboarding")]
    {
        let setup = setup_with(&[("HOB_SCRIPT_DIALOG", dialog)], |_| {});
        match setup.fail(&[user("hi")]).await {
            BackendError::Dialog { name: found, advice } => {
                assert_eq!(found, name);
                assert!(!advice.is_empty());
            }
            error => panic!("{error}"),
        }
        assert_eq!((setup.live(), setup.processes().len()), (0, 0));
    }
    let setup = setup_with(&[("HOB_SCRIPT_STARTUP_MS", "1200")], |_| {});
    assert_eq!(texts(&setup.ask(&[user("hi")]).await), ["echo: hi"]);
}

#[tokio::test]
async fn silence_is_reported_and_limited() {
    let setup = setup_with(&[], |options| {
        options.stall_after = Duration::from_millis(300);
        options.turn_timeout = Duration::from_secs(5);
    });
    let mut completion = setup.backend.complete(&setup.profile, &[user("[[retry 100000]]")]);
    let mut stalled = None;
    let error = loop {
        match completion.next().await.unwrap() {
            Ok(Event::Stalled { screen }) => stalled = Some(screen),
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(stalled.unwrap().contains("Retrying"));
    assert!(
        matches!(&error, BackendError::TimedOut { screen, .. } if screen.contains("Retrying")),
        "{error}"
    );
    assert_eq!((setup.live(), setup.processes().len()), (0, 0));
}

#[tokio::test]
async fn missing_program_is_reported() {
    let setup = setup_of(vec!["claude-is-not-here".into()], &[], |_| {});
    assert!(matches!(setup.fail(&[user("hi")]).await, BackendError::NotInstalled(_)));
    assert_eq!(setup.live(), 0);
}

#[tokio::test]
async fn mcp_servers_become_one_private_file() {
    let mut setup = setup();
    let runtime = setup.folder.path().join("runtime");
    setup.ask(&[user("hi")]).await;
    // Claude Code writes its cost into another file.
    let configs = || -> Vec<std::path::PathBuf> {
        let files = std::fs::read_dir(&runtime).into_iter().flatten().flatten();
        let paths = files.map(|file| file.path());
        paths.filter(|path| path.extension().is_some_and(|kind| kind == "json")).collect()
    };
    assert!(configs().is_empty(), "no servers, no file");
    let servers = json!({"echo": {"command": "/bin/echo", "args": []}});
    setup.profile.mcp_servers = servers.as_object().unwrap().clone();
    setup.ask(&[user("hi")]).await;
    setup.ask(&[user("ho")]).await;
    let files = configs();
    assert_eq!(files.len(), 1);
    let pid = setup.backend.live_sessions()[1].pid.unwrap();
    let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap();
    assert!(line.contains(&format!("--mcp-config={}", files[0].display())), "{line}");
    setup.backend.close().await;
    assert_eq!(std::fs::read_dir(&runtime).unwrap().count(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_sessions_work_concurrently() {
    let setup = setup_with(&[], |options| options.runtime.live = LiveLimit::new(50));
    let turns = (0..50).map(|number| {
        let messages = [user(&format!("[[sleep 100]] number {number}"))];
        collect(setup.backend.complete(&setup.profile, &messages))
    });
    let turns = futures_util::future::join_all(turns).await;
    for (number, events) in turns.into_iter().enumerate() {
        let expect = format!("echo: [[sleep 100]] number {number}");
        assert_eq!(texts(&events.unwrap()), [expect]);
    }
    assert_eq!(setup.live(), 50);
    setup.backend.close().await;
    assert_eq!(setup.processes(), [0; 0]);
}

#[tokio::test]
async fn process_with_human_input_is_never_reused() {
    let terminals = Terminals::default();
    let setup = setup_with(&[], |options| options.runtime.terminals = terminals.clone());
    let mut messages = vec![user("[[say one]]")];
    setup.ask(&messages).await;
    messages.extend([assistant("one"), user("[[say two]]")]);
    assert_eq!(setup.origin(&messages).await, Origin::Warm);
    messages.extend([assistant("two"), user("[[say three]]")]);

    let touched = setup.backend.live_sessions()[0].session_id.clone();
    let terminal = terminals.get(&touched).expect("its terminal is found by its own name");
    assert_eq!((terminal.info.kind, terminal.status().turns), (TerminalKind::Backend, 2));
    let mut viewer = terminal.watch(0);
    // Watching changes nothing, and neither do replies that a terminal sends by itself.
    viewer.write(b"\x1b[?62;c").await.unwrap();
    assert!(terminal.last_input_at().is_none());
    viewer.write(b"x").await.unwrap();
    assert_eq!(setup.origin(&messages).await, Origin::Seeded);
    assert_eq!(setup.live(), 2, "it stays for who typed");
    messages.extend([assistant("three"), user("[[say four]]")]);
    assert_eq!(setup.origin(&messages).await, Origin::Warm, "on the other one");

    // Typing during a turn counts as well.
    messages.extend([assistant("four"), user("[[sleep 400]] [[say five]]")]);
    let other = setup.backend.live_sessions()[1].session_id.clone();
    let asking = collect(setup.backend.complete(&setup.profile, &messages));
    let typing = async {
        let mut viewer = terminals.get(&other).unwrap().watch(0);
        while !terminals.get(&other).unwrap().status().busy {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        viewer.write(b"y").await.unwrap();
    };
    let (events, ()) = futures_util::join!(asking, typing);
    assert_eq!(texts(&events.unwrap()), ["five"]);
    messages.extend([assistant("five"), user("[[say six]]")]);
    assert_eq!(setup.origin(&messages).await, Origin::Seeded);
    setup.backend.close().await;
    assert!(terminals.all().is_empty());
    setup.wait_until_gone().await;
}
