//! The cost of a Claude Code in a terminal.
//!
//! The program names its cost only to the command of its status line, a short while after each message. So Hob gives it a
//! status line whose command, `hob claude-cost`, writes the number into a file of that process. A status line of the user
//! runs after it, as it would without Hob. In a sandbox the agent can write the file as well, so what it holds is bounded and
//! only ever grows.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hob_domain::json_size::has_too_many_values;
use hob_files::{Folder, open_linked_regular, read_regular};
use serde_json::{Value, json};

use super::config::ConfigFolder;
use crate::git_settings::quoted;

/// How long after the end of a turn its cost may grow. The program waits 300 milliseconds before it runs the command.
pub(super) const LATE_COST_WINDOW: Duration = Duration::from_secs(5);
/// How often the file is read in that time.
const LATE_COST_INTERVAL: Duration = Duration::from_millis(200);
/// How long reading the file may take before the process is ended.
const LAST_GROWTH_TIMEOUT: Duration = Duration::from_millis(500);
/// The longest text of a cost, in bytes.
const MAX_COST_BYTES: u64 = 64;
/// The highest cost of a process that counts.
const MAX_COST_USD: f64 = 1e9;
/// The largest file of settings in which a status line of the user is found.
const MAX_SETTINGS_BYTES: u64 = 1 << 20;
/// The longest status line of the user, in bytes of JSON. It becomes part of an argument, of which Linux takes 128 KiB.
const MAX_STATUS_LINE_BYTES: usize = 16 << 10;
/// The files of a working folder that may have a status line. The first one wins.
const PROJECT_SETTINGS: [&str; 2] = [".claude/settings.local.json", ".claude/settings.json"];

/// What the first cost that a process names stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstCost {
    /// It is the process's own: a new conversation begins with zero.
    Own,
    /// It may contain what the conversation cost in an earlier process.
    MayContainEarlier,
}

/// Reads the cost of one process. Clones share what they have counted, so that nothing counts twice.
#[derive(Debug, Clone, Default)]
pub struct CostMeter {
    /// The file that the process writes; a process without one names no cost.
    file: Option<PathBuf>,
    state: Arc<Mutex<MeterState>>,
}

#[derive(Debug, Default)]
struct MeterState {
    /// The cost that was counted so far, in USD; `None` until the process has named what it begins with.
    counted: Option<f64>,
    /// When the last turn ended.
    turn_ended: Option<Instant>,
}

impl CostMeter {
    /// Creates the meter of a process that writes its cost into this file.
    pub fn new(file: Option<PathBuf>, first: FirstCost) -> CostMeter {
        let counted = match first {
            FirstCost::Own => Some(0.0),
            FirstCost::MayContainEarlier => None,
        };
        CostMeter { file, state: Arc::new(Mutex::new(MeterState { counted, turn_ended: None })) }
    }

    /// Returns by how much the cost has grown since it was last asked for.
    pub async fn growth(&self) -> f64 {
        let Some(file) = self.file.clone() else { return 0.0 };
        let reading = tokio::task::spawn_blocking(move || read_regular(&file, MAX_COST_BYTES));
        match reading.await {
            Ok(Ok(bytes)) => parse_cost(&bytes).map_or(0.0, |cost| self.count(cost)),
            // The file is gone, or is none that the command has written.
            _ => 0.0,
        }
    }

    /// Looks for what the process begins with, unless that is known. Before its first message that is what the conversation
    /// has cost so far.
    pub(super) async fn note_beginning(&self) {
        if self.state().counted.is_none() {
            self.growth().await;
        }
    }

    /// Notes that a turn has ended, whose cost may grow for a while.
    pub(super) fn note_turn_end(&self) {
        self.state().turn_ended = Some(Instant::now());
    }

    /// Waits for the part of the last turn's cost that the process names only after the turn. Pends forever if it names none
    /// in time.
    pub async fn late_growth(&self) -> f64 {
        while self.file.is_some() && self.may_grow() {
            tokio::time::sleep(LATE_COST_INTERVAL).await;
            let growth = self.growth().await;
            if growth > 0.0 {
                return growth;
            }
        }
        std::future::pending().await
    }

