use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use hob_transcript::AgentClient;
use tempfile::TempDir;

use super::super::error::HookError;
use super::super::file::{SettingsFile, WriteOutcome};
use super::super::{ClientFolders, HookState, install, status, uninstall};
use super::{HOB, installed};

struct Home {
    _folder: TempDir,
    folders: ClientFolders,
}

impl Home {
    fn new() -> Self {
        let folder = TempDir::new().expect("a folder");
        let root = folder.path().canonicalize().expect("a path");
        let folders = ClientFolders {
            claude: root.join("claude"),
            claude_state: root.join(".claude.json"),
            codex: root.join("codex"),
            gemini: root.join("gemini"),
            opencode: root.join("opencode"),
        };
        Self { _folder: folder, folders }
    }

    fn with(text: &str) -> Self {
        let home = Self::new();
        fs::create_dir(&home.folders.claude).expect("a folder");
        fs::write(home.settings(), text).expect("a file");
        home
    }

    fn settings(&self) -> PathBuf {
        self.folders.settings_file(AgentClient::Claude)
    }

    fn backup(&self) -> PathBuf {
        self.folders.claude.join("settings.json.hob-backup")
    }

    fn install(&self) -> Result<super::super::Report, HookError> {
        install(AgentClient::Claude, &self.folders, Path::new(HOB))
    }

    fn uninstall(&self) -> Result<super::super::Report, HookError> {
        uninstall(AgentClient::Claude, &self.folders)
    }

    fn state(&self) -> HookState {
        status(AgentClient::Claude, &self.folders, Path::new(HOB)).expect("a status").state
    }

    fn file_names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.folders.claude).expect("a folder");
        let mut names: Vec<String> = entries
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).expect("a file")
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("a file").permissions().mode() & 0o777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("a mode");
}

#[test]
fn missing_file_is_created_and_removed() {
    let home = Home::new();
    assert_eq!(home.state(), HookState::Absent);
    assert!(!home.uninstall().expect("uninstalls").changed);
    assert!(!home.folders.claude.exists());
    let report = home.install().expect("installs");
    assert_eq!((report.state, report.changed, report.backup), (HookState::Installed, true, None));
    assert_eq!(report.file, home.settings());
    assert_eq!((mode(&home.folders.claude), mode(&home.settings())), (0o700, 0o600));
    assert!(!home.install().expect("installs").changed);
    assert_eq!(home.file_names(), ["settings.json"]);
    let report = home.uninstall().expect("uninstalls");
    assert_eq!((report.state, report.changed, report.backup), (HookState::Absent, true, None));
    assert_eq!(home.file_names(), [""; 0]);
}

#[test]
fn existing_file_is_restored_with_its_mode() {
    for text in ["", "\n", "{}\n", "{\r\n  \"a\": 1\r\n}", "{\"hooks\": {\"Stop\": [ ]}}"] {
        let home = Home::with(text);
        set_mode(&home.settings(), 0o640);
        let report = home.install().expect("installs");
        assert_eq!((report.state, report.backup), (HookState::Installed, Some(home.backup())));
        assert_eq!((read(&home.settings()), read(&home.backup())), (installed(text), text.into()));
        assert_eq!((mode(&home.settings()), mode(&home.backup())), (0o640, 0o600));
        assert_eq!(home.uninstall().expect("uninstalls").backup, None);
        assert_eq!((read(&home.settings()), mode(&home.settings())), (text.into(), 0o640));
        assert_eq!(home.file_names(), ["settings.json"]);
    }
}

#[test]
fn backup_follows_changes_of_other_programs() {
    let home = Home::with("{\"a\": 1}");
    home.install().expect("installs");
    let elsewhere = Path::new("/elsewhere/hob");
    install(AgentClient::Claude, &home.folders, elsewhere).expect("installs");
    assert_eq!(read(&home.backup()), "{\"a\": 1}", "nothing else changed");
    assert_eq!(home.state(), HookState::Outdated { programs: vec!["/elsewhere/hob".to_owned()] });
    let changed = read(&home.settings()).replace("1,", "2,");
    fs::write(home.settings(), &changed).expect("a file");
    home.install().expect("installs");
    assert_eq!(read(&home.backup()), changed, "the older backup would lose a setting");
    let report = home.uninstall().expect("uninstalls");
    assert_eq!(read(&home.settings()), "{\"a\": 2}");
    assert_eq!(report.backup, Some(home.backup()));
    home.install().expect("installs");
    assert_eq!(read(&home.backup()), "{\"a\": 2}");
}

#[test]
fn broken_settings_are_not_changed() {
    let not_text: &[u8] = b"{\"a\": \"\xff\"}";
    for bytes in [b"{ // no\n}".as_slice(), b"[]", b"{\"hooks\": 1}", not_text] {
        let home = Home::with("");
        fs::write(home.settings(), bytes).expect("a file");
        for result in [home.install(), home.uninstall()] {
            assert!(matches!(result, Err(HookError::Broken { .. })), "{result:?}");
        }
        assert!(matches!(home.state(), HookState::Broken(_)));
        assert_eq!(fs::read(home.settings()).expect("a file"), bytes);
        assert_eq!(home.file_names(), ["settings.json"]);
    }
    let home = Home::new();
    fs::create_dir_all(home.settings()).expect("a folder");
    assert!(matches!(home.install(), Err(HookError::Broken { .. })));
}

