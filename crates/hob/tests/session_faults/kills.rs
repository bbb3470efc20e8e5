//! `kill -9` of `hob serve` at random moments while twenty sessions run turns. Every event that a client
//! received is in the log afterwards, with the same number and text. Every turn ends, every session
//! continues or fails with `resume_failed`, and no agent outlives its server.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use hob_child::tree;
use hob_testkit::leak::processes_with;
use hob_testkit::wire::{StreamEvent, WireRequest, to_microseconds};
use hob_testkit::{HobServer, Random, Stopwatch, TestHome, Wire, is_campaign, wait_until};
use serde_json::{Value, json};

use crate::setup::home;

const SESSIONS: usize = 20;
/// Contract, section 2: after kill -9 every agent process, grandchildren included, is gone within 3 s.
const GONE_WITHIN: Duration = Duration::from_secs(3);
/// After this many rounds sessions are closed and new ones created, so that none grows without end.
const GENERATION: usize = 20;

/// One client with its session, and the events it received.
struct Talker {
    number: usize,
    id: String,
    random: Random,
    asked: usize,
    /// Events by their numbers.
    told: BTreeMap<u64, StreamEvent>,
    /// Turns that were taken in, with a word of their answer.
    taken: BTreeMap<u32, String>,
    /// Up to where the log was compared.
    checked: u64,
    checked_turns: u32,
    problems: Vec<String>,
    figures: Figures,
}

#[derive(Debug, Default, Clone, Copy)]
struct Figures {
    told: usize,
    again: usize,
    turns: usize,
    lost: usize,
    repeated: usize,
    interrupted: usize,
    resumed: usize,
    resume_failed: usize,
    answered: usize,
}

impl Talker {
    fn new(number: usize, id: String) -> Talker {
        Talker {
            number,
            id,
            random: Random::new(0x9e37_79b9 * (number as u64 + 1)),
            asked: 0,
            told: BTreeMap::new(),
            taken: BTreeMap::new(),
            checked: 0,
            checked_turns: 0,
            problems: Vec::new(),
            figures: Figures::default(),
        }
    }

    fn problem(&mut self, what: String) {
        self.problems.push(format!("session {}: {what}", self.number));
    }

    /// Talks until the connection breaks.
    fn talk(&mut self, address: &str, token: &str) {
        let going = |talker: &mut Talker| match talker.random.below(3) {
            0 => talker.leave_turns(address, token),
            _ => talker.stream_turn(address, token),
        };
        while let Ok(()) = going(self) {}
    }

    /// Returns a prompt and the word by which its answer is recognised. Some agents leave children, and some
    /// ignore signals.
    fn prompt(&mut self) -> (String, String) {
        let mark = format!("mark-{}-{};", self.number, self.asked);
        self.asked += 1;
        let extra = match (self.number % 5, self.random.below(4)) {
            (0, 0) => "[[daemon]]",
            (1, 0) => "[[stubborn]]",
            (2, 0) => "[[permission rm]]",
            (3, 0) => r#"[[tool Bash {"command":"echo x"}]]"#,
            _ => "",
        };
        let chunks = 1 + self.random.below(25);
        (format!("[[say {mark}]] {extra} [[stamps {chunks} 10]]"), mark)
    }

