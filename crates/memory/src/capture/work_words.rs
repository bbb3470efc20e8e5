//! Reduces an agent's work after a turn to the words that the turn is found by: bounded, and without
//! secrets.

use hob_transcript::WorkItem;

use crate::redact;
use crate::text::analyse::truncated;
use crate::text::work::work_cue;

/// How many steps of each kind a turn has.
const MAX_SUBJECTS: usize = 8;
const MAX_EDITED: usize = 12;
const MAX_RAN: usize = 12;
const MAX_FAILED: usize = 4;
/// How many bytes a step may have.
const MAX_STEP_BYTES: usize = 120;
/// How many occurrences of the word are looked at in a command that may commit.
const MAX_COMMITS: usize = 16;

/// The command of `git` that makes a commit.
const COMMIT: &str = "commit";

/// Words of a line that tells what failed.
const FAILURE_WORDS: [&str; 10] = [
    "error",
    "exception",
    "panicked",
    "fatal",
    "failed",
    "cannot",
    "undefined",
    "not found",
    "denied",
    "no such",
];

/// Returns the cue of a turn after which an agent worked in `folder`; `None` if it did nothing that can
/// be found.
pub(crate) fn cue_of_work(work: &[WorkItem], folder: Option<&str>) -> Option<String> {
    let (mut subjects, mut edited) = (Vec::new(), Vec::new());
    let (mut ran, mut failed) = (Vec::new(), Vec::new());
    for item in work {
        // A whole text is masked before a line of it is cut out: a part of a secret is not recognised.
        match item {
            WorkItem::Command(_) if ran.len() == MAX_RAN && subjects.len() == MAX_SUBJECTS => {}
            // Only a command that names `commit` gives a subject.
            WorkItem::Command(command) if ran.len() == MAX_RAN && !command.contains(COMMIT) => {}
            WorkItem::Edit(_) if edited.len() == MAX_EDITED => {}
            WorkItem::Failure(_) if failed.len() == MAX_FAILED => {}
            WorkItem::Command(command) => {
                let command = redact::mask(command).text;
                let committed = commit_subjects(&command);
                if committed.is_empty() {
                    add(&mut ran, MAX_RAN, command_line(&command));
                }
                for subject in committed {
                    add(&mut subjects, MAX_SUBJECTS, Some(subject));
                }
            }
            WorkItem::Edit(path) => {
                let path = redact::mask(path).text;
                add(&mut edited, MAX_EDITED, Some(below(&path, folder)));
            }
            WorkItem::Failure(output) => {
                let output = redact::mask(output).text;
                add(&mut failed, MAX_FAILED, telling_line(&output));
            }
        }
    }
    work_cue(&subjects, &edited, &ran, &failed)
}

/// Adds a step, unless it is there already or there are enough.
fn add(steps: &mut Vec<String>, max_steps: usize, step: Option<&str>) {
    let step = truncated(step.unwrap_or_default().trim(), MAX_STEP_BYTES).trim();
    if !step.is_empty() && steps.len() < max_steps && steps.iter().all(|known| known != step) {
        steps.push(step.to_owned());
    }
}

/// Returns a path without the folder that it is below.
fn below<'a>(path: &'a str, folder: Option<&str>) -> &'a str {
    let rest = folder.and_then(|folder| path.strip_prefix(folder));
    rest.and_then(|rest| rest.strip_prefix(['/', '\\'])).unwrap_or(path)
}

/// Returns the first line of a command, without a change of the folder before it.
fn command_line(command: &str) -> Option<&str> {
    let mut line =
        command.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#'))?;
    while let Some((_, rest)) = line.strip_prefix("cd ").and_then(|rest| rest.split_once("&&")) {
        line = rest.trim_start();
    }
    Some(line)
}

/// Returns the line of an output that tells what failed; else its first line.
fn telling_line(output: &str) -> Option<&str> {
    let lines = || {
        let bare = |line: &'_ str| line.trim().trim_start_matches("<tool_use_error>").to_owned();
        output.lines().filter(move |line| {
            let line = bare(line);
            !line.is_empty() && !line.starts_with("Exit code")
        })
    };
    let tells = |line: &&str| {
        let line = line.to_lowercase();
        FAILURE_WORDS.iter().any(|word| line.contains(word))
    };
    let line = lines().find(tells).or_else(|| lines().next())?;
    Some(line.trim().trim_start_matches("<tool_use_error>"))
}

/// Returns the subjects of the commits that a command makes.
fn commit_subjects(command: &str) -> Vec<&str> {
    let commits = command.match_indices(COMMIT).take(MAX_COMMITS).filter_map(|(at, word)| {
        let before = command[..at].rsplit([';', '&', '|', '\n', '(']).next()?;
        let mut words = before.split_whitespace().skip_while(|word| word.contains('='));
        let arguments = &command[at + word.len()..];
        let is_git = words.next() == Some("git");
        // Between the two are only options of `git` itself, of which two have a value.
        let mut only_options = true;
        while let Some(word) = words.next() {
            only_options &= word.starts_with('-');
            if matches!(word, "-C" | "-c") {
                words.next();
            }
        }
        let is_commit = is_git
            && only_options
            && before.ends_with(char::is_whitespace)
            && arguments.starts_with(char::is_whitespace);
        if is_commit { subject(arguments) } else { None }
    });
    commits.collect()
}

