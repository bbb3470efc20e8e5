//! A store that another process is writing to: hooks wait no longer than a second for its lock.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::process::Stdio;
use std::time::{Duration, Instant};

use hob_testkit::leak::files_below;
use hob_testkit::{TestHome, wait_until};
use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::hooks::{
    Watch, assert_no_process, assert_whole, hook_input, serve, set_aside, wait_drained,
};
use crate::transcript::{ASSISTANT, Shape, Transcript, USER, assert_stored};

/// Holds the store's lock for writing, as a process in the middle of a transaction does. Somebody
/// has to have the store open.
struct Lock {
    _file: File,
}

impl Lock {
    fn take(home: &TestHome) -> Lock {
        let path = home.hob_home().join("memory.db-shm");
        let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
        // SQLite's file format: in the index of a write-ahead log byte 120 is the writer's.
        let lock = nix::libc::flock {
            l_type: nix::libc::F_WRLCK as _,
            l_whence: nix::libc::SEEK_SET as _,
            l_start: 120,
            l_len: 1,
            l_pid: 0,
        };
        let take = || fcntl(&file, FcntlArg::F_SETLK(&lock)).ok();
        wait_until("the store's lock is free", take);
        assert!(file.as_raw_fd() >= 0);
        Lock { _file: file }
    }
}

#[test]
fn store_locked_under_the_server_loses_no_turn() {
    let (home, watch) = (TestHome::new(), Watch::new());
    let [mut storing, mut deferring, mut following] = ["storing", "deferring", "following"]
        .map(|name| Transcript::new(&home, name, Shape::Claude));
    let server = serve(&home);
    storing.talk(1);
    assert_eq!(watch.capture(&home, &[], storing.path()).status(), "captured");
    let lock = Lock::take(&home);
    storing.talk(2);
    assert_eq!(watch.capture(&home, &[], storing.path()).status(), "deferred");
    deferring.talk(2);
    assert_eq!(watch.capture(&home, &["--no-spawn"], deferring.path()).status(), "deferred");
    following.say(USER, "What now?");
    following.say(ASSISTANT, "Done.");
    let done = watch.turn(&home, &hook_input(&following, "Stop", Some("Done.")));
    assert_eq!(done.stderr, "");
    watch.session_start(&home, &storing.cwd);
    assert_whole(&home);
    drop(lock);
    wait_drained(&home);
    assert_stored(&home, &[&storing, &deferring, &following]);
    assert_eq!(set_aside(&home), [""; 0]);
    assert!(server.stop().success());
    watch.print("locked under the server");
}

/// An import that is stopped in the middle of its transaction.
#[test]
fn store_locked_by_a_stopped_import_defers_captures() {
    let (home, watch) = (TestHome::new(), Watch::new());
    let mut storing = Transcript::new(&home, "storing", Shape::Claude);
    let mut past = Transcript::new(&home, "past", Shape::Claude);
    let lines: String = (0..4000)
        .map(|number| {
            let text = format!("an old prompt, number {number}, of a long session");
            past.said.push((USER.to_owned(), text.clone()));
            past.record(USER, &text)
        })
        .collect();
    past.append(lines.as_bytes());
    storing.talk(1);
    assert_eq!(watch.capture(&home, &[], storing.path()).status(), "captured");
    let mut import = home.command(&["import", past.path(), "--json"]);
    let mut import = import.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let pid = Pid::from_raw(import.id() as i32);
    let mut deferred = false;
    while !deferred && import.try_wait().unwrap().is_none() {
        kill(pid, Signal::SIGSTOP).unwrap();
        storing.talk(1);
        // Between two transactions the lock is free, and the turns are stored.
        deferred = watch.capture(&home, &[], storing.path()).status() == "deferred";
        if deferred {
            storing.talk(1);
            let done = watch.capture(&home, &[], storing.path());
            assert_eq!(done.status(), "deferred", "again");
            watch.session_start(&home, &storing.cwd);
        }
        kill(pid, Signal::SIGCONT).unwrap();
        if !deferred {
            std::thread::sleep(Duration::from_millis(3));
        }
    }
    assert!(deferred, "the import was never met in a transaction");
    let output = import.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let server = serve(&home);
    wait_drained(&home);
    assert_stored(&home, &[&storing, &past]);
    assert!(server.stop().success());
    assert_no_process(&home);
    watch.print("stopped import");
}

/// A good file is not set aside because the store was busy for long.
#[test]
fn long_lock_sets_no_deferral_file_aside() {
    let (home, watch) = (TestHome::new(), Watch::new());
    let mut deferring = Transcript::new(&home, "deferring", Shape::Claude);
    let server = serve(&home);
    let lock = Lock::take(&home);
    deferring.talk(2);
    assert_eq!(watch.capture(&home, &["--no-spawn"], deferring.path()).status(), "deferred");
    // Longer than the server retries a bad file.
    let since = Instant::now();
    let attempts = || {
        let logs = files_below(&home.hob_home().join("logs"));
        let text: String =
            logs.iter().filter_map(|log| std::fs::read_to_string(log).ok()).collect();
        text.lines().filter(|line| line.contains("WARN") && line.contains("deferring-")).count()
    };
    while attempts() < 4 && since.elapsed() < Duration::from_secs(40) {
        std::thread::sleep(Duration::from_millis(20));
    }
    println!("long lock: {} attempts in {:?}", attempts(), since.elapsed());
    assert!(attempts() > 0, "the log shows no attempt to drain the file");
    drop(lock);
    wait_drained(&home);
    assert_eq!(set_aside(&home), [""; 0], "a good file was set aside");
    assert_stored(&home, &[&deferring]);
    assert!(server.stop().success());
}
