//! Attacks through folders that agents share with others, and what runs leave behind.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use hob_testkit::server::folder_holds;
use hob_testkit::{TestHome, program, wait_until};
use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::api::*;
use crate::backend::Backend;

/// How many times a working folder is exchanged while an agent starts.
const EXCHANGES: usize = 8;
/// How long an agent may take to start a process.
const START: Duration = Duration::from_secs(10);

/// Returns the children of a process.
fn children(pid: i32) -> BTreeSet<i32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_whitespace().filter_map(|n| n.parse().ok()).collect::<Vec<_>>())
        .collect()
}

/// Exchanges two names in one step, as an agent in the folder above them can.
fn exchange(one: &Path, other: &Path) {
    renameat2(AT_FDCWD, one, AT_FDCWD, other, RenameFlags::RENAME_EXCHANGE).unwrap();
}

/// A session's working folder was checked, and its name was looked up again a moment later. An agent could exchange it
/// for a link in between, and the session's agent could write where the link led.
///
/// The test stops the new process as soon as there is one, so that the exchange comes in time.
#[test]
fn working_folder_that_is_exchanged_for_a_link_opens_nothing() {
    let home = TestHome::new();
    let user = home.user_home().canonicalize().unwrap();
    let (work, private) = (user.join("work"), user.join("private"));
    fs::create_dir_all(&private).unwrap();
    fs::create_dir_all(work.join("x")).unwrap();
    symlink(&private, work.join("y")).unwrap();
    configure(&home, &sessions(&format!("roots = [{work:?}]")));
    let token = home.app("tests");
    let api = Backend::File.start(home, &token);
    let mut exchanged = 0;
    for _ in 0..EXCHANGES {
        let before = children(api.server.pid());
        std::thread::scope(|scope| {
            let session = scope.spawn(|| {
                let body = json!({"agent": "acp", "cwd": work.join("x"), "permissions": "allow"});
                let made = api.post("/sessions", &body).json();
                let id = made["session_id"].as_str()?.to_owned();
                let write = "echo x > notes; echo x > $HOME/private/escaped";
                let write = json!({"command": format!("( {write} ) 2> /dev/null; true")});
                api.turn(&id, &format!("[[tool Bash {write}]] [[say done]]"));
                Some(id)
            });
            let started = Instant::now();
            while !session.is_finished() && started.elapsed() < START {
                let new: Vec<i32> =
                    children(api.server.pid()).difference(&before).copied().collect();
                let Some(first) = new.first().map(|pid| Pid::from_raw(*pid)) else { continue };
                let is_stopped = kill(first, Signal::SIGSTOP).is_ok();
                exchange(&work.join("x"), &work.join("y"));
                let _ = kill(first, Signal::SIGCONT);
                exchanged += usize::from(is_stopped);
                break;
            }
            let id = session.join().unwrap();
            id.iter().for_each(|id| drop(api.close(id)));
        });
        let left: Vec<_> =
            fs::read_dir(&private).unwrap().flatten().map(|e| e.file_name()).collect();
        assert!(left.is_empty(), "{left:?} after {exchanged} exchanges");
        if work.join("x").is_symlink() {
            exchange(&work.join("x"), &work.join("y"));
        }
    }
    assert!(exchanged > 0, "no process was seen in time");
}

/// A run of one app left its transcript in the owner's folder, for good and for all apps to read.
#[test]
fn transcripts_of_runs_are_left_nowhere() {
    let home = TestHome::new();
    let agent = program("hob-scripted-agent").display().to_string();
    let acp = TestHome::scripted_agent("acp", "acp", &["acp"]);
    // The built-in entry with another program.
    home.configure(&format!("[agents.claude]\ncommand = [{agent:?}]\n{acp}"));
    let (token, other) = (home.app("tests"), home.app("other"));
    let api = Backend::File.start(home, &token);
    let body = json!({"agent": "claude", "prompt": "[[say done]] layoffs on a Friday"});
    let answer = api.post("/run", &body);
    assert_eq!(answer.status, 200, "{}", answer.text);
    for folder in [api.home.user_home(), api.home.hob_home()] {
        wait_until(&format!("nothing is left in {}", folder.display()), || {
            (!folder_holds(&folder, "layoffs on a Friday")).then_some(())
        });
    }
    let id = api.create_as(&other, &json!({"agent": "acp"}));
    let look = format!(
        "grep -rl 'layoffs on' $HOME {} --exclude-dir=.hob-scripted 2> /dev/null | head; echo looked",
        api.home.hob_home().display()
    );
    let seen = api.with_token(&other).shell(&id, &look);
    assert_eq!(seen, "looked");
}

/// A core dump of the server holds the data key and prompts of all apps.
#[test]
fn server_and_agents_leave_no_core_dumps() {
    let home = TestHome::new();
    configure(&home, "");
    let token = home.app("tests");
    let server = home.serve_with(|command| {
        let mut shell = Command::new("sh");
        shell.args(["-c", "ulimit -c unlimited 2> /dev/null; exec \"$0\" \"$@\""]);
        shell.arg(command.get_program()).args(command.get_args()).env_clear();
        for (name, value) in command.get_envs() {
            shell.env(name, value.unwrap_or_default());
        }
        *command = shell;
    });
    let limits = fs::read_to_string(format!("/proc/{}/limits", server.pid())).unwrap();
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    let words: Vec<&str> = core.split_whitespace().collect();
    assert_eq!(words[4..6], ["0", "0"], "{core}");
    let api = Api::new(Backend::File, server, home, &token);
    assert_eq!(api.shell(&api.session(), "ulimit -c; ulimit -H -c"), "0\n0");
    let _: Value = api.get("/sessions").json();
}
