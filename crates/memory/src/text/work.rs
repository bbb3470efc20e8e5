//! The words of the work: what an agent did after a turn, as the turn's cue has it.
//!
//! A cue of work has a heading and one line for each step: "committed fix the parser", "edited
//! src/parser.rs", "ran cargo test", "failed error[E0277]: …".

/// The first line of a cue of work.
const HEADING: &str = "work:";
/// How a line with the subject of a commit begins.
const COMMITTED: &str = "committed ";
/// How a term of the work begins in the index. Recall weighs such terms less than those that were
/// said.
const MARK: char = hob_index::terms::UNCOUNTED;

/// Returns the cue with these steps; `None` if there are none.
pub(crate) fn work_cue(
    subjects: &[String],
    edited: &[String],
    ran: &[String],
    failed: &[String],
) -> Option<String> {
    let mut cue = HEADING.to_owned();
    let steps = [(COMMITTED, subjects), ("edited ", edited), ("ran ", ran), ("failed ", failed)];
    for (verb, step) in
        steps.iter().flat_map(|(verb, steps)| steps.iter().map(move |one| (verb, one)))
    {
        cue.push('\n');
        cue.push_str(verb);
        cue.push_str(step);
    }
    (cue.len() > HEADING.len()).then_some(cue)
}

/// Returns the steps of a cue of work, one on each line; `None` if a cue is something else.
pub(crate) fn steps(cue: &str) -> Option<&str> {
    cue.strip_prefix(HEADING)?.strip_prefix('\n')
}

/// Returns the subject of the commit that a step is.
pub(crate) fn committed_subject(step: &str) -> Option<&str> {
    step.strip_prefix(COMMITTED)
}

/// Returns a term as the index has it where it is part of the work.
pub(crate) fn work_term(term: &str) -> String {
    format!("{MARK}{term}")
}

/// Returns whether a term of the index is part of the work.
pub(crate) fn is_work_term(term: &str) -> bool {
    term.starts_with(MARK)
}
