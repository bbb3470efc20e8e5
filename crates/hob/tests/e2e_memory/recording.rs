//! The recording in the README: set-up, a first recall, a recall by the real `claude`, and a question of an agent.
//!
//! Everything in it was printed by the programs. The test checks each step; with `UPDATE_RECORDING=1` it also writes
//! `docs/assets/tour.svg`.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use hob_domain::Timestamp;
use hob_terminal::{ScreenModel, Size};
use hob_testkit::leak::processes_with;
use hob_testkit::{HobServer, ModelApi, TestHome, wait_until};
use nix::pty::Winsize;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::{answer_first_questions, in_terminal, installed};

const SIZE: Size = Size { rows: 28, cols: 100 };
/// How long the reader sees what was typed, and what was printed.
const TYPED: Duration = Duration::from_millis(900);
const PRINTED: Duration = Duration::from_millis(3500);
/// How long a program may take to print what it should.
const DEADLINE: Duration = Duration::from_secs(120);

const QUESTION: &str = "What did we decide about cookies?";
const DECISION: &str = "From now on, cookies are SameSite=Lax everywhere.";
const ANSWER: &str =
    "Two days ago you decided that cookies are SameSite=Lax everywhere; two were Strict before.";

/// A developer with a project, its past sessions, and a `claude` on the `PATH`.
struct Developer {
    server: HobServer,
    home: TestHome,
    api: ModelApi,
}

impl Developer {
    fn new() -> Developer {
        let (home, api) = (TestHome::new(), ModelApi::start());
        let recall = json!({"cue": "decision about cookies"});
        let words = format!("[[tool mcp__hob__memory_recall {recall}]] [[say {ANSWER}]]");
        api.answer_to(QUESTION, &words);
        // Where the files of a user are who has set nothing.
        let server = home.serve_with(|command| {
            command.env_remove("HOB_HOME");
        });
        let developer = Developer { server, home, api };
        fs::create_dir_all(developer.project().join(".git")).unwrap();
        developer.remember_past();
        developer.prepare_claude();
        developer
    }

    fn project(&self) -> PathBuf {
        self.home.user_home().canonicalize().unwrap().join("src/shop")
    }

    /// Writes the transcript of a session of two days ago.
    fn remember_past(&self) {
        let session = "0197a2f4-1111-4a2b-8c3d-123456789abc";
        let begin = Timestamp::now().as_second() - 2 * 86_400;
        let said = [
            ("user", "Why did the login test fail on CI last night?"),
            (
                "assistant",
                "The session cookie is set with `Secure`, and the test server speaks plain http. The flag now follows \
                 the scheme.",
            ),
            ("user", DECISION),
            (
                "assistant",
                "Noted: SameSite=Lax for every cookie. I changed the two that were Strict.",
            ),
        ];
        let mut lines = String::new();
        for (turn, (role, text)) in said.into_iter().enumerate() {
            let id = |turn: usize| format!("5d0d7a36-0000-4000-8000-00000000000{turn}");
            let at = Timestamp::from_second(begin + 30 * turn as i64).unwrap().to_string();
            let content = match role {
                "user" => json!(text),
                _ => json!([{"type": "text", "text": text}]),
            };
            let record = json!({"type": role, "uuid": id(turn), "sessionId": session,
                "parentUuid": turn.checked_sub(1).map(id), "cwd": self.project(), "timestamp": at,
                "version": "2.0.0", "message": {"role": role, "content": content}});
            lines.push_str(&format!("{record}\n"));
        }
        let folder = self.home.user_home().join(".claude/projects/shop");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(format!("{session}.jsonl")), lines).unwrap();
    }

    /// Answers what `claude` asks at its first start, and allows it the tools of the memory.
    fn prepare_claude(&self) {
        answer_first_questions(&self.home, &self.api, &self.project());
        let settings = json!({"permissions": {"allow": ["mcp__hob"]}});
        let folder = self.home.user_home().join(".claude");
        fs::write(folder.join("settings.json"), settings.to_string()).unwrap();
        fs::create_dir_all(self.programs()).unwrap();
        symlink(installed("node_modules/.bin/claude"), self.programs().join("claude")).unwrap();
    }

    fn hob(&self, arguments: &[&str]) -> Command {
        self.in_project(self.home.command(arguments))
    }

    fn claude(&self) -> Command {
        let mut command = Command::new(installed("node_modules/.bin/claude"));
        command.env_clear().env("HOME", self.home.user_home());
        command.envs(self.api.claude_environment());
        self.in_project(command)
    }

    fn in_project(&self, mut command: Command) -> Command {
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", self.programs().display()));
        command.env_remove("HOB_HOME").current_dir(self.project());
        command
    }

    /// The folder of the user's programs.
    fn programs(&self) -> PathBuf {
        self.home.user_home().join(".local/bin")
    }
}