    fn ask<'a>(
        token: &'a str,
        path: &'a str,
        prompt: &str,
        header: (&'a str, &str),
    ) -> WireRequest<'a> {
        WireRequest {
            method: "POST",
            path,
            token: Some(token),
            headers: vec![(header.0, header.1.to_owned())],
            body: Some(json!({"prompt": prompt}).to_string()),
        }
    }

    /// Asks and reads the stream.
    fn stream_turn(&mut self, address: &str, token: &str) -> io::Result<()> {
        let (prompt, mark) = self.prompt();
        let path = format!("/sessions/{}/turn", self.id);
        let mut wire = Wire::connect(address)?;
        wire.ask(&Talker::ask(token, &path, &prompt, ("accept", "text/event-stream")))?;
        let head = wire.head()?;
        let place = head.header("content-location").and_then(|place| place.rsplit('/').next());
        let Some(turn) = place.and_then(|turn| turn.parse::<u32>().ok()) else {
            self.problem(format!("a turn was not taken: {head:?}"));
            return Err(io::ErrorKind::Other.into());
        };
        self.taken.insert(turn, mark);
        let mut last = 0;
        for event in wire.events() {
            if event.id <= last {
                self.problem(format!("{} comes after {last} in a turn's stream", event.id));
            }
            last = event.id;
            let over = event.kind == "turn";
            self.hear(event);
            if over {
                return Ok(());
            }
        }
        Err(io::ErrorKind::UnexpectedEof.into())
    }

    /// Leaves some turns to run, and follows the session until the last of them is over.
    fn leave_turns(&mut self, address: &str, token: &str) -> io::Result<()> {
        let mut last_turn = 0;
        for _ in 0..1 + self.random.below(3) {
            let (prompt, mark) = self.prompt();
            let path = format!("/sessions/{}/turn", self.id);
            let asked = Talker::ask(token, &path, &prompt, ("prefer", "respond-async"));
            let reply = Wire::connect(address)?.call(&asked)?;
            let turn = reply.json()["turn_index"].as_u64().unwrap_or_default() as u32;
            if reply.status() != 202 || turn == 0 {
                self.problem(format!("a turn was not taken: {reply:?}"));
                return Err(io::ErrorKind::Other.into());
            }
            self.taken.insert(turn, mark);
            last_turn = turn;
        }
        // Some of these events were sent before: they must be equal.
        let last = self.told.keys().next_back().copied().unwrap_or_default();
        let from = last.saturating_sub(self.random.below(40));
        let path = format!("/sessions/{}/events", self.id);
        let mut wire = Wire::connect(address)?;
        let headers =
            vec![("accept", "text/event-stream".to_owned()), ("last-event-id", from.to_string())];
        wire.ask(&WireRequest {
            method: "GET",
            path: &path,
            token: Some(token),
            headers,
            body: None,
        })?;
        wire.head()?;
        for (expected, event) in (from + 1..).zip(wire.events()) {
            if event.id != expected {
                self.problem(format!("{} comes instead of {expected} in a stream", event.id));
            }
            let data: Value = serde_json::from_str(&event.data).unwrap_or_default();
            let over = event.kind == "turn" && data["turn_index"] == last_turn;
            self.hear(event);
            if over {
                return Ok(());
            }
        }
        Err(io::ErrorKind::UnexpectedEof.into())
    }

    fn hear(&mut self, event: StreamEvent) {
        match self.told.get(&event.id) {
            Some(known) if *known == event => self.figures.again += 1,
            Some(known) if same_but_for_time(known, &event) => self.figures.again += 1,
            Some(known) => {
                let text = format!("told twice, not the same: {known:?} and {event:?}");
                self.problem(text);
            }
            None => {
                self.figures.told += 1;
                self.told.insert(event.id, event);
            }
        }
    }

    /// Compares the log after this number with the events received.
    fn check_log(&mut self, server: &HobServer, token: &str, after: u64) {
        let log = server.client(token).log_after(&self.id, after);
        for (expected, event) in (after + 1..).zip(&log) {
            if event["seq"] != expected {
                self.figures.repeated += 1;
                self.problem(format!("{} is in the log instead of {expected}", event["seq"]));
            }
        }
        let by_number: BTreeMap<u64, &Value> =
            log.iter().map(|event| (event["seq"].as_u64().unwrap_or_default(), event)).collect();
        let told: Vec<StreamEvent> = self.told.range(after + 1..).map(|(_, e)| e.clone()).collect();
        for told in told {
            let there = by_number.get(&told.id).is_some_and(|event| told.is_logged_as(event));
            if !there {
                self.figures.lost += 1;
                let logged = by_number.get(&told.id);
                self.problem(format!("LOST {told:?}: the log has {logged:?}"));
            } else if told.kind == "turn" {
                let data: Value = serde_json::from_str(&told.data).unwrap_or_default();
                let now = self.turn(server, token, data["turn_index"].as_u64().unwrap_or(0));
                if now != data {
                    self.problem(format!("an answer has changed: {data} is now {now}"));
                }
            }
        }
        if after == self.checked {
            let resumes = log.iter().filter(|event| event["event"] == "resume");
            self.figures.resumed += resumes.filter(|event| event["ok"] == true).count();
            self.checked += log.len() as u64;
        }
    }

    fn turn(&self, server: &HobServer, token: &str, turn: u64) -> Value {
        server.get(&format!("/sessions/{}/turns/{turn}", self.id), Some(token)).json()
    }

    /// Looks at every turn since the last time, once those that waited have run.
    fn check_turns(&mut self, server: &HobServer, token: &str) {
        let answer = server.get(&format!("/sessions/{}", self.id), Some(token)).json();
        let count = answer["turn_count"].as_u64().unwrap_or_default() as u32;
        if let Some((lost, _)) = self.taken.range(count + 1..).next() {
            self.problem(format!("LOST turn {lost}: there are {count}"));
        }
        for index in self.checked_turns + 1..=count {
            let turn = wait_until("every turn comes to an end", || {
                let turn = self.turn(server, token, index.into());
                let waits = turn["state"] == "queued" || turn["state"] == "running";
                (!waits).then_some(turn)
            });
            self.figures.turns += 1;
            let text = turn["text"].as_str().unwrap_or_default();
            let mark = self.taken.get(&index).cloned();
            let mark = mark.unwrap_or_else(|| format!("mark-{}-", self.number));
            match turn["state"].as_str() {
                Some("finished") if text.starts_with(&mark) || text.starts_with("next-") => {}
                Some("interrupted") => self.figures.interrupted += 1,
                Some("resume_failed") => self.figures.resume_failed += 1,
                _ => self.problem(format!("turn {index}, asked for {mark}: {turn}")),
            }
        }
        self.checked_turns = count;
    }

    /// Checks after a restart that all received events are in the log and that the session continues.
    fn check(&mut self, server: &HobServer, token: &str) {
        self.check_log(server, token, self.checked);
        self.check_turns(server, token);
        let word = format!("next-{}", self.asked);
        let path = format!("/sessions/{}/turn", self.id);
        let prompt = json!({"prompt": format!("[[say {word}]]")});
        let answer = server.post(&path, Some(token), &prompt);
        match (answer.status, answer.json()["code"].as_str()) {
            (200, _) if answer.json()["text"] == word => self.figures.answered += 1,
            (502, Some("resume_failed")) => self.figures.resume_failed += 1,
            _ => self.problem(format!("no next turn: {} {}", answer.status, answer.text)),
        }
    }
}

