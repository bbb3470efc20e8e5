//! The first use of SQLCipher in a process, by many threads at once.
#![allow(clippy::disallowed_methods, reason = "a test starts itself as a process of its own")]
#![allow(clippy::disallowed_types, reason = "this crate builds the database")]

use std::process::Command;
use std::sync::Barrier;

use hob_sqlcipher as _;
use rusqlite::Connection;

const PROCESSES: usize = 60;
const THREADS: usize = 16;
const KEY: &str = "x'000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f'";

/// Each process has one first use, so the test starts many. Without the change in `build.rs`, SQLCipher refuses the key of
/// a thread that comes while another thread starts it.
#[test]
fn threads_that_open_the_first_files_at_once_all_succeed() {
    let program = std::env::current_exe().unwrap();
    for number in 0..PROCESSES {
        let output = Command::new(&program)
            .args(["--ignored", "--exact", "open_files_at_once"])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("1 passed"), "process {number}: {text}");
    }
}

#[test]
#[ignore = "a part of the test above"]
fn open_files_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let barrier = Barrier::new(THREADS);
    std::thread::scope(|scope| {
        for number in 0..THREADS {
            let path = folder.path().join(number.to_string());
            let barrier = &barrier;
            scope.spawn(move || {
                barrier.wait();
                let connection = Connection::open(path).unwrap();
                connection.pragma_update(None, "key", KEY).unwrap();
                connection.execute_batch("CREATE TABLE notes (text TEXT)").unwrap();
            });
        }
    });
}
