//! Viewers of real pseudo-terminals.

use std::sync::Arc;
use std::time::Duration;

use hob_child::sweep::Marker;
use hob_child::{Child, ChildSpec, Children, ChildrenOptions, StopLadder, Streams};
use hob_testkit::program;

use super::*;

const SIZE: Size = Size { rows: 10, cols: 40 };

struct Fixture {
    child: Child,
    terminals: Terminals,
    registration: TerminalRegistration,
    _children: Children,
    folder: tempfile::TempDir,
}

/// Starts a shell script in a terminal.
async fn start(script: &str) -> Fixture {
    let folder = tempfile::tempdir().unwrap();
    let children = Children::new(ChildrenOptions {
        shim: program("hob-scripted-agent"),
        records: folder.path().join("run"),
        marker: Marker::new("terminal", "1"),
        umask: 0o022,
        control_groups: None,
    })
    .unwrap();
    let spec = ChildSpec {
        program: "sh".into(),
        args: vec!["-c".into(), script.into()],
        env: vec![("PATH".into(), std::env::var_os("PATH").unwrap_or_default())],
        cwd: folder.path().to_owned(),
        streams: Streams::Terminal { size: SIZE },
        owner: None,
        confinement: None,
    };
    let child = children.spawn(spec).await.unwrap();
    let terminals = Terminals::default();
    let registrar = TerminalRegistrar {
        terminals: terminals.clone(),
        id: "one".to_owned(),
        kind: TerminalKind::Session,
        agent: "sh".to_owned(),
    };
    let registration =
        registrar.register(&child, SIZE, "tests".to_owned(), folder.path().to_owned());
    Fixture { child, terminals, registration, _children: children, folder }
}

/// The screen and updates that one viewer has seen.
struct Seen {
    viewer: Viewer,
    model: ScreenModel,
    others: Vec<ViewerUpdate>,
    redraws: usize,
}

fn watch(terminal: &Arc<Terminal>) -> Seen {
    let viewer = terminal.watch(MAX_SCROLLBACK_LINES);
    Seen { model: ScreenModel::new(viewer.size()), viewer, others: Vec::new(), redraws: 0 }
}

impl Seen {
    /// Follows updates until `done` holds.
    async fn until(&mut self, what: &str, done: impl Fn(&Seen) -> bool) {
        let follow = async {
            while !done(self) {
                match self.viewer.next().await {
                    Some(ViewerUpdate::Bytes(bytes)) => {
                        self.redraws += usize::from(bytes.starts_with(b"\x1b[?2026l\x1b[r"));
                        self.model.feed(&bytes);
                    }
                    Some(ViewerUpdate::Size(size)) => {
                        self.model.resize(size);
                        self.others.push(ViewerUpdate::Size(size));
                    }
                    Some(other) => self.others.push(other),
                    None => break,
                }
            }
        };
        let in_time = tokio::time::timeout(Duration::from_secs(20), follow).await.is_ok();
        assert!(in_time && done(self), "{what}: {:?} {:?}", self.model.text(), self.others);
    }

    async fn shows(&mut self, text: &str) {
        self.until(text, |seen| seen.model.text().contains(text)).await;
    }

    fn heard(&self, update: &ViewerUpdate) -> bool {
        self.others.contains(update)
    }
}

