//! The attacks again as an ordinary user. Root may do more than its agents should, and an ordinary user has a sandbox
//! only by the kernel's leave, so both are tried. Without root there is only one user, for whom the tests run anyway.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use hob_testkit::program;

/// The user and the group `nobody`.
const NOBODY: u32 = 65534;

/// The tests that depend on what the user may do: files, sockets, terminals, processes, limits.
const TESTS: &[&str] = &[
    "attacks::agent_cannot_change_the_folder_of_uploads",
    "attacks::agent_cannot_change_the_mode_of_the_owners_files",
    "attacks::agent_cannot_change_the_owners_configuration_of_agents",
    "attacks::agent_cannot_do_the_owners_acts",
    "attacks::agent_cannot_open_other_terminals",
    "attacks::agent_cannot_use_the_owners_sockets",
    "attacks::agent_reads_no_credentials_unless_its_entry_names_them",
    "attacks::agent_sees_no_processes_and_no_temporary_files_of_others",
    "attacks::calls_from_a_folder_with_a_pipe_as_git_do_not_block_the_owner",
    "attacks::connection_of_an_ended_process_is_not_the_owners",
    "attacks::link_in_place_of_a_writable_path_opens_nothing",
    "attacks::login_reaches_an_agent_as_a_copy_for_its_app_only",
    "attacks::process_with_an_odd_name_ends_with_its_session",
    "attacks::prompts_of_a_run_are_on_no_command_line",
    "attacks::socket_with_an_odd_name_changes_nothing_for_others",
    "attacks_folders::server_and_agents_leave_no_core_dumps",
    "attacks_folders::transcripts_of_runs_are_left_nowhere",
    "attacks_folders::working_folder_that_is_exchanged_for_a_link_opens_nothing",
    "attacks_greedy::session_says_which_layers_of_the_sandbox_are_active",
    "attacks_memory::forged_transcripts_of_an_app_do_not_become_the_owners_rules",
    "attacks_memory::notes_and_turns_of_an_apps_agent_stay_out_of_the_owners_memory",
    "random_programs::random_programs_stay_inside",
];

/// Returns whether every user may pass through the folders of a path.
fn is_open_to_all(path: &Path) -> bool {
    let passes = |folder: &Path| {
        fs::metadata(folder).is_ok_and(|metadata| metadata.permissions().mode() & 0o001 != 0)
    };
    path.canonicalize().is_ok_and(|path| path.ancestors().all(passes))
}

/// Returns programs that every user may run: these, or copies in `folder`.
fn open_to_all(programs: &[PathBuf], folder: &Path) -> Vec<PathBuf> {
    if programs.iter().all(|program| is_open_to_all(program)) {
        return programs.to_vec();
    }
    let copy = |program: &PathBuf| {
        let copy = folder.join(program.file_name().unwrap());
        fs::copy(program, &copy).unwrap();
        fs::set_permissions(&copy, Permissions::from_mode(0o755)).unwrap();
        copy
    };
    programs.iter().map(copy).collect()
}

#[test]
fn attacks_fail_as_an_ordinary_user() {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: this is an ordinary user already");
        return;
    }
    // Not in `/tmp`, where agents do not see the programs.
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let temporary = folder.path().join("tmp");
    fs::create_dir(&temporary).unwrap();
    chown(&temporary, Some(NOBODY), Some(NOBODY)).unwrap();
    let programs =
        [std::env::current_exe().unwrap(), program("hob"), program("hob-scripted-agent")];
    let programs = open_to_all(&programs, folder.path());
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::split_paths(&path).filter(|folder| is_open_to_all(folder));
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]).arg(&programs[0]);
    command.args(["--exact", "--nocapture", "--test-threads=2"]).args(TESTS).env_clear();
    command.env("PATH", std::env::join_paths(path).unwrap());
    command.env("HOME", &temporary).env("TMPDIR", &temporary);
    if std::env::var_os("HOB_BIN").is_some() {
        command.env("HOB_BIN", &programs[1]);
    }
    let output = command.current_dir("/").output().unwrap();
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (said(&output.stdout), said(&output.stderr));
    let count = format!("{} passed", TESTS.len());
    assert!(output.status.success() && out.contains(&count), "{out}\n{err}");
    for line in out.lines().filter(|line| line.contains("skipped: ")) {
        println!("as an ordinary user: {line}");
    }
}
