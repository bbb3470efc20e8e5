//! `kill -9` of every process at random moments. Every acknowledged turn is stored once in the end.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use hob_testkit::leak::descriptors;
use hob_testkit::{Random, TestHome, wait_until};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::hooks::{
    Watch, assert_no_process, assert_whole, capture_command, finish, hook_input, serve, set_aside,
    start, temporary, wait_drained,
};
use crate::transcript::{
    ASSISTANT, Said, Shape, Transcript, USER, assert_stored, exported_sessions,
};

/// One that talks and captures, again and again.
struct Actor {
    transcript: Transcript,
    random: Random,
    acknowledged: usize,
    figures: Figures,
    /// A record of all actions, to find out why a turn is missing.
    log: Vec<String>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Figures {
    hooks: usize,
    killed: usize,
    captured: usize,
    deferred: usize,
    duplicates: u64,
    failed: usize,
}

impl Actor {
    fn new(home: &TestHome, number: usize) -> Actor {
        let shape = [Shape::Claude, Shape::Claude, Shape::Codex, Shape::Bare][number % 4];
        let transcript = Transcript::new(home, &format!("actor-{number}"), shape);
        let random = Random::new(0x9e37_79b9 * (number as u64 + 1));
        Actor { transcript, random, acknowledged: 0, figures: Figures::default(), log: Vec::new() }
    }

    /// Adds turns and captures them in a random way; one capture in four is killed.
    fn act(&mut self, home: &TestHome, watch: &Watch) {
        let exchange = self.transcript.said.len() / 2;
        let prompt = match self.random.below(3) {
            0 => "go on".to_owned(),
            _ => format!("prompt {exchange} of {}", self.transcript.session),
        };
        self.transcript.say(USER, &prompt);
        let answer = match self.random.below(2) {
            0 => "Done.".to_owned(),
            _ => format!("answer {exchange} of {}", self.transcript.session),
        };
        let lagging = self.random.below(2) == 0;
        match lagging {
            true => self.transcript.say_later(ASSISTANT, &answer),
            false => self.transcript.say(ASSISTANT, &answer),
        }
        let way = self.random.below(6);
        let path = self.transcript.path().to_owned();
        let (command, input) = match way {
            0 => (capture_command(home, &["--no-spawn"], &path), String::new()),
            1 => (capture_command(home, &[], &path), String::new()),
            2 => (home.command(&["import", &path, "--json"]), String::new()),
            _ => {
                let input = hook_input(&self.transcript, "Stop", Some(&answer));
                (home.command(&["capture-turn"]), input.to_string())
            }
        };
        self.figures.hooks += 1;
        let names = ["no-spawn", "default", "import", "turn", "turn", "turn"];
        let mut log =
            format!("{exchange}: {prompt:?} {answer:?} lagging {lagging} {}", names[way as usize]);
        // Without its record, only a hook that got the answer as input knows it.
        let known = self.transcript.said.len() - usize::from(lagging && way < 3);
        if self.random.below(4) == 0 {
            self.figures.killed += 1;
            let moment = Duration::from_micros(self.random.below(40_000));
            kill_after(command, &input, moment);
            log += &format!(" killed after {moment:?}");
        } else if way == 2 {
            let done = finish(command, "");
            log += &format!(" {done:?}");
            let safe = done.code == Some(0) && done.json()["finished"] == true;
            if safe {
                self.figures.captured += 1;
                self.acknowledged = known;
            }
        } else {
            let done = watch.run(command, &input);
            log += &format!(" {}{}", done.stdout.trim_end(), done.stderr);
            let answer: Value = match way {
                0 | 1 => done.json(),
                _ if done.stderr.is_empty() => serde_json::json!({"status": "captured"}),
                _ => serde_json::json!({"status": "failed", "error": done.stderr}),
            };
            match answer["status"].as_str() {
                Some("captured") => self.figures.captured += 1,
                Some("deferred") => self.figures.deferred += 1,
                _ => {
                    println!("kills: refused: {answer}");
                    self.figures.failed += 1;
                }
            }
            self.figures.duplicates += answer["duplicates"].as_u64().unwrap_or_default();
            if answer["status"] != "failed" {
                self.acknowledged = known;
            }
        }
        self.transcript.flush();
        self.log.push(log);
    }

