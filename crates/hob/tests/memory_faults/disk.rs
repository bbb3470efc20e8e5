//! Disks that are full or can't be written: hooks end well, nothing is torn, nothing acknowledged is lost.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use hob_testkit::{Random, TestHome};

use crate::hooks::{
    Watch, assert_no_process, assert_whole, capture_command, deferred, finish, hook_input, serve,
    set_aside, temporary, wait_drained,
};
use crate::transcript::{ASSISTANT, Shape, Transcript, USER, assert_stored, exported};

/// A small file system on a folder, which needs root. Dropping it unmounts it.
struct Mounted {
    folder: PathBuf,
}

impl Mounted {
    /// `None` where this may not be done.
    fn new(folder: &Path, size: &str) -> Option<Mounted> {
        fs::create_dir_all(folder).unwrap();
        let options = format!("size={size},mode=700");
        let mounted = mount(&["-t", "tmpfs", "-o", &options, "hob-test"], folder);
        if !mounted {
            println!("disk: a file system can't be mounted here, so this is not tested");
        }
        mounted.then(|| Mounted { folder: folder.to_owned() })
    }

    fn remount(&self, options: &str) {
        assert!(mount(&["-o", &format!("remount,{options}")], &self.folder));
    }

    /// Fills the file system up to about this many free bytes.
    fn fill_but(&self, free: u64) {
        let filler = self.folder.join("filler");
        let _ = fs::remove_file(&filler);
        let space = nix::sys::statvfs::statvfs(&self.folder).unwrap();
        let available = space.blocks_available() * space.fragment_size();
        fs::write(&filler, vec![0; available.saturating_sub(free) as usize]).unwrap();
    }

    fn empty(&self) {
        let _ = fs::remove_file(self.folder.join("filler"));
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.folder).status();
    }
}