fn same_but_for_time(one: &StreamEvent, other: &StreamEvent) -> bool {
    let data = |event: &StreamEvent| {
        to_microseconds(&serde_json::from_str(&event.data).unwrap_or_default())
    };
    one.kind == other.kind && data(one) == data(other)
}

/// Kills the server and returns how long its agents outlived it. Some of the time the next one is started at
/// once.
fn kill(
    server: HobServer,
    home: &TestHome,
    restart_at_once: bool,
) -> (Duration, Option<HobServer>) {
    let tree = tree::descendants(server.pid());
    let marker = format!("HOME={}", home.user_home().display());
    let killed = Stopwatch::start();
    server.kill();
    let next = restart_at_once.then(|| home.serve());
    loop {
        let alive = |process: &&tree::Process| {
            let now = tree::process(process.pid);
            now.is_some_and(|now| now.start == process.start && !now.zombie)
        };
        let known = tree.iter().filter(alive).count();
        if known == 0 && (next.is_some() || processes_with(&marker).is_empty()) {
            return (killed.elapsed(), next);
        }
        assert!(killed.elapsed() < GONE_WITHIN, "{known} of {} processes are left", tree.len());
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn on_all(talkers: &mut [Talker], work: impl Fn(&mut Talker) + Sync) {
    std::thread::scope(|scope| {
        for talker in talkers {
            let work = &work;
            scope.spawn(move || work(talker));
        }
    });
}

fn fresh(server: &HobServer, token: &str, first: usize) -> Vec<Talker> {
    let numbers = first..first + SESSIONS;
    numbers.map(|number| Talker::new(number, server.client(token).session())).collect()
}

#[test]
fn kills_at_random_moments_lose_no_sent_event() {
    let kills = if is_campaign() { 100 } else { 10 };
    let home = home("");
    let token = home.app("kills");
    let mut random = Random::new(77);
    let mut server = home.serve();
    let mut talkers = fresh(&server, &token, 0);
    let mut past: Vec<Talker> = Vec::new();
    let mut slowest = Duration::ZERO;
    let mut slowest_start = Duration::ZERO;
    for round in 0..kills {
        // Some are killed before they have found themselves.
        let moment = match random.below(4) {
            0 => Duration::from_micros(random.below(60_000)),
            _ => Duration::from_micros(random.below(1_500_000)),
        };
        let restart_at_once = random.below(3) == 0;
        let address = server.address().to_owned();
        let (gone, next) = std::thread::scope(|scope| {
            for talker in &mut talkers {
                let (address, token) = (&address, &token);
                scope.spawn(move || talker.talk(address, token));
            }
            std::thread::sleep(moment);
            kill(server, &home, restart_at_once)
        });
        slowest = slowest.max(gone);
        let started = Instant::now();
        server = next.unwrap_or_else(|| home.serve());
        slowest_start = slowest_start.max(started.elapsed());
        if random.below(4) > 0 || round + 1 == kills {
            on_all(&mut talkers, |talker| talker.check(&server, &token));
        }
        if round % GENERATION == GENERATION - 1 {
            on_all(&mut talkers, |talker| {
                talker.check(&server, &token);
                talker.check_log(&server, &token, 0);
                assert_eq!(server.client(&token).close(&talker.id).status, 200);
                talker.told.clear();
            });
            let first = past.len() + talkers.len();
            past.append(&mut std::mem::replace(&mut talkers, fresh(&server, &token, first)));
        }
    }
    on_all(&mut talkers, |talker| talker.check_log(&server, &token, 0));
    past.append(&mut talkers);
    let sum = |figure: fn(&Figures) -> usize| -> usize {
        past.iter().map(|talker| figure(&talker.figures)).sum()
    };
    let asked: usize = past.iter().map(|talker| talker.asked).sum();
    println!(
        "kills: {kills}, {} events acknowledged ({} of them told again the same), {} lost, {} out of place; \
         {asked} turns asked, {} looked at, {} interrupted; {} agents resumed, {} sessions answered their next \
         turn, {} resume_failed; old agents gone after {} ms at most, a restart took {} ms at most",
        sum(|f| f.told),
        sum(|f| f.again),
        sum(|f| f.lost),
        sum(|f| f.repeated),
        sum(|f| f.turns),
        sum(|f| f.interrupted),
        sum(|f| f.resumed),
        sum(|f| f.answered),
        sum(|f| f.resume_failed),
        slowest.as_millis(),
        slowest_start.as_millis(),
    );
    let problems: Vec<&String> = past.iter().flat_map(|talker| &talker.problems).collect();
    assert!(problems.is_empty(), "{} problems: {problems:#?}", problems.len());
    assert!(server.stop().success());
}
