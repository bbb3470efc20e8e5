//! Homes with data, ways to damage them, and mounts, for the tests of recovery.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{LazyLock, OnceLock};

use hob_testkit::{TestHome, program};
use serde_json::Value;

use crate::api::configure;
use crate::memory_setup::{capture, exported_texts, json_of, said, transcript};

/// The number of turns in the memory of a filled home.
pub const TURNS: usize = 300;
/// The number of turns of the session in the ledger of a filled home. A damaged page of the ledger takes up to eight along,
/// less than a quarter of them.
pub const PROMPTS: usize = 60;

/// A home that was filled once and is copied for every case.
pub struct FilledHome {
    home: TestHome,
    /// The databases as they were before the last turn and the last app.
    older: PathBuf,
    pub token: String,
    pub session: String,
    rows: OnceLock<Value>,
    /// The texts of the owner's turns in the memory.
    pub texts: Vec<String>,
}

pub static FILLED: LazyLock<FilledHome> = LazyLock::new(fill);

fn fill() -> FilledHome {
    let home = TestHome::new();
    configure(&home, "");
    let private = fs::Permissions::from_mode(0o600);
    fs::set_permissions(home.hob_home().join("config.toml"), private).unwrap();
    let token = home.app("tests");
    let server = home.serve();
    let lines: Vec<Value> =
        (0..TURNS).map(|number| said("s", number, "user", &long_text("turn", number))).collect();
    let path = transcript(&home, "t.jsonl", &lines);
    // On a busy machine the server may answer too late, and the turns are sent again.
    let answer = capture(&home, &[], &path);
    let stored = ["inserted", "duplicates"].map(|key| answer[key].as_u64().unwrap_or_default());
    assert_eq!(stored.iter().sum::<u64>(), TURNS as u64, "{answer}");
    let client = server.client(&token);
    let session = client.session();
    for number in 0..PROMPTS {
        client.ask(&session, &long_text("prompt", number));
    }
    assert!(server.stop().success());
    let older = home.folder().join("older");
    fs::create_dir(&older).unwrap();
    for name in ["hob.db", "memory.db"] {
        fs::copy(home.hob_home().join(name), older.join(name)).unwrap();
    }
    // One more start begins a new generation.
    assert!(home.serve().stop().success());
    let texts = exported_texts(&home);
    FilledHome { home, older, token, session, rows: OnceLock::new(), texts }
}

/// A text of about a kilobyte that does not compress into a page with its neighbours.
fn long_text(what: &str, number: usize) -> String {
    let filler: Vec<String> = (0..90).map(|word| format!("word{}", word * 31 + number)).collect();
    format!("{what} number {number} {}", filler.join(" "))
}

impl FilledHome {
    /// Returns a copy of the home.
    pub fn copy(&self) -> TestHome {
        let copy = TestHome::new();
        let copied = Command::new("cp")
            .arg("-a")
            .arg(self.home.hob_home())
            .arg(copy.hob_home())
            .status()
            .expect("cp runs");
        assert!(copied.success());
        copy
    }

    /// The number of rows in each table of each database.
    pub fn rows(&self) -> &Value {
        // Of a copy: other cases copy the home meanwhile.
        self.rows.get_or_init(|| {
            let copy = self.copy();
            let file = copy.folder().join("filled.backup");
            json_of(&copy.run(&["backup", file.to_str().unwrap(), "--json"]))["rows"].clone()
        })
    }

    /// Returns an older copy of a database.
    pub fn older(&self, name: &str) -> PathBuf {
        self.older.join(name)
    }
}

/// What a command said on both outputs.
pub fn words(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    format!("{}{}", String::from_utf8_lossy(out), String::from_utf8_lossy(err))
}

/// Changes some bytes of a file.
pub fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at..].iter_mut().take(64).for_each(|byte| *byte ^= 0x5a);
    fs::write(path, bytes).unwrap();
}

/// Kills a server that has just written into both databases, whose write-ahead logs stay.
pub fn with_logs(home: &TestHome) {
    let server = home.serve();
    let later = transcript(home, "u.jsonl", &[said("u", 0, "user", "the last turn")]);
    assert_eq!(capture(home, &[], &later)["inserted"], 1);
    home.app("latest");
    server.kill();
    for name in ["hob.db-wal", "memory.db-wal"] {
        let length = fs::metadata(home.hob_home().join(name)).unwrap().len();
        assert!(length > 0, "{name}");
    }
}

/// Root needs no user namespace, in which it could not reach the sockets of others.
fn namespaces() -> &'static str {
    if nix::unistd::getuid().is_root() { "-m" } else { "-rm" }
}

/// Returns whether this kernel lets tests mount file systems, in namespaces of their own.
pub fn can_mount() -> bool {
    let can = Command::new("unshare")
        .args([namespaces(), "mount", "-t", "tmpfs", "none", "/mnt"])
        .output()
        .is_ok_and(|output| output.status.success());
    if !can {
        eprintln!("skipped: this kernel refuses mounts in a user namespace");
    }
    can
}

/// Returns a `hob` command that runs after a shell script, in mount and user namespaces of its own. `$HOB_HOME` is the home.
pub fn mounted(home: &TestHome, script: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    let script = format!("set -e; {script}; exec \"$@\"");
    command.args([namespaces(), "sh", "-c", &script, "sh"]).arg(program("hob")).args(arguments);
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.env("HOME", home.user_home()).env("HOB_HOME", home.hob_home());
    // As in `TestHome::command`: a busy machine is no fault of a hook.
    command.env("HOB_MEMORY_HOOK_TIMEOUT_SECS", "60");
    command.stdin(std::process::Stdio::null());
    command
}

/// The script that makes the home read-only.
pub const READ_ONLY: &str =
    "mount --bind \"$HOB_HOME\" \"$HOB_HOME\"; mount -o remount,bind,ro \"$HOB_HOME\"";

/// Asserts that a command failed and said all of this.
#[track_caller]
pub fn fails_saying(output: &Output, expect: &[&str]) {
    let words = words(output);
    assert!(!output.status.success(), "{output:?}");
    for part in expect {
        assert!(words.contains(part), "{part:?} is not in: {words}");
    }
}

/// Asserts that `hob serve` does not start and says all of this.
#[track_caller]
pub fn does_not_serve(home: &TestHome, expect: &[&str]) {
    fails_saying(&home.run(&["serve", "--no-http"]), expect);
}
