//! `hob logs`: shows the server's log.

use std::fs;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use clap::Args as ClapArgs;
use hob_domain::Timestamp;
use hob_files::owned;
use serde_json::Value;

use super::{Context, Exit};
use crate::pager::PagerOptions;
use crate::printer::{self, errln};
use crate::view::{Paint, View};

/// How much of a log file is read for its last lines, in bytes.
const MAX_TAIL_BYTES: u64 = 8 << 20;
/// The width of the column of relative times, which fits "59 min ago" and a date.
const RELATIVE_CHARS: usize = 10;
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Show the server's log
#[derive(ClapArgs)]
pub struct Args {
    /// Wait for new lines until Ctrl-C
    #[arg(short, long)]
    follow: bool,
    /// Number of lines to show
    #[arg(short = 'n', long, value_name = "N", default_value_t = 50)]
    lines: usize,
    /// Print the JSON lines of the log unchanged
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    pager: PagerOptions,
}

/// How a terminal shows the time of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineTime {
    /// Relative to now.
    Relative,
    /// To the second. What is followed stays on the screen, where a relative time would soon be wrong.
    Exact,
}

pub fn run(context: &Context, args: &Args) -> anyhow::Result<Exit> {
    let folder = context.settings.home.logs();
    let files = log_files(&folder)?;
    if files.is_empty() && !args.follow {
        errln!("hob: there is no log in {} yet; `hob serve` writes it", folder.display());
        return Ok(Exit::Failed);
    }
    let view = View::of_stdout();
    let mut last: Vec<String> = Vec::new();
    for file in files.iter().rev() {
        let mut lines = last_lines(file, args.lines - last.len())?;
        lines.append(&mut last);
        last = lines;
        if last.len() >= args.lines {
            break;
        }
    }
    if args.follow || args.json {
        last.iter().for_each(|line| print(&view, line, args.json));
    } else {
        let text: String =
            last.iter().map(|line| line_text(&view, line, LineTime::Relative)).collect();
        args.pager.print(&context.settings, &text);
    }
    if args.follow {
        follow(&folder, files.last().cloned(), &view, args.json)?;
    }
    Ok(Exit::Done)
}

/// Returns the log files, oldest first. Their names have the date.
fn log_files(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = match owned::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.with_context(|| format!("cannot read {}", folder.display()))?,
    };
    let is_log = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "log");
    let mut files: Vec<PathBuf> =
        entries.flatten().map(|entry| entry.path()).filter(is_log).collect();
    files.sort();
    Ok(files)
}

fn last_lines(path: &Path, count: usize) -> anyhow::Result<Vec<String>> {
    let cannot = || format!("cannot read {}", path.display());
    let mut file = owned::open(path).with_context(cannot)?;
    let length = file.metadata().with_context(cannot)?.len();
    let start = length.saturating_sub(MAX_TAIL_BYTES);
    file.seek(SeekFrom::Start(start)).with_context(cannot)?;
    let mut bytes = Vec::new();
    file.take(MAX_TAIL_BYTES).read_to_end(&mut bytes).with_context(cannot)?;
    let text = String::from_utf8_lossy(&bytes);
    // The first line may have lost its beginning.
    let skipped = usize::from(start > 0);
    let lines: Vec<&str> = text.lines().skip(skipped).collect();
    let lines = &lines[lines.len().saturating_sub(count)..];
    Ok(lines.iter().map(|line| (*line).to_owned()).collect())
}

/// Prints what is appended, and goes on with the next day's file.
fn follow(folder: &Path, from: Option<PathBuf>, view: &View, json: bool) -> anyhow::Result<()> {
    let end = |path: &PathBuf| fs::metadata(path).map_or(0, |metadata| metadata.len());
    let mut position = from.as_ref().map_or(0, end);
    let mut current = from;
    let mut rest = String::new();
    loop {
        if let Some(path) = &current
            && let Ok(mut file) = owned::open(path)
        {
            file.seek(SeekFrom::Start(position))?;
            let mut bytes = Vec::new();
            position += file.read_to_end(&mut bytes)? as u64;
            rest.push_str(&String::from_utf8_lossy(&bytes));
            while let Some((line, after)) = rest.split_once('\n') {
                print(view, line, json);
                rest = after.to_owned();
            }
        }
        let newer = log_files(folder)?.into_iter().find(|path| Some(path) > current.as_ref());
        match newer {
            Some(newer) => (current, position) = (Some(newer), 0),
            None => std::thread::sleep(POLL_INTERVAL),
        }
    }
}

fn print(view: &View, line: &str, json: bool) {
    match serde_json::from_str(line) {
        Ok(value) if json => printer::out_json(&value),
        _ => printer::out_drawing(&line_text(view, line, LineTime::Exact)),
    }
}

/// Returns a line of the log for people.
fn line_text(view: &View, line: &str, time: LineTime) -> String {
    let Ok(value) = serde_json::from_str::<Value>(line) else {
        return format!("{}\n", printer::clean(line));
    };
    let level = value["level"].as_str().unwrap_or_default();
    let paint = match level {
        "ERROR" => Paint::Bad,
        "WARN" => Paint::Warning,
        _ => Paint::Faint,
    };
    let mut details = String::new();
    for (key, detail) in value["fields"].as_object().into_iter().flatten() {
        if key != "message" {
            let detail = match (key.as_str(), detail.as_str()) {
                ("session", Some(id)) => view.id(id).to_owned(),
                (_, Some(text)) => view.path(text).into_owned(),
                (_, None) => detail.to_string(),
            };
            details.push_str(&format!(" {key}={detail}"));
        }
    }
    format!(
        "{}  {} {}{}\n",
        time_text(view, value["timestamp"].as_str().unwrap_or_default(), time),
        view.paint(paint, &format!("{level:<5}")),
        printer::one_line(value["fields"]["message"].as_str().unwrap_or_default()),
        view.paint(Paint::Faint, &printer::one_line(&details)),
    )
}

fn time_text(view: &View, logged: &str, time: LineTime) -> String {
    let parsed = logged.parse::<Timestamp>().ok().filter(|_| time == LineTime::Exact);
    let second = parsed.and_then(|at| Timestamp::from_second(at.as_second()).ok());
    match second.filter(|_| view.is_terminal()) {
        Some(second) => second.to_string(),
        None if time == LineTime::Exact => printer::one_line(logged),
        None => format!("{:<RELATIVE_CHARS$}", view.time(logged)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_on_a_terminal_are_short_and_those_of_a_pipe_whole() {
        let line = r#"{"timestamp":"2026-11-19T01:20:15.123456Z","level":"INFO",
            "fields":{"message":"turn ended","session":"0198a7c4-1111-4d7e-9a55","turn":3}}"#;
        let check = |width: Option<usize>, time: LineTime, expect: &str| {
            assert_eq!(line_text(&View::for_tests(width, false), line, time), expect);
        };
        let whole = "2026-11-19T01:20:15.123456Z  INFO  turn ended session=0198a7c4-1111-4d7e-9a55 turn=3\n";
        check(None, LineTime::Relative, whole);
        check(None, LineTime::Exact, whole);
        // The tests' clock stands at 1970.
        let short = "2026-11-19  INFO  turn ended session=0198a7c4-111 turn=3\n";
        check(Some(80), LineTime::Relative, short);
        let exact = "2026-11-19T01:20:15Z  INFO  turn ended session=0198a7c4-111 turn=3\n";
        check(Some(80), LineTime::Exact, exact);
    }
}