    /// Returns acknowledged turns that are missing, and turns that are stored too often.
    fn problems(&self, stored: &BTreeMap<String, Vec<Said>>) -> Vec<String> {
        let there = stored.get(&self.transcript.session).cloned().unwrap_or_default();
        let safe = &self.transcript.said[..self.acknowledged];
        let count = |all: &[Said], turn: &Said| all.iter().filter(|other| *other == turn).count();
        let mut turns: Vec<&Said> = safe.iter().chain(&there).collect();
        turns.sort();
        turns.dedup();
        let mut problems = Vec::new();
        for turn in turns {
            let (stored, safe) = (count(&there, turn), count(safe, turn));
            let said = count(&self.transcript.said, turn);
            if stored < safe {
                problems.push(format!("LOST {turn:?}: {stored} of {safe}"));
            }
            if stored > said {
                problems.push(format!("DOUBLE {turn:?}: said {said} times, there {stored} times"));
            }
        }
        problems.iter().map(|what| format!("{}: {what}", self.transcript.session)).collect()
    }
}

fn kill_after(command: Command, input: &str, moment: Duration) {
    let since = Instant::now();
    let mut child = start(command, input);
    while since.elapsed() < moment {
        std::hint::spin_loop();
        std::thread::yield_now();
    }
    let _ = child.kill();
    let _ = child.wait();
}

#[test]
fn kills_at_random_moments_lose_no_turn() {
    let rounds = if hob_testkit::is_campaign() { 500 } else { 40 };
    let (home, watch) = (TestHome::new(), Watch::new());
    let mut random = Random::new(42);
    let mut actors: Vec<Actor> = (0..4).map(|number| Actor::new(&home, number)).collect();
    let mut past: Vec<Actor> = Vec::new();
    let mut problems: Vec<String> = Vec::new();
    let mut first_descriptors = 0;
    for round in 0..rounds {
        let server = serve(&home);
        let moment = Duration::from_micros(random.below(120_000));
        let hung = random.below(4) == 0;
        std::thread::scope(|scope| {
            for actor in &mut actors {
                let (home, watch) = (&home, &watch);
                scope.spawn(move || {
                    for _ in 0..2 {
                        actor.act(home, watch);
                    }
                });
            }
            std::thread::sleep(moment);
            if hung {
                server.signal(Signal::SIGSTOP);
                std::thread::sleep(Duration::from_millis(50));
            }
            server.kill();
        });
        assert_whole(&home);
        // From time to time everything is looked at in between.
        if round % 20 == 19 {
            let server = serve(&home);
            wait_drained(&home);
            let stored = exported_sessions(&home);
            problems.extend(actors.iter().flat_map(|actor| actor.problems(&stored)));
            let open = descriptors(server.pid());
            first_descriptors = if first_descriptors == 0 { open } else { first_descriptors };
            assert!(
                open <= first_descriptors + 16,
                "{open} descriptors, {first_descriptors} at first"
            );
            server.kill();
            // New sessions, so that none grows without end.
            let first = past.len() + actors.len();
            let fresh = (first..first + 4).map(|number| Actor::new(&home, number)).collect();
            past.append(&mut std::mem::replace(&mut actors, fresh));
        }
    }
    past.append(&mut actors);
    let actors = past;
    assert_no_process(&home);
    let server = serve(&home);
    wait_drained(&home);
    let transcripts: Vec<&Transcript> = actors.iter().map(|actor| &actor.transcript).collect();
    let sent: usize = transcripts.iter().map(|transcript| transcript.said.len()).sum();
    let acknowledged: usize = actors.iter().map(|actor| actor.acknowledged).sum();
    let sum = |figure: fn(&Figures) -> usize| -> usize {
        actors.iter().map(|a| figure(&a.figures)).sum()
    };
    let duplicates: u64 = actors.iter().map(|actor| actor.figures.duplicates).sum();
    println!(
        "kills: {rounds} rounds, {sent} turns sent, {acknowledged} acknowledged by the end, {} hooks ({} killed, \
         {} captured, {} deferred, {} refused), {duplicates} duplicates seen, slowest hook {} ms, {} temporary \
         files left",
        sum(|f| f.hooks),
        sum(|f| f.killed),
        sum(|f| f.captured),
        sum(|f| f.deferred),
        sum(|f| f.failed),
        watch.slowest().as_millis(),
        temporary(&home).len(),
    );
    watch.print("kills");
    let stored = exported_sessions(&home);
    problems.extend(actors.iter().flat_map(|actor| actor.problems(&stored)));
    println!("kills: {} turns lost or double {problems:#?}", problems.len());
    assert_eq!(set_aside(&home), [""; 0]);
    // With everything captured once more, everything is there once.
    for actor in &actors {
        let done = watch.capture(&home, &[], actor.transcript.path()).json();
        assert_eq!(done["status"], "captured");
    }
    let (mut wrong, stored) = (0, exported_sessions(&home));
    for actor in &actors {
        let there = stored.get(&actor.transcript.session).map(Vec::as_slice);
        if there.unwrap_or_default() != actor.transcript.said {
            wrong += 1;
            println!("{} was captured so:\n{}", actor.transcript.session, actor.log.join("\n"));
        }
    }
    println!("kills: {wrong} of {} sessions are not as they were said", actors.len());
    assert!(problems.is_empty(), "{problems:#?}");
    assert_stored(&home, &transcripts);
    server.kill();
    assert_no_process(&home);
}

/// Hooks that are killed in the middle of a request leave nothing open in the server.
#[test]
fn killed_hooks_leave_no_connection_in_the_server() {
    let home = TestHome::new();
    let mut random = Random::new(8);
    let server = serve(&home);
    let mut transcript = Transcript::new(&home, "killed", Shape::Claude);
    let rounds = if hob_testkit::is_campaign() { 500 } else { 60 };
    let mut early = 0;
    for round in 0..rounds {
        transcript.talk(1);
        let command = capture_command(&home, &["--no-spawn"], transcript.path());
        kill_after(command, "", Duration::from_micros(random.below(30_000)));
        if round == rounds / 4 {
            early = descriptors(server.pid());
        }
    }
    wait_until("no more descriptors are open than early on", || {
        (descriptors(server.pid()) <= early + 12).then_some(())
    });
    let done = finish(capture_command(&home, &[], transcript.path()), "");
    assert_eq!(done.status(), "captured");
    wait_drained(&home);
    assert_stored(&home, &[&transcript]);
    println!(
        "killed hooks: {rounds}, descriptors {early} early, {} at the end",
        descriptors(server.pid())
    );
    server.kill();
    assert_no_process(&home);
}

/// Half-written files of killed hooks are removed once they are old: here an hour.
#[test]
fn half_written_deferral_files_are_removed() {
    let home = TestHome::new();
    let server = serve(&home);
    let folders = ["deferred-captures", "capture-state"].map(|name| home.hob_home().join(name));
    let old = SystemTime::now() - Duration::from_secs(3600);
    for folder in &folders {
        let path = folder.join(format!("a-1.jsonl.{}.tmp", uuid::Uuid::new_v4()));
        fs::write(&path, "{\"version\":1").unwrap();
        fs::File::options().write(true).open(&path).unwrap().set_modified(old).unwrap();
    }
    server.kill();
    let server = serve(&home);
    wait_until("half-written files are removed", || temporary(&home).is_empty().then_some(()));
    assert!(server.stop().success());
}

/// An import that is killed at any moment goes on where it was.
#[test]
fn killed_import_resumes() {
    let home = TestHome::new();
    let mut random = Random::new(3);
    let mut transcripts: Vec<Transcript> = (0..12)
        .map(|number| {
            let shape = [Shape::Claude, Shape::Bare, Shape::Codex][number % 3];
            Transcript::new(&home, &format!("past-{number}"), shape)
        })
        .collect();
    transcripts.iter_mut().for_each(|transcript| transcript.talk(60));
    let folder = home.user_home().join("transcripts");
    let folder = folder.to_str().unwrap();
    let rounds = if hob_testkit::is_campaign() { 100 } else { 8 };
    for _ in 0..rounds {
        let mut command = home.command(&["import", folder, "--json"]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_micros(random.below(300_000)));
        let _ = child.kill();
        child.wait().unwrap();
    }
    let output = home.run(&["import", folder, "--json"]);
    assert!(output.status.success(), "{output:?}");
    assert_stored(&home, &transcripts.iter().collect::<Vec<_>>());
    let again = home.run(&["import", folder, "--json"]);
    let again: Value = serde_json::from_slice(&again.stdout).unwrap();
    assert_eq!((&again["inserted"], &again["skipped"]), (&0.into(), &12.into()), "{again}");
    assert_no_process(&home);
}