/// Returns the first line of the message in the arguments of `git commit`.
fn subject(arguments: &str) -> Option<&str> {
    let line_end = arguments.find('\n').unwrap_or(arguments.len());
    let flag = |flag: &str| {
        let at = arguments[..line_end].find(flag)?;
        Some((at, at + flag.len()))
    };
    let found = [" -m", " -am", " --message"].into_iter().filter_map(flag).min();
    let Some((_, value)) = found else {
        return arguments[..line_end].contains("<<").then(|| first_line(&arguments[line_end..]))?;
    };
    let value = arguments[value..].trim_start_matches([' ', '=']);
    let Some(quote) = value.chars().next().filter(|c| matches!(c, '"' | '\'')) else {
        return value.split_whitespace().next();
    };
    let message = &value[1..];
    if message.trim_start().starts_with("$(cat <<") {
        return first_line(message.split_once('\n')?.1);
    }
    let mut previous = ' ';
    let ends = |c: char| {
        let escaped = std::mem::replace(&mut previous, c) == '\\';
        c == quote && !escaped
    };
    first_line(&message[..message.find(ends).unwrap_or(message.len())])
}

fn first_line(text: &str) -> Option<&str> {
    text.lines().map(str::trim).find(|line| !line.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(line: &str) -> WorkItem {
        WorkItem::Command(line.to_owned())
    }

    #[test]
    fn work_becomes_one_line_for_each_step() {
        let work = [
            command("cd /w && cargo test --lib\necho done"),
            WorkItem::Edit("/w/src/parser.rs".to_owned()),
            WorkItem::Edit("/w/src/parser.rs".to_owned()),
            WorkItem::Edit("/else/x.md".to_owned()),
            WorkItem::Failure("Exit code 1\nrunning\nerror[E0277]: no bound\nnote".to_owned()),
            command("git add -A && git commit -m 'fix: the parser' && git push"),
        ];
        assert_eq!(
            cue_of_work(&work, Some("/w")).unwrap(),
            "work:\ncommitted fix: the parser\nedited src/parser.rs\nedited /else/x.md\n\
             ran cargo test --lib\nfailed error[E0277]: no bound"
        );
        assert_eq!(cue_of_work(&[], None), None);
        assert_eq!(cue_of_work(&[command("# nothing")], None), None);
    }

    #[test]
    fn subjects_of_commits_are_found_in_commands() {
        for (line, expect) in [
            ("git commit -m \"Say \\\"hi\\\" twice\" -m body", "Say \\\"hi\\\" twice"),
            ("git -C /w commit -am 'a; b'", "a; b"),
            ("GIT_EDITOR=true git commit --message=done", "done"),
            ("git commit -m \"$(cat <<'EOF'\nfeat: one\n\nbody\nEOF\n)\"", "feat: one"),
            ("cd /w\ngit commit -F - <<EOF\nfeat: two\nEOF", "feat: two"),
            ("git commit -m 'first\n\nbody'", "first"),
        ] {
            assert_eq!(commit_subjects(line), [expect], "{line}");
        }
        for line in [
            "git log --grep commit -m x",
            "echo commit -m x",
            "git commit --amend",
            "git commit-tree -m x",
        ] {
            assert_eq!(commit_subjects(line), [""; 0], "{line}");
        }
        assert_eq!(commit_subjects("git commit -m a; git commit -m b"), ["a;", "b"]);
        let many = "git commit -m a\n".repeat(2 * MAX_COMMITS);
        assert_eq!(commit_subjects(&many).len(), MAX_COMMITS);
    }

    #[test]
    fn work_is_bounded_and_has_no_secrets() {
        let secret = format!("ghp_{}", "a1B2c3D4e5F6".repeat(3));
        let line = format!("{}--token {secret}", "x ".repeat(50));
        let mut work: Vec<WorkItem> = (0..100).map(|n| command(&format!("{n} {line}"))).collect();
        work.push(WorkItem::Failure(format!("error: {secret} {}", "y".repeat(500))));
        let cue = cue_of_work(&work, None).unwrap();
        assert!(!cue.contains("ghp_a1"), "{cue}");
        assert_eq!(cue.lines().count(), 1 + MAX_RAN + 1);
        // Where there are enough commands, one that commits is still found.
        work.push(command("git commit -m 'fix: the parser'"));
        assert!(cue_of_work(&work, None).unwrap().contains("committed fix: the parser"));
        assert!(cue.lines().all(|line| line.len() <= MAX_STEP_BYTES + "committed ".len()));
    }
}
