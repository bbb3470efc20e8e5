//! The reason why a record was found, in words for the user.

use hob_domain::memory::QueryTerm;

use crate::recall::types::ScoredRecord;
use crate::text::analyse::{Analyser, readable};
use crate::text::work;

/// How many terms a reason names.
const MAX_NAMED_TERMS: usize = 8;
/// How many steps of the work a reason names.
const MAX_NAMED_STEPS: usize = 2;

/// Returns the reason for a record. The first `own_terms` terms are the query's own, the others are
/// related to them.
pub(crate) fn reason(
    scored: &ScoredRecord,
    terms: &[QueryTerm],
    own_terms: usize,
    analyser: &Analyser,
) -> String {
    let evidence = &scored.evidence;
    let (own, related): (Vec<usize>, Vec<usize>) =
        evidence.terms.iter().partition(|term| **term < own_terms);
    let is_said =
        |term: &usize| terms.get(*term).is_some_and(|term| !work::is_work_term(&term.term));
    let related: Vec<usize> = related.into_iter().filter(is_said).collect();
    let listed = |terms_found: &[usize]| -> String {
        let known = terms_found.iter().filter_map(|term| terms.get(*term));
        // A term is a stem; people know the word.
        let word = |term: &QueryTerm| {
            let word = analyser.word_of(&term.term, &scored.record.text);
            word.map_or_else(|| readable(&term.term), str::to_lowercase)
        };
        let words: Vec<String> = known.take(MAX_NAMED_TERMS).map(word).collect();
        words.join(", ")
    };
    let (matches, related) = (listed(&own), listed(&related));
    let mut reasons = Vec::new();
    if !matches.is_empty() {
        reasons.push(format!("matches {matches}"));
    } else if !related.is_empty() {
        reasons.push(format!("has related words: {related}"));
    }
    let steps = matching_steps(scored, &terms[..own_terms], analyser);
    if !steps.is_empty() {
        reasons.push(format!("the agent then {}", steps.join(", ")));
    }
    if evidence.similar_meaning {
        reasons.push("similar meaning".to_owned());
    }
    if reasons.is_empty() && evidence.near_match {
        reasons.push("near a matching turn".to_owned());
    }
    if reasons.is_empty() && !evidence.in_period {
        reasons.push("has little in common with the question".to_owned());
    }
    if evidence.in_period {
        reasons.push("from the requested period".to_owned());
    }
    if let Some(name) = &evidence.named_speaker {
        reasons.push(format!("spoken by {name}, who is named in the question"));
    }
    if evidence.says_changed {
        reasons.push("mentions a change".to_owned());
    }
    if evidence.replaces_older {
        reasons.push("newer than another hit on the same subject".to_owned());
    }
    if evidence.duplicates > 0 {
        reasons.push(format!("stored {} times", evidence.duplicates + 1));
    }
    if scored.record.superseded_by.is_some() {
        reasons.push("superseded by a correction".to_owned());
    }
    reasons.join("; ")
}

/// Returns the steps of the work after a turn that have most of the query's own terms.
fn matching_steps<'a>(
    scored: &'a ScoredRecord,
    own_terms: &[QueryTerm],
    analyser: &Analyser,
) -> Vec<&'a str> {
    let steps = scored.record.cue.as_deref().and_then(work::steps).unwrap_or_default();
    let has = |terms: &[String], own: &QueryTerm| terms.contains(&own.term);
    let matches = |step: &&'a str| {
        let terms = analyser.terms(step);
        own_terms.iter().filter(|own| has(&terms, own)).count()
    };
    let mut found: Vec<(usize, &str)> = steps.lines().map(|step| (matches(&step), step)).collect();
    found.retain(|(matches, _)| *matches > 0);
    // The sort is stable: of equals the first stays first.
    found.sort_by_key(|(matches, _)| std::cmp::Reverse(*matches));
    found.into_iter().take(MAX_NAMED_STEPS).map(|(_, step)| step).collect()
}

#[cfg(test)]
mod tests {
    use hob_domain::memory::RecordId;

    use super::*;
    use crate::recall::pack::tests::scored;
    use crate::recall::types::Evidence;

    #[test]
    fn reason_names_all_evidence() {
        let terms: Vec<QueryTerm> =
            ["port", "socket"].map(|term| QueryTerm { term: term.to_owned(), weight: 1.0 }).into();
        let analyser = Analyser::default();
        let mut hit = scored(1, "the port");
        assert_eq!(reason(&hit, &terms, 1, &analyser), "has little in common with the question");
        hit.evidence.near_match = true;
        assert_eq!(reason(&hit, &terms, 1, &analyser), "near a matching turn");
        hit.evidence.terms = vec![1];
        assert_eq!(reason(&hit, &terms, 1, &analyser), "has related words: socket");
        hit.evidence = Evidence {
            terms: vec![0, 1],
            similar_meaning: true,
            near_match: true,
            in_period: true,
            named_speaker: Some("Anna".to_owned()),
            says_changed: true,
            replaces_older: true,
            duplicates: 2,
        };
        hit.record.cue =
            Some("work:\ncommitted move the port\nran make port\nedited a.rs".to_owned());
        hit.record.superseded_by = Some(RecordId::new("2"));
        assert_eq!(
            reason(&hit, &terms, 1, &analyser),
            "matches port; the agent then committed move the port, ran make port; similar meaning; from the requested period; spoken by Anna, who is named \
             in the question; mentions a change; newer than another hit on \
             the same subject; stored 3 times; superseded by a correction"
        );
    }
    #[test]
    fn reason_has_whole_words() {
        let analyser = Analyser::default();
        let terms: Vec<QueryTerm> = analyser
            .query_terms("databases of src/main.rs released")
            .into_iter()
            .map(|term| QueryTerm { term, weight: 1.0 })
            .collect();
        let mut hit = scored(1, "The Database's release, then src/main.rs.");
        hit.evidence.terms = (0..terms.len()).collect();
        let found = reason(&hit, &terms, terms.len(), &analyser);
        assert!(found.contains("database, ") && found.contains("release"), "{found}");
        assert!(!found.contains("databas,") && !found.contains("releas,"), "{found}");
    }
}
