//! `hob attach` in a real pseudo-terminal.

use std::ffi::OsString;

use hob_child::sweep::Marker;
use hob_child::{Child, ChildSpec, Children, ChildrenOptions, StopLadder, Streams};
use hob_terminal::{ScreenModel, Size};
use hob_testkit::{TestHome, program, wait_until};
use serde_json::Value;

use crate::api::{Api, processes_of};
use crate::live::{api, live, screen, terminal};

const SIZE: Size = Size { rows: 30, cols: 100 };

/// A shell in a terminal, in which `hob` runs; what it shows is looked at as a person does.
struct Desk {
    runtime: tokio::runtime::Runtime,
    child: Child,
    _children: Children,
}

/// Runs a script in which `$HOB` is the executable.
fn desk(home: &TestHome, script: &str) -> Desk {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let children = Children::new(ChildrenOptions {
        shim: program("hob-scripted-agent"),
        records: home.user_home().join("desk"),
        marker: Marker::new("desk", "1"),
        umask: 0o022,
        control_groups: None,
    })
    .unwrap();
    let env: Vec<(OsString, OsString)> = vec![
        ("PATH".into(), std::env::var_os("PATH").unwrap_or_default()),
        ("HOME".into(), home.user_home().into()),
        ("HOB_HOME".into(), home.hob_home().into()),
        ("HOB".into(), program("hob").into()),
        ("TERM".into(), "xterm-256color".into()),
    ];
    let spec = ChildSpec {
        program: "sh".into(),
        args: vec!["-c".into(), script.into()],
        env,
        cwd: home.user_home(),
        streams: Streams::Terminal { size: SIZE },
        owner: None,
        confinement: None,
    };
    let child = runtime.block_on(children.spawn(spec)).unwrap();
    Desk { runtime, child, _children: children }
}

impl Desk {
    fn raw(&self) -> String {
        self.child.output().tail_text()
    }

    fn text(&self) -> String {
        let mut model = ScreenModel::new(SIZE);
        model.feed(&self.child.output().tail());
        model.text()
    }

    #[track_caller]
    fn shows(&self, text: &str) {
        wait_until(&format!("the desk shows {text}"), || self.text().contains(text).then_some(()));
    }

    fn types(&self, bytes: &[u8]) {
        self.runtime.block_on(self.child.write_terminal(bytes)).unwrap();
    }

    fn end(mut self) {
        self.runtime.block_on(self.child.stop(StopLadder::AT_ONCE));
    }
}

fn find(api: &Api, id: &str) -> Value {
    live(api).into_iter().find(|one| one["id"] == *id).unwrap()
}

#[test]
fn attach_watches_types_and_detaches() {
    let api = api();
    let id = terminal(&api);
    let short = &id[..13];
    let script = format!("echo before; $HOB attach {short}; echo left with $?; stty -a; read x");
    let desk = desk(&api.home, &script);
    desk.shows("for shortcuts");
    wait_until("it has our size", || (find(&api, &id)["cols"] == 100).then_some(()));
    desk.types("hällo".as_bytes());
    desk.shows("❯\u{a0}hällo");
    assert!(screen(&api, &id).contains("❯\u{a0}hällo"));
    assert_eq!(
        (&find(&api, &id)["viewers"], &find(&api, &id)["writer"]),
        (&1.into(), &true.into())
    );
    // Ctrl-C is the agent's: it clears the box.
    desk.types(b"\x03");
    wait_until("the box is empty", || (!screen(&api, &id).contains("hällo")).then_some(()));
    desk.runtime.block_on(async { desk.child.resize(Size { rows: 35, cols: 110 }) }).unwrap();
    wait_until("it has our new size", || (find(&api, &id)["cols"] == 110).then_some(()));
    desk.types(b"more\x1d");
    desk.shows("left with 0");
    desk.shows("before");
    wait_until("the terminal is as it was", || {
        let text = desk.text();
        (text.contains(" icanon") && text.contains(" echo ")).then_some(())
    });
    wait_until("it was typed before", || screen(&api, &id).contains("more").then_some(()));
    let raw = desk.raw();
    assert!(
        raw.contains("it keeps running")
            && raw.contains("\x1b[?1049h")
            && raw.contains("\x1b[?1049l")
    );
    // The agent sets a title and asks for focus; neither comes through.
    assert!(!raw.contains("\x1b]") && !raw.contains("\x1b[?1004h"), "{raw:?}");
    wait_until("no viewer is left", || (find(&api, &id)["viewers"] == 0).then_some(()));
    desk.end();
    assert_eq!(api.ask(&id, "[[say still there]]"), "still there");
}