/// A picture of the terminal, and how long it is shown.
struct Frame {
    picture: String,
    shown: Duration,
}

struct Recording {
    screen: ScreenModel,
    frames: Vec<Frame>,
    /// A path of this machine, which must not be seen.
    private: String,
    /// The frame that a viewer without movement shows.
    cover: usize,
}

impl Recording {
    fn new(developer: &Developer) -> Recording {
        let private = developer.home.user_home().display().to_string();
        Recording { screen: ScreenModel::new(SIZE), frames: Vec::new(), private, cover: 0 }
    }

    fn show(&mut self, shown: Duration) {
        // A long line goes on in the next one.
        let shown_text = self.screen.text();
        assert!(!shown_text.replace('\n', "").contains(&self.private), "{shown_text}");
        let picture = self.screen.svg();
        match self.frames.last_mut() {
            Some(last) if last.picture == picture => last.shown += shown,
            _ => self.frames.push(Frame { picture, shown }),
        }
    }

    /// Shows a command as it is typed at a prompt.
    fn type_command(&mut self, command: &str) {
        self.screen.feed(b"\x1b[36m~/src/shop\x1b[0m $ ");
        for part in command.as_bytes().chunks(6) {
            self.screen.feed(part);
            self.show(Duration::from_millis(120));
        }
        self.show(TYPED);
        self.screen.feed(b"\r\n");
    }

    /// Runs a command to its end. For each step, waits until the screen shows the first text, and types the second.
    fn run(&mut self, command: Command, steps: &[(&str, &str)]) {
        let mut terminal = Terminal::start(command);
        for (expected, input) in steps {
            terminal.wait_for(&mut self.screen, expected);
            self.show(PRINTED);
            terminal.keys.write_all(input.as_bytes()).unwrap();
        }
        terminal.wait_for_end(&mut self.screen);
        self.show(PRINTED);
    }

    /// Returns all frames as one picture that moves.
    fn animation(&self) -> String {
        let body = |frame: &Frame| {
            let (head, rest) = frame.picture.split_once('\n').unwrap();
            (head.to_owned(), rest.trim_end().strip_suffix("</svg>").unwrap().to_owned())
        };
        let total: u128 = self.frames.iter().map(|frame| frame.shown.as_millis()).sum();
        let (head, cover) = body(&self.frames[self.cover]);
        let mut picture = format!(
            "{head}\n<animate id=\"tour\" attributeName=\"opacity\" from=\"1\" to=\"1\" begin=\"0s;tour.end\" \
             dur=\"{total}ms\"/>\n<g>\n{cover}</g>\n"
        );
        let mut at = 0;
        for frame in &self.frames {
            let shown = frame.shown.as_millis();
            picture.push_str(&format!(
                "<g visibility=\"hidden\"><set attributeName=\"visibility\" to=\"visible\" begin=\"tour.begin+{at}ms\" \
                 dur=\"{shown}ms\"/>\n{}</g>\n",
                body(frame).1
            ));
            at += shown;
        }
        picture + "</svg>\n"
    }
}

