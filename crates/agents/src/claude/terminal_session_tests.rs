//! Interrupts and human input, on the scripted terminal and on the real one.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hob_child::sweep::Marker;
use hob_child::{Children, ChildrenOptions, Owner};
use hob_testkit::{ModelApi, program};

use super::super::config::ConfigFolder;
use super::super::config::prepare_own_folder;
use super::super::transcript_file::TranscriptFile;
use super::super::transcript_tail::TranscriptWatcher;
use super::*;
use crate::app_permits::AppPermits;
use hob_terminal::{Terminal, TerminalKind, Terminals};

const ID: &str = "5b9d3b1e-0000-4000-8000-00000000aaaa";
const LIMITS: TurnTimeouts = TurnTimeouts {
    ready: Duration::from_secs(30),
    turn: Duration::from_secs(60),
    stall: Duration::from_secs(60),
};

struct Fixture {
    session: TerminalSession,
    terminal: Arc<Terminal>,
    _children: Children,
    _folder: tempfile::TempDir,
}

async fn start(command: &Path, environment: &[(&str, String)], arguments: &[&str]) -> Fixture {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::create_dir_all(path("work")).unwrap();
    let cwd = path("work").canonicalize().unwrap();
    let config =
        prepare_own_folder(&path("config"), "sk-ant-scripted-0123456789-0123456789").unwrap();
    let transcript = TranscriptFile::new(&ConfigFolder::Own(config.clone()), &cwd, ID);
    let watched = transcript.create_folder().unwrap();
    let children = Children::new(ChildrenOptions {
        shim: program("hob-scripted-agent"),
        records: path("run"),
        marker: Marker::new("live", "1"),
        umask: 0o022,
        control_groups: None,
    })
    .unwrap();
    let mut variables: Vec<(OsString, OsString)> = vec![
        ("PATH".into(), std::env::var_os("PATH").unwrap_or_default()),
        ("HOME".into(), folder.path().into()),
        ("CLAUDE_CONFIG_DIR".into(), config.into()),
        ("TERM".into(), "xterm-256color".into()),
    ];
    variables.extend(environment.iter().map(|(name, value)| (name.into(), value.into())));
    let terminals = Terminals::default();
    let launch = Launch {
        command: vec![command.display().to_string()],
        arguments: [&["--session-id", ID], arguments]
            .concat()
            .iter()
            .map(|a| a.to_string())
            .collect(),
        environment: variables,
        cwd,
        owner: Owner { app: "tests".to_owned(), git_hosts: Vec::new() },
        session_id: ID.to_owned(),
        watch: TranscriptWatcher::start().watch(&watched),
        transcript,
        confinement: None,
        records: AppPermits::new(1).of("a"),
        registrar: TerminalRegistrar {
            terminals: terminals.clone(),
            id: ID.to_owned(),
            kind: TerminalKind::Session,
            agent: "claude".to_owned(),
        },
        cost: CostMeter::default(),
    };
    let session = TerminalSession::start(&children, launch, LIMITS).await.unwrap();
    let terminal = terminals.get(ID).unwrap();
    Fixture { session, terminal, _children: children, _folder: folder }
}

/// Interrupts different turns at different moments. Each time the next prompt arrives alone.
async fn interrupt_and_go_on(fixture: &mut Fixture) {
    let Fixture { session, terminal, .. } = fixture;
    let tool = r#"[[tool Bash {"command":"setsid sleep 300 & sleep 300"}]]"#;
    let turns = [
        ("zero [[hang]]", None),
        ("one [[hang]]", Some(100)),
        ("[[say part]] [[hang]]", Some(700)),
        (tool, Some(900)),
        ("two [[hang]]", Some(0)),
    ];
    for (number, (words, after_ms)) in turns.into_iter().enumerate() {
        let token = CancellationToken::new();
        let mut events = Vec::new();
        let end = {
            let turn = session.turn(words, LIMITS, &token, |event, _| events.push(event));
            let mut turn = std::pin::pin!(turn);
            tokio::select! {
                end = &mut turn => panic!("{words} ended by itself: {end:?}"),
                () = running_for(terminal, words, after_ms) => token.cancel(),
            }
            turn.await
        };
        assert_eq!(end, Ok(TurnEnd::Interrupted), "{words}");
        let next = format!("still there {number}");
        let mut prompt = None;
        let go_on = CancellationToken::new();
        let end = session
            .turn(&next, LIMITS, &go_on, |event, _| {
                if let Event::User { text } = event {
                    prompt = Some(text);
                }
            })
            .await;
        assert!(matches!(end, Ok(TurnEnd::Finished(_))), "after {words}: {end:?}");
        assert_eq!(prompt.as_deref(), Some(next.as_str()), "after {words}");
    }
}