#[test]
fn attach_read_only_ends_with_the_agent() {
    let api = api();
    let id = terminal(&api);
    let script =
        format!("$HOB attach --read-only --detach-key ctrl-a {id}; echo left with $?; read x");
    let desk = desk(&api.home, &script);
    desk.shows("larger than your terminal");
    desk.types(b"nothing");
    api.ask(&id, "[[say an answer]]");
    wait_until("it is drawn", || desk.raw().contains("an answer").then_some(()));
    assert!(!screen(&api, &id).contains("nothing"));
    assert_eq!(
        (&find(&api, &id)["cols"], &find(&api, &id)["writer"]),
        (&120.into(), &false.into())
    );
    api.close(&id);
    desk.shows("left with 0");
    assert!(desk.raw().contains("the agent has ended"));
    desk.end();
}

#[test]
fn attach_restores_the_terminal_when_the_server_dies() {
    let api = api();
    let id = terminal(&api);
    let desk = desk(&api.home, &format!("$HOB attach {id}; echo left with $?; stty -a; read x"));
    desk.shows("for shortcuts");
    let Api { server, home, .. } = api;
    server.kill();
    desk.shows("left with 1");
    desk.shows(" icanon");
    assert!(desk.raw().contains("lost the connection to the server"), "{}", desk.raw());
    desk.end();
    wait_until("no process is left", || processes_of(&home).is_empty().then_some(()));
}

#[test]
fn attach_restores_the_terminal_on_signals() {
    let api = api();
    let id = api.session();
    api.ask(&id, "[[say an event]]");
    let script = format!(
        "{{ while [ ! -e now ]; do sleep 0.1; done; kill -TERM $(cat pid); }} & \
         sh -c 'echo $$ > pid; exec $HOB attach {id}'; echo left with $?; stty -a; read x"
    );
    let desk = desk(&api.home, &script);
    desk.shows("an event");
    std::fs::write(api.home.user_home().join("now"), "").unwrap();
    desk.shows("left with 0");
    desk.shows(" icanon");
    desk.end();
}

#[test]
fn attach_without_a_terminal_prints_the_screen_or_fails() {
    let api = api();
    let id = terminal(&api);
    let run = |arguments: &[&str]| {
        let output = api.home.run(arguments);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let (code, _, error) = run(&["attach", &id]);
    assert_eq!(code, Some(1));
    assert!(error.contains("needs a terminal") && error.contains("--screen"), "{error}");
    let (code, text, _) = run(&["attach", &id[..13], "--screen"]);
    assert_eq!((code, text), (Some(0), screen(&api, &id)));
    let (_, svg, _) = run(&["attach", &id, "--screen", "--format", "svg"]);
    assert!(svg.starts_with("<svg "), "{svg}");
    let (code, list, _) = run(&["attach"]);
    assert_eq!(code, Some(0));
    assert!(
        list.contains(&id[..12]) && list.contains("terminal") && list.contains("claude"),
        "{list}"
    );
    let (_, json, _) = run(&["attach", "--list", "--json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["live"][0]["id"], *id);
    let (code, _, error) = run(&["attach", "nothing", "--screen"]);
    assert_eq!(code, Some(1));
    assert!(error.contains("no live session"), "{error}");
    assert_eq!(run(&["attach", &id, "--detach-key", "x"]).0, Some(2));
    let Api { server, home, .. } = api;
    server.stop();
    assert_eq!(home.run(&["attach"]).status.code(), Some(3));
}