#[test]
fn read_only_file_is_not_changed() {
    let home = Home::with("{}");
    set_mode(&home.settings(), 0o444);
    assert!(matches!(home.install(), Err(HookError::ReadOnly { .. })));
    assert!(!home.uninstall().expect("nothing to do").changed);
    assert_eq!((read(&home.settings()), home.file_names().len()), ("{}".to_owned(), 1));
}

#[test]
fn symbolic_link_stays_a_link() {
    let home = Home::with("{\"a\": 1}");
    let target = home.folders.claude.join("real.json");
    fs::rename(home.settings(), &target).expect("renames");
    symlink("real.json", home.settings()).expect("links");
    home.install().expect("installs");
    assert!(home.settings().is_symlink());
    assert_eq!(read(&target), installed("{\"a\": 1}"));
    assert_eq!(home.file_names(), ["real.json", "settings.json", "settings.json.hob-backup"]);
    home.uninstall().expect("uninstalls");
    assert_eq!((read(&target).as_str(), home.settings().is_symlink()), ("{\"a\": 1}", true));

    fs::remove_file(&target).expect("removes");
    home.install().expect("installs through a link that leads nowhere");
    assert!(home.settings().is_symlink() && target.exists());
    home.uninstall().expect("uninstalls");
    assert!(home.settings().is_symlink() && !target.exists());

    fs::remove_file(home.settings()).expect("removes");
    symlink("settings.json", home.settings()).expect("links");
    assert!(home.install().is_err(), "a link to itself");
}

#[test]
fn concurrent_change_is_detected() {
    let home = Home::with("{}");
    let loaded = SettingsFile::read(&home.settings()).expect("reads");
    fs::write(home.settings(), "{\"new\": 1}").expect("a file");
    for text in [Some("{\"ours\": 1}"), None] {
        assert_eq!(loaded.replace(text).expect("no error"), WriteOutcome::ChangedMeanwhile);
    }
    assert_eq!(read(&home.settings()), "{\"new\": 1}");
    assert_eq!(home.file_names(), ["settings.json"]);
    fs::remove_file(home.settings()).expect("removes");
    let loaded = SettingsFile::read(&home.settings()).expect("reads");
    fs::write(home.settings(), "{}").expect("a file");
    assert_eq!(loaded.replace(Some("{}")).expect("no error"), WriteOutcome::ChangedMeanwhile);
}

#[test]
fn partial_installation_is_reported() {
    let home = Home::with(&format!(
        r#"{{"hooks": {{"Stop": [{{"hooks": [{{"command": "{HOB} capture-turn"}}]}}]}}}}"#
    ));
    let missing = ["SessionStart", "UserPromptSubmit", "SessionEnd"].map(str::to_owned).to_vec();
    assert_eq!(home.state(), HookState::Partial { missing });
    assert_eq!(home.install().expect("installs").state, HookState::Installed);
}

#[test]
fn unrecognisable_program_is_refused() {
    let home = Home::new();
    for program in ["hob", "/a/hob (deleted)", "/a/hobb", "/"] {
        let result = install(AgentClient::Claude, &home.folders, Path::new(program));
        assert!(matches!(result, Err(HookError::Program { .. })), "{program}");
    }
}

#[test]
fn notes_name_settings_that_disable_hooks() {
    let home = Home::with("{\"disableAllHooks\": true}");
    let notes = home.install().expect("installs").notes;
    assert!(notes[0].contains("disableAllHooks"), "{notes:?}");
    assert_eq!(home.uninstall().expect("uninstalls").notes, [""; 0]);

    let codex = &home.folders.codex;
    let report = install(AgentClient::Codex, &home.folders, Path::new(HOB)).expect("installs");
    assert_eq!(report.file, codex.join("hooks.json"));
    assert!(report.notes.len() == 1 && report.notes[0].contains("/hooks"), "{:?}", report.notes);
    let note_count = |config: &str| {
        fs::write(codex.join("config.toml"), config).expect("a file");
        status(AgentClient::Codex, &home.folders, Path::new(HOB)).expect("a status").notes.len()
    };
    let trusted: String = ["session_start", "user_prompt_submit", "stop", "session_end"]
        .map(|event| {
            let key = format!("{}:{event}:0:0", codex.join("hooks.json").display());
            format!("[hooks.state.\"{key}\"]\ntrusted_hash = \"sha256:0\"\n")
        })
        .concat();
    assert_eq!(note_count(&trusted), 0);
    assert_eq!(note_count(&format!("{trusted}[features]\nhooks = false\n")), 1);
    assert_eq!(note_count(&trusted.replacen("trusted_hash", "enabled = false #", 1)), 1);
    assert_eq!(note_count(&format!("{trusted}[[hooks.Stop]]\nhooks = []\n")), 1);
    assert_eq!(note_count("not = [toml"), 1);
}
