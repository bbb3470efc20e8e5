//! Faults of backups and disks: each ends in a sentence that names the file and the next step, and nothing is lost.

use std::fs;
use std::path::Path;

use hob_testkit::{TestHome, output_in_time, wait_until};
use serde_json::Value;

use crate::memory_setup::{exported_texts, json_of, said, transcript};
use crate::recovery_setup::*;

/// A backup of a filled home.
fn backup(home: &TestHome) -> std::path::PathBuf {
    let file = home.folder().join("hob.backup");
    let output = home.run(&["backup", file.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    file
}

#[track_caller]
fn check_damaged_backup(damage: impl FnOnce(&Path)) {
    let home = FILLED.copy();
    let file = backup(&home);
    damage(&file);
    let before = exported_texts(&home).len();
    fails_saying(
        &home.run(&["restore", file.to_str().unwrap(), "--yes"]),
        &["hob.backup", "another backup"],
    );
    assert_eq!(exported_texts(&home).len(), before);
    assert!(home.serve().stop().success());
}

#[test]
fn cut_backup() {
    check_damaged_backup(|file| {
        let bytes = fs::read(file).unwrap();
        fs::write(file, &bytes[..bytes.len() / 2]).unwrap();
    });
}

#[test]
fn flipped_backup() {
    check_damaged_backup(|file| flip(file, fs::metadata(file).unwrap().len() as usize / 2));
}

#[test]
fn empty_backup() {
    check_damaged_backup(|file| fs::write(file, "").unwrap());
}

#[test]
fn text_in_place_of_a_backup() {
    check_damaged_backup(|file| fs::write(file, "eggs, milk\n").unwrap());
}

#[test]
fn backup_of_a_damaged_home_is_refused() {
    let home = FILLED.copy();
    let path = home.hob_home().join("memory.db");
    flip(&path, fs::metadata(&path).unwrap().len() as usize / 2);
    let file = home.folder().join("hob.backup");
    let output = home.run(&["backup", file.to_str().unwrap()]);
    fails_saying(&output, &["memory.db", "is damaged", "hob store salvage"]);
    assert!(!file.exists());
}

#[test]
fn interrupted_restore() {
    if !can_mount() {
        return;
    }
    let home = FILLED.copy();
    let file = backup(&home);
    // A file that something is mounted on cannot be moved, so the restore stops between the two databases.
    let script = "mount --bind \"$HOB_HOME/memory.db\" \"$HOB_HOME/memory.db\"";
    let arguments = ["restore", file.to_str().unwrap(), "--yes"];
    let output = output_in_time(mounted(&home, script, &arguments));
    fails_saying(&output, &["memory.db", "hob restore", "again"]);
    does_not_serve(&home, &["was interrupted", "hob restore", "again"]);
    assert!(home.run(&arguments).status.success());
    assert!(home.serve().stop().success());
    assert!(exported_texts(&home).len() >= TURNS);
}

#[test]
fn read_only_home_can_be_read() {
    if !can_mount() {
        return;
    }
    let home = FILLED.copy();
    let expect = home.run(&["export"]).stdout;
    let export = output_in_time(mounted(&home, READ_ONLY, &["export"]));
    assert!(export.status.success() && export.stdout == expect, "{}", words(&export));
    let recall = ["recall", "--json", "--project", "*", "turn number 7"];
    let recall = json_of(&output_in_time(mounted(&home, READ_ONLY, &recall)));
    assert!(!recall["hits"].as_array().unwrap().is_empty(), "{recall}");
    let doctor = output_in_time(mounted(&home, READ_ONLY, &["doctor", "--deep"]));
    let said = words(&doctor);
    assert!(doctor.status.success() && said.contains("is not writable"), "{said}");
}

#[test]
fn read_only_home_of_a_killed_server_can_be_read() {
    if !can_mount() {
        return;
    }
    let home = FILLED.copy();
    with_logs(&home);
    let export = output_in_time(mounted(&home, READ_ONLY, &["export"]));
    assert!(
        export.status.success() && words(&export).contains("the last turn"),
        "{}",
        words(&export)
    );
    let doctor = output_in_time(mounted(&home, READ_ONLY, &["doctor"]));
    assert!(doctor.status.success(), "{}", words(&doctor));
}

#[test]
fn read_only_home_refuses_changes() {
    if !can_mount() {
        return;
    }
    let home = FILLED.copy();
    let root = home.hob_home().display().to_string();
    for arguments in [
        &["serve", "--no-http"][..],
        &["app", "create", "b"],
        &["app", "list"],
        &["forget", "--yes", "--session-id", "s"],
    ] {
        let output = output_in_time(mounted(&home, READ_ONLY, arguments));
        fails_saying(&output, &[&root, "is not writable"]);
    }
    assert!(exported_texts(&home).len() >= TURNS);
}

/// The script that puts the home on a disk with this much space left, in bytes; `FULL` names a folder on it.
pub fn full_disk(home: &TestHome, left: u64) -> String {
    let hob = home.hob_home().display().to_string();
    let used = "$(du -sb \"$HOB_HOME.copy\" | cut -f1)";
    format!(
        "cp -a {hob} {hob}.copy; mount -t tmpfs -o size=$(( ({used} / 4096 + 200) * 4096 + {left} )) none {hob}; \
         cp -a {hob}.copy/. {hob}/; chmod 700 {hob}"
    )
}

#[test]
fn full_disk_during_a_capture() {
    if !can_mount() {
        return;
    }
    let home = FILLED.copy();
    let lines: Vec<Value> =
        (0..300).map(|number| said("u", number, "user", &"many words ".repeat(400))).collect();
    let path = transcript(&home, "u.jsonl", &lines);
    // What was there stays and can be read on the full disk, and the hook says that it did not store everything.
    let script = format!(
        "{}; \"$1\" capture-transcript {} > $HOME/capture.json 2>&1 || true; \"$1\" export > $HOME/export.jsonl",
        full_disk(&home, 100_000),
        path.display()
    );
    let output = output_in_time(mounted(&home, &script, &["doctor", "--deep"]));
    let said = fs::read_to_string(home.user_home().join("capture.json")).unwrap();
    let said: Value = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{said}"));
    assert_eq!(said["status"], "failed", "{said}");
    let error = said["error"].as_str().unwrap();
    assert!(error.contains("deferred-captures") && error.contains("free up space"), "{said}");
    let exported = fs::read_to_string(home.user_home().join("export.jsonl")).unwrap();
    assert!(exported.lines().count() >= TURNS, "{}", words(&output));
    assert!(output.status.success(), "{}", words(&output));
}

#[test]
fn full_disk_during_a_backup() {
    if !can_mount() {
        return;
    }
    let home = FILLED.copy();
    let folder = home.folder().join("small");
    fs::create_dir(&folder).unwrap();
    let script = format!("mount -t tmpfs -o size=64k none {}", folder.display());
    let file = folder.join("hob.backup");
    let output = output_in_time(mounted(&home, &script, &["backup", file.to_str().unwrap()]));
    fails_saying(&output, &["hob.backup", "No space left", "free up disk space"]);
    assert!(!file.exists());
}

#[test]
fn full_disk_during_a_restore() {
    if !can_mount() {
        return;
    }
    let home = FILLED.copy();
    let file = backup(&home);
    let script = full_disk(&home, 0);
    let restore = ["restore", file.to_str().unwrap(), "--yes"];
    let output = output_in_time(mounted(&home, &script, &restore));
    fails_saying(&output, &["hob.backup", "No space left"]);
    // Nothing was replaced.
    let script = format!("{script}; ! \"$1\" restore {} --yes", file.display());
    let export = output_in_time(mounted(&home, &script, &["export"]));
    assert!(String::from_utf8_lossy(&export.stdout).lines().count() >= TURNS, "{}", words(&export));
}

#[test]
fn full_disk_during_a_salvage() {
    if !can_mount() {
        return;
    }
    let home = FILLED.copy();
    let path = home.hob_home().join("memory.db");
    flip(&path, fs::metadata(&path).unwrap().len() as usize / 2);
    let arguments = ["store", "salvage", "--yes"];
    let output = output_in_time(mounted(&home, &full_disk(&home, 0), &arguments));
    fails_saying(&output, &["memory.db", "nothing was salvaged", "full"]);
    assert!(home.run(&arguments).status.success());
}

/// Returns the status and text of `/readyz` of a server in a namespace, which writes its address to a file.
#[test]
fn full_disk_is_reported_by_readyz() {
    if !can_mount() {
        return;
    }
    let home = FILLED.copy();
    let script = full_disk(&home, 2_000_000);
    let log = home.folder().join("address");
    let mut command = mounted(&home, &script, &["serve", "--listen", "127.0.0.1:0"]);
    let mut child = command.stdout(fs::File::create(&log).unwrap()).spawn().unwrap();
    let address = wait_until("the server listens", || {
        let text = fs::read_to_string(&log).ok()?;
        text.trim_end().strip_prefix("hob listening on ").map(str::to_owned)
    });
    let ready = || hob_testkit::http::request("GET", &format!("{address}/readyz"), None, &[], &[]);
    assert_eq!(ready().unwrap().status, 200);
    // The root of the process is the server's mount namespace.
    let filler = format!("/proc/{}/root{}/filler", child.id(), home.hob_home().display());
    let _ = std::io::copy(&mut std::io::repeat(1), &mut fs::File::create(&filler).unwrap());
    let refused = wait_until("it is not ready", || {
        let answer = ready().unwrap();
        (answer.status == 503).then_some(answer)
    });
    assert!(refused.text.contains("the disk is full"), "{}", refused.text);
    fs::remove_file(&filler).unwrap();
    wait_until("it is ready again", || (ready().unwrap().status == 200).then_some(()));
    let pid = nix::unistd::Pid::from_raw(child.id() as i32);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn scheduled_backups_are_kept_and_restorable() {
    let home = FILLED.copy();
    let folder = home.folder().join("backups");
    home.configure(&format!(
        "[backup]\nfolder = \"{}\"\nevery_secs = 1\nkeep = 2\n",
        folder.display()
    ));
    let files = || {
        let mut files: Vec<_> = fs::read_dir(&folder)
            .into_iter()
            .flatten()
            .map(|entry| entry.unwrap().path())
            .collect();
        files.retain(|path| path.extension().is_some_and(|ending| ending == "backup"));
        files.sort();
        files
    };
    let server = home.serve();
    let first = wait_until("a backup is there", || files().first().cloned());
    wait_until("it is replaced by later ones", || (!first.exists()).then_some(()));
    assert!(server.stop().success());
    assert!(files().len() <= 3, "{:?}", files());
    let said = words(&home.run(&["doctor"]));
    assert!(said.contains("backup"), "{said}");
    let other = TestHome::new();
    let newest = files().pop().unwrap();
    assert!(other.run(&["restore", newest.to_str().unwrap()]).status.success());
    assert_eq!(exported_texts(&other), exported_texts(&home));
}

#[test]
fn failed_scheduled_backup_is_reported() {
    let home = FILLED.copy();
    let folder = home.folder().join("backups");
    fs::write(&folder, "not a folder").unwrap();
    home.configure(&format!("[backup]\nfolder = \"{}\"\nevery_secs = 1\n", folder.display()));
    let server = home.serve();
    wait_until("the failure is noted", || {
        home.hob_home().join("backup.json").exists().then_some(())
    });
    assert!(server.stop().success());
    fails_saying(&home.run(&["doctor"]), &["backups", "failed", "backup.folder"]);
}