/// A program in a pseudo-terminal.
struct Terminal {
    child: Child,
    keys: File,
    output: Receiver<Vec<u8>>,
}

impl Terminal {
    fn start(mut command: Command) -> Terminal {
        let size = Winsize { ws_row: SIZE.rows, ws_col: SIZE.cols, ws_xpixel: 0, ws_ypixel: 0 };
        command.env("TERM", "xterm-256color");
        let (child, keys) = in_terminal(command, size);
        let mut master = keys.try_clone().unwrap();
        let (sender, output) = channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // The end of the terminal is an error.
            while let Ok(length @ 1..) = master.read(&mut bytes) {
                let _ = sender.send(bytes[..length].to_vec());
            }
        });
        Terminal { child, keys, output }
    }

    fn wait_for(&mut self, screen: &mut ScreenModel, expected: &str) {
        let began = Instant::now();
        while !screen.text().contains(expected) {
            assert!(began.elapsed() < DEADLINE, "no {expected:?} in\n{}", screen.text());
            match self.output.recv_timeout(Duration::from_secs(1)) {
                Ok(bytes) => screen.feed(&bytes),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    assert!(
                        screen.text().contains(expected),
                        "no {expected:?} in\n{}",
                        screen.text()
                    );
                }
            }
        }
    }

    fn wait_for_end(&mut self, screen: &mut ScreenModel) {
        let status = wait_until("the program ends", || {
            while let Ok(bytes) = self.output.try_recv() {
                screen.feed(&bytes);
            }
            self.child.try_wait().unwrap()
        });
        while let Ok(bytes) = self.output.recv() {
            screen.feed(&bytes);
        }
        assert!(status.success(), "{status}\n{}", screen.text());
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn tour_of_the_readme_is_recorded() {
    let developer = Developer::new();
    let mut recording = Recording::new(&developer);

    recording.type_command("hob setup --yes");
    recording.run(developer.hob(&["setup", "--yes"]), &[("imported 4 turns", "")]);

    recording.type_command("hob recall why did the login test fail");
    let recall = ["recall", "why", "did", "the", "login", "test", "fail"];
    recording.run(developer.hob(&recall), &[("plain http", "")]);

    recording.type_command("claude");
    recording.screen.feed(b"\x1b[2J\x1b[H");
    let mut claude = Terminal::start(developer.claude());
    claude.wait_for(&mut recording.screen, "❯");
    recording.show(TYPED);
    claude.keys.write_all(QUESTION.as_bytes()).unwrap();
    claude.wait_for(&mut recording.screen, "cookies?");
    recording.show(TYPED);
    claude.keys.write_all(b"\r").unwrap();
    claude.wait_for(&mut recording.screen, "two were Strict before");
    recording.show(PRINTED);
    recording.cover = recording.frames.len() - 1;
    let asked = developer.api.requests().last().unwrap().to_string();
    assert!(asked.contains(DECISION), "the memory answered: {asked}");
    kill(Pid::from_raw(claude.child.id() as i32), Signal::SIGINT).unwrap();
    let mut rest = ScreenModel::new(SIZE);
    claude.wait_for_end(&mut rest);
    recording.screen = ScreenModel::new(SIZE);

    recording.type_command("hob run --agent demo ask to delete the build folder");
    let run = ["run", "--agent", "demo", "ask to delete the build folder"];
    recording.run(developer.hob(&run), &[("delete the build folder. Allow?", "y\n")]);

    let undone = developer.hob(&["setup", "--undo", "--yes"]).output().unwrap();
    assert!(undone.status.success(), "{undone:?}");
    let (home, server) =
        (format!("HOME={}", developer.home.user_home().display()), &developer.server);
    wait_until("no program is left", || {
        processes_with(&home).into_iter().all(|pid| pid == server.pid()).then_some(())
    });

    let picture = recording.animation();
    if std::env::var_os("UPDATE_RECORDING").is_some() {
        let assets = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/assets");
        fs::write(assets.join("tour.svg"), picture).unwrap();
    }
}