/// Waits until the screen says that the turn runs, and a while longer. Without a time, only waits until the
/// screen shows the prompt, which may not be accepted then.
async fn running_for(terminal: &Terminal, words: &str, after_ms: Option<u64>) {
    const RUNNING: &str = "esc to interrupt";
    let Some(after_ms) = after_ms else {
        wait_for_any(terminal, &[words, RUNNING]).await;
        return;
    };
    wait_for_any(terminal, &[RUNNING]).await;
    tokio::time::sleep(Duration::from_millis(after_ms)).await;
}

/// Types as a person between turns. The next prompt still arrives alone.
async fn type_and_go_on(fixture: &mut Fixture) {
    for (number, (keys, rows)) in [
        ("left in the box", 40),
        ("two\nlines", 40),
        ("asked [[say for a person]]\r", 40),
        ("x", 5),
    ]
    .into_iter()
    .enumerate()
    {
        let mut viewer = fixture.terminal.watch(0);
        // As a person does: a paste, then Enter on its own.
        let (text, enter) = keys.strip_suffix('\r').map_or((keys, false), |text| (text, true));
        viewer.write(&input::paste(text)).await.unwrap();
        if enter {
            wait_for_any(&fixture.terminal, &["[[say for a person]]"]).await;
            viewer.write(b"\r").await.unwrap();
        }
        viewer.resize(Size { rows, cols: 90 }).unwrap();
        drop(viewer);
        let prompt = format!("[[say answer {number}]]");
        let (mut heard, mut said) = (None, String::new());
        let go_on = CancellationToken::new();
        let end = fixture
            .session
            .turn(&prompt, LIMITS, &go_on, |event, _| match event {
                Event::User { text } => heard = Some(text),
                Event::Assistant { block: hob_domain::Block::Text(text), .. } => {
                    said.push_str(&text)
                }
                _ => {}
            })
            .await;
        assert!(matches!(end, Ok(TurnEnd::Finished(_))), "after {keys:?}: {end:?}");
        assert_eq!(heard.as_deref(), Some(prompt.as_str()), "after {keys:?}");
        assert_eq!(said, format!("answer {number}"), "after {keys:?}");
    }
}

async fn wait_for_any(terminal: &Terminal, texts: &[&str]) {
    for _ in 0..1500 {
        let screen = terminal.screen_text().1;
        if texts.iter().any(|text| screen.contains(text)) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("none of {texts:?} is on {}", terminal.screen_text().1);
}

#[tokio::test]
async fn person_may_type_between_turns() {
    let mut fixture = start(&program("hob-scripted-agent"), &[], &[]).await;
    type_and_go_on(&mut fixture).await;
    fixture.session.end().await;
}

#[tokio::test]
async fn person_may_type_into_a_real_session() {
    let api = ModelApi::start();
    let claude =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../e2e/node_modules/.bin/claude");
    assert!(claude.exists(), "claude is not installed: run scripts/setup-e2e agents");
    let mut fixture = start(&claude, &api.claude_environment(), &[]).await;
    type_and_go_on(&mut fixture).await;
    fixture.session.end().await;
}

#[tokio::test]
async fn interrupted_session_is_left_clean() {
    let mut fixture = start(&program("hob-scripted-agent"), &[], &[]).await;
    interrupt_and_go_on(&mut fixture).await;
    fixture.session.end().await;
}

#[tokio::test]
async fn interrupted_real_session_is_left_clean() {
    let api = ModelApi::start();
    let claude =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../e2e/node_modules/.bin/claude");
    assert!(claude.exists(), "claude is not installed: run scripts/setup-e2e agents");
    let arguments = ["--permission-mode=bypassPermissions"];
    let mut fixture = start(&claude, &api.claude_environment(), &arguments).await;
    interrupt_and_go_on(&mut fixture).await;
    fixture.session.end().await;
}