    /// Returns whether the last turn has ended so recently that its cost may grow.
    fn may_grow(&self) -> bool {
        self.state().turn_ended.is_some_and(|ended| ended.elapsed() < LATE_COST_WINDOW)
    }

    fn count(&self, cost: f64) -> f64 {
        let counted = &mut self.state().counted;
        let growth = counted.map_or(0.0, |before| (cost - before).max(0.0));
        *counted = Some(counted.map_or(cost, |before| before.max(cost)));
        growth
    }

    fn state(&self) -> MutexGuard<'_, MeterState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns by how much the cost of a process has grown that is about to be ended.
pub(super) async fn last_growth(meter: Option<CostMeter>) -> f64 {
    let Some(meter) = meter else { return 0.0 };
    tokio::time::timeout(LAST_GROWTH_TIMEOUT, meter.growth()).await.unwrap_or_default()
}

/// Parses a cost in USD. Whatever is no number of an amount is none.
fn parse_cost(bytes: &[u8]) -> Option<f64> {
    let cost: f64 = std::str::from_utf8(bytes).ok()?.trim().parse().ok()?;
    (cost >= 0.0).then(|| cost.min(MAX_COST_USD))
}

/// Returns the setting of a status line that writes the cost into a file. `theirs` is the status line that the user has.
pub(super) fn status_line(program: &Path, file: &Path, theirs: Option<Value>) -> Value {
    let command = format!("{} claude-cost {}", quoted(program), quoted(file));
    let Some(mut theirs) = theirs else { return json!({"type": "command", "command": command}) };
    // The line end closes a comment at the end of the user's command.
    let after = theirs["command"].as_str().unwrap_or_default().to_owned();
    theirs["command"] = json!(format!("{command} --forward | ( {after}\n)"));
    theirs
}

/// Returns the status line that the program would have by its own settings.
pub(super) fn users_status_line(config: &ConfigFolder, cwd: &Path) -> Option<Value> {
    let of_project = PROJECT_SETTINGS.map(|name| read_settings(config, cwd, name));
    let of_user = read_settings(config, config.path(), "settings.json");
    let lines = of_project.into_iter().chain([of_user]).flatten();
    let mut lines = lines.map(|mut settings| settings["statusLine"].take());
    lines.find(|line| {
        let has_command =
            line["command"].as_str().is_some_and(|command| !command.trim().is_empty());
        has_command && line.to_string().len() <= MAX_STATUS_LINE_BYTES
    })
}

/// Reads a file of settings below a folder. Links are followed only for an agent that the user trusts.
fn read_settings(config: &ConfigFolder, folder: &Path, name: &str) -> Option<Value> {
    let bytes = match config {
        ConfigFolder::Own(_) => {
            Folder::open(folder).ok()?.read(Path::new(name), MAX_SETTINGS_BYTES).ok()?
        }
        ConfigFolder::Users(_) => {
            let mut bytes = Vec::new();
            let file = open_linked_regular(&folder.join(name)).ok()?;
            file.take(MAX_SETTINGS_BYTES).read_to_end(&mut bytes).ok()?;
            bytes
        }
    };
    if has_too_many_values(&bytes) {
        return None;
    }
    serde_json::from_slice(&bytes).ok().filter(Value::is_object)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[tokio::test]
    async fn cost_grows_and_nothing_counts_twice() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("cost");
        let meter = CostMeter::new(Some(file.clone()), FirstCost::Own);
        let other = meter.clone();
        assert_eq!(meter.growth().await, 0.0, "there is no file yet");
        for (text, growth) in [
            ("", 0.0),
            ("0.25\n", 0.25),
            ("0.75", 0.5),
            ("0.5", 0.0),
            ("NaN", 0.0),
            ("-1", 0.0),
            ("1e", 0.0),
            ("1", 0.25),
        ] {
            fs::write(&file, text).unwrap();
            assert_eq!(meter.growth().await, growth, "{text:?}");
            assert_eq!(other.growth().await, 0.0, "{text:?}");
        }
        fs::write(&file, "inf").unwrap();
        assert_eq!(meter.growth().await, MAX_COST_USD - 1.0);
        fs::write(&file, format!("{}9", " ".repeat(99))).unwrap();
        assert_eq!(
            CostMeter::new(Some(file.clone()), FirstCost::Own).growth().await,
            0.0,
            "too long"
        );
        fs::remove_file(&file).unwrap();
        fs::write(folder.path().join("other"), "3").unwrap();
        std::os::unix::fs::symlink(folder.path().join("other"), &file).unwrap();
        assert_eq!(CostMeter::new(Some(file), FirstCost::Own).growth().await, 0.0, "a link");
    }

