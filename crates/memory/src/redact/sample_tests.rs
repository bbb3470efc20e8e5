//! Counts how many of the sample secrets are masked, and how much ordinary text.

use hob_testkit::{SecretSample, parse_secret_samples};

use super::{find, mask, unmask};

const SECRETS: &str = include_str!("samples/secrets.txt");
const ORDINARY: &str = include_str!("samples/ordinary.txt");
const UNSEEN_SECRETS: &str = include_str!("samples/unseen_secrets.txt");
const UNSEEN_ORDINARY: &str = include_str!("samples/unseen_ordinary.txt");
const LATER_SECRETS: &str = include_str!("samples/later_secrets.txt");
const LATER_ORDINARY: &str = include_str!("samples/later_ordinary.txt");
/// How many samples of [`SECRETS`] must be masked. The rules mask all of them; a better rule for ordinary text may cost
/// a few.
const MIN_MASKED: usize = 95;

/// How many samples of [`LATER_SECRETS`] may be missed, and how many of [`LATER_ORDINARY`] masked. They were written by somebody
/// who had not seen the rules, after the rules for those above.
const MAX_LATER_MISSED: usize = 4;
const MAX_LATER_FALSE: usize = 2;

/// Returns whether a mask covers every secret of a sample.
fn is_masked(sample: &SecretSample) -> bool {
    let ranges: Vec<_> = find(&sample.text).into_iter().map(|finding| finding.range).collect();
    sample.clear_parts(&ranges).is_empty()
}

#[test]
fn sample_secrets_are_masked() {
    let samples = parse_secret_samples(SECRETS);
    assert_eq!(samples.len(), 100);
    assert!(samples.iter().all(|sample| !sample.secrets.is_empty()));
    let missed: Vec<&SecretSample> = samples.iter().filter(|sample| !is_masked(sample)).collect();
    let names: Vec<&str> = missed.iter().map(|sample| sample.name.as_str()).collect();
    assert!(samples.len() - missed.len() >= MIN_MASKED, "not masked: {names:#?}");
}

#[test]
fn unseen_secrets_are_masked() {
    let samples = parse_secret_samples(UNSEEN_SECRETS);
    assert_eq!(samples.len(), 120);
    let missed = samples.iter().filter(|sample| !is_masked(sample));
    let names: Vec<&str> = missed.map(|sample| sample.name.as_str()).collect();
    assert!(names.is_empty(), "{} not masked: {names:#?}", names.len());
}

#[test]
fn unseen_ordinary_text_is_not_masked() {
    let samples = parse_secret_samples(UNSEEN_ORDINARY);
    assert_eq!(samples.len(), 60);
    let masked = samples.iter().filter(|sample| mask(&sample.text).text != sample.text);
    let names: Vec<&str> = masked.map(|sample| sample.name.as_str()).collect();
    assert!(names.is_empty(), "{} masked: {names:#?}", names.len());
}

#[test]
fn later_secrets_are_masked() {
    let samples = parse_secret_samples(LATER_SECRETS);
    assert_eq!(samples.len(), 120);
    let missed = samples.iter().filter(|sample| !is_masked(sample));
    let names: Vec<&str> = missed.map(|sample| sample.name.as_str()).collect();
    assert!(names.len() <= MAX_LATER_MISSED, "{} not masked: {names:#?}", names.len());
}

#[test]
fn later_ordinary_text_is_not_masked() {
    let samples = parse_secret_samples(LATER_ORDINARY);
    assert_eq!(samples.len(), 80);
    let masked = samples.iter().filter(|sample| mask(&sample.text).text != sample.text);
    let names: Vec<&str> = masked.map(|sample| sample.name.as_str()).collect();
    assert!(names.len() <= MAX_LATER_FALSE, "{} masked: {names:#?}", names.len());
}

#[test]
fn ordinary_samples_are_not_masked() {
    let samples = parse_secret_samples(ORDINARY);
    assert!(samples.len() >= 150);
    let mut masked: Vec<String> = samples.iter().map(|sample| mask(&sample.text).text).collect();
    masked.retain(|masked| samples.iter().all(|sample| sample.text != *masked));
    assert!(masked.is_empty(), "{masked:#?}");
}

#[test]
fn samples_unmask_to_themselves() {
    for sample in parse_secret_samples(SECRETS).iter().chain(&parse_secret_samples(ORDINARY)) {
        let masked = mask(&sample.text);
        assert_eq!(unmask(&masked.text, &masked.originals).as_deref(), Some(sample.text.as_str()));
        assert_eq!(find(&masked.text), [], "again from {}", sample.text);
    }
}