fn mount(arguments: &[&str], folder: &Path) -> bool {
    let mut command = Command::new("mount");
    command.args(arguments).arg(folder).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// A session's turns, and how many of them were acknowledged.
struct Session {
    transcript: Transcript,
    acknowledged: usize,
}

impl Session {
    fn new(home: &TestHome, name: &str) -> Session {
        Session { transcript: Transcript::new(home, name, Shape::Claude), acknowledged: 0 }
    }

    /// Captures once more. Whatever happens the hook ends well, and says what it did.
    #[track_caller]
    fn capture(&mut self, home: &TestHome, watch: &Watch, flags: &[&str]) -> bool {
        self.transcript.talk(1);
        let done = watch.capture(home, flags, self.transcript.path());
        let safe = match done.status().as_str() {
            "captured" | "deferred" => true,
            "failed" => false,
            other => panic!("{other}"),
        };
        if safe {
            self.acknowledged = self.transcript.said.len();
        }
        safe
    }

    #[track_caller]
    fn follow(&mut self, home: &TestHome, watch: &Watch) -> bool {
        self.transcript.say(USER, "And then?");
        self.transcript.say(ASSISTANT, "Done.");
        let done = watch.turn(home, &hook_input(&self.transcript, "Stop", Some("Done.")));
        let safe = done.stderr.is_empty();
        if safe {
            self.acknowledged = self.transcript.said.len();
        }
        safe
    }

    /// Asserts that every acknowledged turn is stored.
    #[track_caller]
    fn check(&self, home: &TestHome) {
        let there = exported(home, &self.transcript.session);
        let safe = &self.transcript.said[..self.acknowledged];
        assert!(there.len() >= safe.len(), "{} of {} are there", there.len(), safe.len());
        assert_eq!(&there[..safe.len()], safe);
    }
}

#[test]
fn full_disk_loses_no_turn() {
    let home = TestHome::new();
    let Some(disk) = Mounted::new(&home.hob_home(), "4m") else { return };
    let (watch, mut random) = (Watch::new(), Random::new(11));
    let mut sessions = ["deferring", "storing", "following"].map(|name| Session::new(&home, name));
    let rounds = if hob_testkit::is_campaign() { 100 } else { 12 };
    let mut refused = 0;
    for round in 0..rounds {
        // Half of the rounds have a server. It starts with room, and lives on without.
        let server = (round % 2 == 1).then(|| serve(&home));
        let free = random.below(3) * random.below(100_000);
        disk.fill_but(free);
        let [deferring, storing, following] = &mut sessions;
        let safe = [
            deferring.capture(&home, &watch, &["--no-spawn"]),
            storing.capture(&home, &watch, &[]),
            following.follow(&home, &watch),
        ];
        refused += safe.iter().filter(|safe| !**safe).count();
        watch.session_start(&home, &following.transcript.cwd);
        assert_whole(&home);
        disk.empty();
        let server = server.unwrap_or_else(|| serve(&home));
        wait_drained(&home);
        sessions.iter().for_each(|session| session.check(&home));
        server.kill();
    }
    assert_no_process(&home);
    assert_eq!(set_aside(&home), [""; 0]);
    // With room again everything is caught up with.
    let server = serve(&home);
    for session in &mut sessions {
        assert!(session.capture(&home, &watch, &[]));
    }
    assert_stored(&home, &sessions.each_ref().map(|session| &session.transcript));
    println!("full disk: {rounds} rounds, {refused} captures refused");
    watch.print("full disk");
    server.kill();
}

/// A disk that stays full gets no fuller by trying.
#[test]
fn full_disk_leaves_no_partial_file() {
    let home = TestHome::new();
    let Some(disk) = Mounted::new(&home.hob_home(), "4m") else { return };
    let watch = Watch::new();
    let mut session = Session::new(&home, "full");
    assert!(session.capture(&home, &watch, &[]));
    session.transcript.say(USER, &"a long prompt with many words ".repeat(4000));
    disk.fill_but(30_000);
    for _ in 0..5 {
        let done = watch.capture(&home, &["--no-spawn"], session.transcript.path());
        assert_eq!(done.status(), "failed", "{done:?}");
        watch.turn(&home, &hook_input(&session.transcript, "Stop", None));
    }
    assert_eq!(deferred(&home).iter().filter(|name| name.ends_with(".jsonl")).count(), 0);
    assert!(temporary(&home).is_empty(), "temporary files are left: {:?}", temporary(&home));
}

/// A file may also fail to fit because of a limit on the size of files.
#[test]
fn file_size_limit_loses_no_turn() {
    let (home, watch) = (TestHome::new(), Watch::new());
    let mut session = Session::new(&home, "limited");
    assert!(session.capture(&home, &watch, &[]));
    session.transcript.say(USER, &"a long prompt with many words ".repeat(4000));
    for flags in [&["--no-spawn"][..], &[]] {
        let hook = capture_command(&home, flags, session.transcript.path());
        let mut limited = Command::new("prlimit");
        limited.arg("--fsize=20000").arg(hook.get_program()).args(hook.get_args()).env_clear();
        for (name, value) in hook.get_envs() {
            limited.env(name, value.unwrap_or_default());
        }
        let done = finish(limited, "");
        assert_eq!(done.code, Some(0), "{done:?}");
        assert_eq!(done.status(), "failed", "{done:?}");
        assert_whole(&home);
    }
    assert!(temporary(&home).is_empty(), "temporary files are left: {:?}", temporary(&home));
    session.check(&home);
    assert!(session.capture(&home, &watch, &[]));
    assert_stored(&home, &[&session.transcript]);
}

#[test]
fn unwritable_home_fails_hooks_quietly() {
    let home = TestHome::new();
    let watch = Watch::new();
    // A home below a file cannot be created, not even by root.
    let file = home.user_home().join("file");
    fs::write(&file, "").unwrap();
    let mut session = Session::new(&home, "nowhere");
    session.transcript.talk(1);
    for flags in [&["--no-spawn"][..], &[]] {
        let mut command = capture_command(&home, flags, session.transcript.path());
        command.env("HOB_HOME", file.join("hob"));
        assert_eq!(watch.run(command, "").status(), "failed");
    }
    for command in ["capture-turn", "session-start"] {
        let mut command = home.command(&[command]);
        command.env("HOB_HOME", file.join("hob"));
        let input = hook_input(&session.transcript, "Stop", Some("Done.")).to_string();
        assert_eq!(watch.run(command, &input).stdout, "");
    }
    let Some(disk) = Mounted::new(&home.hob_home(), "8m") else { return };
    assert!(session.capture(&home, &watch, &[]));
    disk.remount("ro");
    session.capture(&home, &watch, &["--no-spawn"]);
    session.capture(&home, &watch, &[]);
    session.follow(&home, &watch);
    watch.session_start(&home, &session.transcript.cwd);
    let refused = home.run(&["serve", "--no-http"]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    disk.remount("rw");
    session.check(&home);
    let server = serve(&home);
    session.follow(&home, &watch);
    assert!(session.capture(&home, &watch, &[]));
    wait_drained(&home);
    assert_stored(&home, &[&session.transcript]);
    server.kill();
    assert_no_process(&home);
    watch.print("read-only");
}
