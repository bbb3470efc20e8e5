use crate::text::work;

/// Returns the text under which a turn is indexed: its own, and that of its cue. Of the work after the
/// turn these are the subjects of commits: somebody wrote them to say what was done.
pub fn indexed_text(text: &str, cue: Option<&str>) -> String {
    let Some(cue) = cue else { return text.to_owned() };
    let Some(steps) = work::steps(cue) else { return format!("{text}\n{cue}") };
    let subjects = steps.lines().filter_map(work::committed_subject);
    subjects.fold(text.to_owned(), |text, subject| text + "\n" + subject)
}

/// Returns the rest of the work after a turn: the files and commands that the index has as terms of
/// less weight.
pub fn indexed_work(cue: Option<&str>) -> String {
    let steps = cue.and_then(work::steps).unwrap_or_default();
    let others: Vec<&str> =
        steps.lines().filter(|step| work::committed_subject(step).is_none()).collect();
    let without_verb = |step: &&str| step.split_once(' ').map_or("", |(_, what)| what).to_owned();
    others.iter().map(without_verb).collect::<Vec<String>>().join("\n")
}