    /// A program that resumes a conversation may begin with what the conversation has cost before.
    #[tokio::test]
    async fn earlier_cost_does_not_count_again() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("cost");
        let meter = CostMeter::new(Some(file.clone()), FirstCost::MayContainEarlier);
        assert_eq!(meter.growth().await, 0.0);
        fs::write(&file, "2").unwrap();
        meter.note_beginning().await;
        fs::write(&file, "2.5").unwrap();
        meter.note_beginning().await;
        assert_eq!(meter.growth().await, 0.5);
        meter.note_turn_end();
        fs::write(&file, "3").unwrap();
        assert_eq!(meter.late_growth().await, 0.5);
        fs::write(&file, "4").unwrap();
        assert_eq!(last_growth(Some(meter.clone())).await, 1.0);
        assert_eq!(last_growth(Some(meter)).await, 0.0);
        assert_eq!(last_growth(None).await, 0.0);
    }

    #[test]
    fn status_line_of_the_user_runs_after_hobs() {
        let (program, file) = (Path::new("/opt/it's/hob"), Path::new("/h/cost"));
        let plain = status_line(program, file, None);
        let command = r"'/opt/it'\''s/hob' claude-cost '/h/cost'";
        assert_eq!(plain, json!({"type": "command", "command": command}));
        let folder = tempfile::tempdir().unwrap();
        let (home, cwd) = (folder.path().join("home"), folder.path().join("cwd"));
        fs::create_dir_all(cwd.join(".claude")).unwrap();
        fs::create_dir_all(&home).unwrap();
        let config = ConfigFolder::Users(home.clone());
        assert_eq!(users_status_line(&config, &cwd), None);
        let write = |path: PathBuf, command: &str| {
            let line = json!({"type": "command", "command": command, "padding": 2});
            fs::write(path, json!({"statusLine": line}).to_string()).unwrap();
        };
        write(home.join("settings.json"), "mine # comment");
        let theirs = users_status_line(&config, &cwd);
        let both = status_line(program, file, theirs);
        assert_eq!(both["padding"], 2);
        assert_eq!(both["command"], format!("{command} --forward | ( mine # comment\n)"));
        write(cwd.join(".claude/settings.json"), "of the project");
        assert_eq!(users_status_line(&config, &cwd).unwrap()["command"], "of the project");
        write(cwd.join(".claude/settings.json"), &"x".repeat(MAX_STATUS_LINE_BYTES));
        assert_eq!(users_status_line(&config, &cwd).unwrap()["command"], "mine # comment");
        fs::write(cwd.join(".claude/settings.json"), "{\"statusLine\": {}}").unwrap();
        assert_eq!(users_status_line(&config, &cwd).unwrap()["command"], "mine # comment");
        // What an agent in a sandbox links to is not read.
        let linked = cwd.join(".claude/settings.json");
        fs::remove_file(&linked).unwrap();
        fs::rename(home.join("settings.json"), home.join("elsewhere")).unwrap();
        std::os::unix::fs::symlink(home.join("elsewhere"), linked).unwrap();
        assert_eq!(users_status_line(&ConfigFolder::Own(home), &cwd), None);
        assert!(users_status_line(&config, &cwd).is_some());
    }
}
