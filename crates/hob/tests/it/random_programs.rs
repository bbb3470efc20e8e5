//! Random programs inside of an agent: whatever they do, nothing outside of the sandbox is read or changed, and the server
//! answers everybody.
//!
//! `HOB_CAMPAIGN=1` runs 500 seeds instead of 20. `HOB_SEED` runs one. `HOB_COUNT_BREACHES=N` runs N seeds and prints how
//! many of them break out in which way, instead of failing; with `HOB_BIN` it shows what an earlier build let through.

use std::collections::{BTreeMap, BTreeSet};

use hob_testkit::{is_campaign, program, wait_until};
use serde_json::{Value, json};

use crate::random_programs_setup::{ProgramSession, Setup, setup};
use crate::random_programs_watch::{Breach, Delays};

const SEEDS: u64 = 20;
const CAMPAIGN_SEEDS: u64 = 500;
/// How many programs run in one session.
const PROGRAMS_PER_SESSION: u64 = 5;
/// Every n-th program runs in an agent whose transcript Hob reads, in a session of its own.
const TRANSCRIPT_EVERY: u64 = 20;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect("a number"))
}

#[test]
fn random_programs_stay_inside() {
    if let Some(seeds) = number("HOB_COUNT_BREACHES") {
        return count_breaches(seeds);
    }
    let is_available = hob_child::namespace_processes::is_available(&program("hob"));
    if !is_available && std::env::var_os("HOB_BIN").is_none() {
        println!("skipped: this kernel allows no unprivileged namespaces");
        return;
    }
    let mut setup = setup("workspace");
    let all = if is_campaign() { CAMPAIGN_SEEDS } else { SEEDS };
    let seeds = number("HOB_SEED").map_or(1..=all, |seed| seed..=seed);
    let (mut session, mut worst) = (None, Delays::default());
    for seed in seeds {
        let (breaches, delays) = run(&mut setup, &mut session, seed);
        assert!(breaches.is_empty(), "seed {seed}: {breaches:#?}");
        worst.add(&delays);
    }
    println!(
        "longest answer {:?}, to the owner {:?}, longest control {:?}, {} MB at most",
        worst.server, worst.owner, worst.machine, worst.resident_mb
    );
    let Setup { api, marker, other, theirs, .. } = &setup;
    if let Some(session) = &session {
        setup.close(session).expect("the session is closed");
    }
    // Everybody is served as before, and nothing of the programs is left.
    let turn = format!("/sessions/{theirs}/turn");
    let answer = api.call_as(other, "POST", &turn, &[], &json!({"prompt": "[[say hello]]"}));
    assert_eq!(answer.json()["text"], "hello", "{}", answer.text);
    let owner = api.home.run(&["recall", "--json", "--project", "*", marker]);
    assert!(String::from_utf8_lossy(&owner.stdout).contains(marker.as_str()), "{owner:?}");
    let path = format!("/sessions/{theirs}");
    assert_eq!(api.call_as(other, "DELETE", &path, &[], &Value::Null).status, 200);
    wait_until("no process of a program is left", || api.processes().is_empty().then_some(()));
}

/// Runs the program of a seed. Several programs run in one session, which `session` holds.
fn run(
    setup: &mut Setup,
    session: &mut Option<ProgramSession>,
    seed: u64,
) -> (Vec<Breach>, Delays) {
    let stopped = |when: &str| {
        let breach =
            Breach { kind: "stops the server for others".to_owned(), detail: when.to_owned() };
        (vec![breach], Delays::default())
    };
    let has_transcript = seed.is_multiple_of(TRANSCRIPT_EVERY);
    if has_transcript || session.is_none() || seed.is_multiple_of(PROGRAMS_PER_SESSION) {
        if let Some(old) = session.take()
            && setup.close(&old).is_none()
        {
            return stopped("a session cannot be closed");
        }
        *session = setup.session(if has_transcript { "claude" } else { "acp" });
    }
    let Some(running) = session else { return stopped("no session can be started") };
    let (mut breaches, delays) = setup.breaches(running, seed);
    // The turn of an agent whose transcript is replaced does not end, so its session takes no other.
    if has_transcript
        && let Some(used) = session.take()
        && setup.close(&used).is_none()
    {
        breaches.extend(stopped("a session cannot be closed").0);
    }
    (breaches, delays)
}

/// Prints in how many ways the programs break out.
fn count_breaches(seeds: u64) {
    let mut kinds: BTreeMap<String, BTreeSet<u64>> = BTreeMap::new();
    let (mut current, mut session) = (setup("workspace"), None);
    let mut starts = 1;
    for seed in 1..=seeds {
        let (breaches, _) = run(&mut current, &mut session, seed);
        for Breach { kind, detail } in breaches {
            // Printed at once, so that a run that is ended early has shown something.
            let seeds = kinds.entry(kind).or_insert_with_key(|kind| {
                println!("seed {seed}: {kind}: {detail:.200}");
                BTreeSet::new()
            });
            seeds.insert(seed);
        }
        if !current.is_alive() {
            session = None;
            current = setup("workspace");
            starts += 1;
        }
    }
    println!("{seeds} seeds, {starts} servers, {} kinds of breach:", kinds.len());
    for (kind, seeds) in &kinds {
        println!("{:5} seeds: {kind}", seeds.len());
    }
    // A server that has been attacked need not end in order.
    current.kill();
}

/// The programs find what is open: without a sandbox they break out in many ways.
#[test]
fn random_programs_break_out_of_an_agent_without_a_sandbox() {
    let mut setup = setup("off");
    // Not the server itself, which they would end.
    setup.targets.server = std::process::id() as i32;
    let mut kinds = BTreeSet::new();
    for seed in 1..=8 {
        let session = setup.session("acp").expect("a session");
        let (breaches, _) = setup.breaches(&session, seed);
        kinds.extend(breaches.into_iter().map(|breach| breach.kind));
        setup.close(&session).expect("the session is closed");
    }
    assert!(kinds.len() >= 5, "{kinds:?}");
    for kind in ["reads a secret file", "uses a socket of the owner", "changes a file outside"] {
        assert!(kinds.contains(kind), "{kind}: {kinds:?}");
    }
}
