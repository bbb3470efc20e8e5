//! The reason why a record was found, in words for the user.

use hob_domain::memory::QueryTerm;

use crate::recall::types::ScoredRecord;
use crate::text::analyse::readable;

/// How many terms a reason names.
const MAX_NAMED_TERMS: usize = 8;

/// Returns the reason for a record. The first `own_terms` terms are the query's own, the others are
/// related to them.
pub(crate) fn reason(scored: &ScoredRecord, terms: &[QueryTerm], own_terms: usize) -> String {
    let evidence = &scored.evidence;
    let (own, related): (Vec<usize>, Vec<usize>) =
        evidence.terms.iter().partition(|term| **term < own_terms);
    let listed = |terms_found: &[usize]| -> String {
        let known = terms_found.iter().filter_map(|term| terms.get(*term));
        let words: Vec<String> =
            known.take(MAX_NAMED_TERMS).map(|term| readable(&term.term)).collect();
        words.join(", ")
    };
    let (matches, related) = (listed(&own), listed(&related));
    let mut reasons = Vec::new();
    if !matches.is_empty() {
        reasons.push(format!("matches {matches}"));
    } else if !related.is_empty() {
        reasons.push(format!("has related words: {related}"));
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
    if evidence.duplicates > 0 {
        reasons.push(format!("stored {} times", evidence.duplicates + 1));
    }
    if scored.record.superseded_by.is_some() {
        reasons.push("superseded by a correction".to_owned());
    }
    reasons.join("; ")
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
        let mut hit = scored(1, "the port");
        assert_eq!(reason(&hit, &terms, 1), "has little in common with the question");
        hit.evidence.near_match = true;
        assert_eq!(reason(&hit, &terms, 1), "near a matching turn");
        hit.evidence.terms = vec![1];
        assert_eq!(reason(&hit, &terms, 1), "has related words: socket");
        hit.evidence = Evidence {
            terms: vec![0, 1],
            similar_meaning: true,
            near_match: true,
            in_period: true,
            named_speaker: Some("Anna".to_owned()),
            says_changed: true,
            duplicates: 2,
        };
        hit.record.superseded_by = Some(RecordId::new("2"));
        assert_eq!(
            reason(&hit, &terms, 1),
            "matches port; similar meaning; from the requested period; spoken by Anna, who is named \
             in the question; mentions a change; stored 3 times; superseded by a correction"
        );
    }
}