#[tokio::test]
async fn two_viewers_see_the_same_and_one_types() {
    let mut fixture =
        start("stty -echo; echo ready; while read line; do echo \"got $line\"; done").await;
    let terminal = fixture.terminals.get("one").unwrap();
    let (mut first, mut second) = (watch(&terminal), watch(&terminal));
    first.shows("ready").await;
    second.shows("ready").await;
    assert_eq!(terminal.status().viewers, 2);

    assert_eq!(first.viewer.write(b"hello\r").await, Ok(true));
    first.shows("got hello").await;
    second.shows("got hello").await;
    second.until("told", |seen| seen.heard(&ViewerUpdate::Writer(Writer::Other))).await;
    first.until("told", |seen| seen.heard(&ViewerUpdate::Writer(Writer::You))).await;
    assert_eq!(second.viewer.write(b"no\r").await, Err(TerminalError::OtherWriter));
    assert_eq!(second.viewer.resize(SIZE), Err(TerminalError::NotSoleViewer));

    assert_eq!(second.viewer.take(), Writer::Other);
    assert_eq!(second.viewer.write(b"mine\r").await, Ok(false));
    first.shows("got mine").await;
    first.until("told", |seen| seen.heard(&ViewerUpdate::Writer(Writer::Other))).await;
    second.viewer.release();
    first.until("told", |seen| seen.heard(&ViewerUpdate::Writer(Writer::Nobody))).await;
    second.shows("got mine").await;
    assert_eq!(first.model.text(), second.model.text());
    assert!(!first.model.text().contains("got no"));

    // Replies that a terminal sends by itself are not input.
    assert_eq!(first.viewer.write(b"\x1b[?62;c\x1b[5;5R").await, Ok(false));
    assert!(!terminal.status().has_writer);
    drop(second);
    assert_eq!(terminal.status().viewers, 1);

    fixture.child.stop(StopLadder::AT_ONCE).await;
    let end = ViewerUpdate::End("the agent has ended".to_owned());
    first.until("the end is reported", |seen| seen.heard(&end)).await;
    assert_eq!(first.viewer.next().await, None);
    assert_eq!(first.viewer.write(b"x").await, Err(TerminalError::Ended));
    drop(fixture.registration);
    assert!(fixture.terminals.all().is_empty());
}

#[tokio::test]
async fn resize_reaches_agent_and_viewers() {
    let script = "stty -echo; trap 'stty size' WINCH; echo ready; while :; do sleep 0.05; done";
    let fixture = start(script).await;
    let terminal = fixture.terminals.get("one").unwrap();
    let mut one = watch(&terminal);
    one.shows("ready").await;
    assert_eq!(one.viewer.resize(Size { rows: 30, cols: 100 }), Ok(()));
    one.shows("30 100").await;
    assert!(one.heard(&ViewerUpdate::Size(Size { rows: 30, cols: 100 })));
    one.viewer.resize(Size { rows: 1, cols: 9999 }).unwrap();
    one.shows("5 500").await;
    let size = fixture.registration.with_screen(|model| model.size());
    assert_eq!(size, Size { rows: 5, cols: 500 });
    terminal.ensure_size(Size { rows: 5, cols: 60 }, SIZE);
    terminal.ensure_size(Size { rows: 16, cols: 60 }, SIZE);
    one.shows("10 40").await;
}

#[tokio::test]
async fn slow_viewer_gets_a_redraw() {
    let script = "echo ready; while [ ! -e go ]; do sleep 0.05; done; \
                  seq 1 200000; echo at the end; while [ ! -e gone ]; do sleep 0.05; done";
    let fixture = start(script).await;
    let terminal = fixture.terminals.get("one").unwrap();
    let (mut slow, mut quick) = (watch(&terminal), watch(&terminal));
    slow.shows("ready").await;
    std::fs::write(fixture.folder.path().join("go"), "").unwrap();
    quick.shows("at the end").await;
    assert_eq!(slow.redraws, 1);
    slow.shows("at the end").await;
    assert_eq!(slow.redraws, 2, "instead of more than a megabyte");
    assert_eq!(slow.model.text(), quick.model.text());
    // A viewer that joins now gets the scrollback, as far as it is kept.
    let bytes = terminal.with_screen(|model| model.redraw(MAX_SCROLLBACK_LINES));
    let text = String::from_utf8(bytes).unwrap();
    assert!(text.contains("199000") && !text.contains("197000\x1b"), "{}", text.len());
    let late = watch(&terminal);
    drop((slow, quick));
    assert_eq!(terminal.status().viewers, 1);
    drop(late);
}
