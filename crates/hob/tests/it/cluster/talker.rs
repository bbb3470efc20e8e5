//! A client of a cluster under faults. It asks any node, repeats a request with its key when a node does not answer, and
//! resumes a cut stream by `Last-Event-ID`. It keeps what it received and compares it with the ledger in the end.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::time::{Duration, Instant};

use hob_testkit::wire::{Reply, StreamEvent, WireRequest, to_microseconds};
use hob_testkit::{Cluster, Random, Wire};
use serde_json::{Value, json};

/// A node that is silent for this long is given up, and another one is asked.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(4);
/// Whatever happens to nodes, an answer comes within this time.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// How many turns a session gets to answer in the end.
const MAX_LAST_TURNS: usize = 4;
/// Between two attempts.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

pub struct Talker {
    number: usize,
    pub id: String,
    random: Random,
    /// Turns by their numbers, with the word by which their answers are known.
    taken: BTreeMap<u64, String>,
    asked: usize,
    /// Events by their numbers.
    told: BTreeMap<u64, StreamEvent>,
    pub problems: Vec<String>,
    pub figures: Figures,
}

#[derive(Debug, Default, Clone, Copy)]
pub struct Figures {
    pub told: usize,
    pub again: usize,
    pub reconnected: usize,
    pub asked_again: usize,
    pub finished: usize,
    pub interrupted: usize,
    pub resume_failed: usize,
    /// Turns that failed because it is unknown whether an event was stored: the database went away in the middle.
    pub unwritten: usize,
    pub lost: usize,
    pub slowest_ask: Duration,
    pub slowest_turn: Duration,
}

/// The cluster and the token of all talkers.
pub struct ClusterClient<'a> {
    pub cluster: &'a Cluster,
    pub token: &'a str,
}

impl ClusterClient<'_> {
    /// One request to a node that is chosen by chance.
    fn call(
        &self,
        method: &str,
        path: &str,
        more: &[(&str, &str)],
        body: Option<String>,
    ) -> io::Result<Reply> {
        let headers = more.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        let asked = WireRequest { method, path, token: Some(self.token), headers, body };
        let mut wire = Wire::connect_within(
            &self.cluster.address(self.cluster.random_node()),
            SILENCE_TIMEOUT,
        )?;
        wire.call(&asked)
    }

    /// Repeats a request until there is an answer that does not blame a node or the database.
    pub fn insist(
        &self,
        method: &str,
        path: &str,
        more: &[(&str, &str)],
        body: Option<String>,
    ) -> Result<(Reply, usize), String> {
        let since = Instant::now();
        let mut last = String::new();
        for attempt in 0.. {
            match self.call(method, path, more, body.clone()) {
                Ok(reply) if !matches!(reply.status(), 500 | 503) => return Ok((reply, attempt)),
                Ok(reply) => last = reply.body,
                Err(error) => last = error.to_string(),
            }
            if since.elapsed() > ANSWER_TIMEOUT {
                break;
            }
            std::thread::sleep(RETRY_PAUSE);
        }
        Err(format!("no answer to {method} {path} for {ANSWER_TIMEOUT:?}: {last}"))
    }

    /// Repeats a turn until it has an answer. A node that a busy machine keeps from its heartbeat loses its sessions, so a
    /// turn that was interrupted is asked again as a new one, a few times.
    fn insist_on_a_turn(&self, path: &str, body: &str) -> Result<Reply, String> {
        let mut turn = 1;
        let since = Instant::now();
        loop {
            let key = format!("the last {turn}");
            let answer =
                self.call("POST", path, &[("idempotency-key", &key)], Some(body.to_owned()));
            match answer {
                Ok(reply) if !matches!(reply.status(), 500 | 503) => return Ok(reply),
                Ok(reply) if reply.json()["code"] == "interrupted" && turn < MAX_LAST_TURNS => {
                    turn += 1;
                }
                last if since.elapsed() > ANSWER_TIMEOUT => {
                    return Err(format!(
                        "no answer to turn {turn} for {ANSWER_TIMEOUT:?}: {last:?}"
                    ));
                }
                _ => {}
            }
            std::thread::sleep(RETRY_PAUSE);
        }
    }

    fn json(&self, path: &str) -> Result<Value, String> {
        let (reply, _) = self.insist("GET", path, &[], None)?;
        if reply.status() == 200 { Ok(reply.json()) } else { Err(format!("{path}: {reply:?}")) }
    }
}

impl Talker {
    pub fn new(number: usize, id: String, seed: u64) -> Talker {
        Talker {
            number,
            id,
            random: Random::new(seed.wrapping_add(0x9e37_79b9 * (number as u64 + 1)) | 1),
            taken: BTreeMap::new(),
            asked: 0,
            told: BTreeMap::new(),
            problems: Vec::new(),
            figures: Figures::default(),
        }
    }

    fn problem(&mut self, what: impl Into<String>) {
        self.problems.push(format!("session {} ({}): {}", self.number, self.id, what.into()));
    }

    /// Talks until that time, and then until the last answer.
    pub fn talk(&mut self, place: &ClusterClient<'_>, until: Instant) {
        while Instant::now() < until && self.problems.is_empty() {
            let mut last = 0;
            for _ in 0..1 + self.random.below(3) {
                match self.ask(place) {
                    Ok(turn) => last = turn,
                    Err(error) => return self.problem(error),
                }
            }
            if let Err(error) = self.hear_until(place, last) {
                return self.problem(error);
            }
        }
    }

    /// Asks for a turn until it is acknowledged.
    fn ask(&mut self, place: &ClusterClient<'_>) -> Result<u64, String> {
        let mark = format!("mark-{}-{};", self.number, self.asked);
        self.asked += 1;
        let chunks = 1 + self.random.below(12);
        let prompt = format!("[[note {mark}]] [[say {mark}]] [[stamps {chunks} 100]]");
        let body = json!({"prompt": prompt}).to_string();
        let path = format!("/sessions/{}/turn", self.id);
        let headers = [("prefer", "respond-async"), ("idempotency-key", mark.as_str())];
        let since = Instant::now();
        let (reply, again) = place.insist("POST", &path, &headers, Some(body))?;
        self.figures.asked_again += again;
        self.figures.slowest_ask = self.figures.slowest_ask.max(since.elapsed());
        let turn = reply.json()["turn_index"].as_u64();
        let Some(turn) = turn.filter(|_| reply.status() == 202) else {
            return Err(format!("a turn was not taken: {reply:?}"));
        };
        match self.taken.insert(turn, mark.clone()) {
            None => Ok(turn),
            Some(other) => Err(format!("turn {turn} is that of {mark} and of {other}")),
        }
    }

    /// Hears the session until a turn is over.
    fn hear_until(&mut self, place: &ClusterClient<'_>, turn: u64) -> Result<(), String> {
        let since = Instant::now();
        // Some of these events were sent before: they must be equal.
        let mut last = self.told.keys().next_back().copied().unwrap_or_default();
        last = last.saturating_sub(self.random.below(10));
        while since.elapsed() < ANSWER_TIMEOUT {
            match self.hear(place, &mut last, turn) {
                Ok(true) => {
                    let slowest = self.figures.slowest_turn;
                    self.figures.slowest_turn = slowest.max(since.elapsed());
                    return Ok(());
                }
                Ok(false) | Err(_) => self.figures.reconnected += 1,
            }
            if !self.problems.is_empty() {
                return Ok(());
            }
            std::thread::sleep(RETRY_PAUSE);
        }
        let state = place.json(&format!("/sessions/{}/turns/{turn}", self.id));
        Err(format!("turn {turn} is not over after {ANSWER_TIMEOUT:?}: {state:?}"))
    }

    /// One stream of one node. `true` when the turn was over in it.
    fn hear(&mut self, place: &ClusterClient<'_>, last: &mut u64, turn: u64) -> io::Result<bool> {
        let path = format!("/sessions/{}/events", self.id);
        let mut wire = Wire::connect_within(
            &place.cluster.address(place.cluster.random_node()),
            SILENCE_TIMEOUT,
        )?;
        let headers =
            vec![("accept", "text/event-stream".to_owned()), ("last-event-id", last.to_string())];
        let token = Some(place.token);
        wire.ask(&WireRequest { method: "GET", path: &path, token, headers, body: None })?;
        let head = wire.head()?;
        if head.status != 200 {
            if !matches!(head.status, 500 | 503) {
                self.problem(format!("no stream: {head:?}"));
            }
            return Ok(false);
        }
        for event in wire.events() {
            if event.id != *last + 1 {
                self.problem(format!("{} comes after {last} in a stream", event.id));
            }
            *last = event.id;
            let data: Value = serde_json::from_str(&event.data).unwrap_or_default();
            let over = event.kind == "turn" && data["turn_index"] == turn;
            self.keep(event);
            if over {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn keep(&mut self, event: StreamEvent) {
        match self.told.get(&event.id) {
            Some(known) if same(known, &event) => self.figures.again += 1,
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

    /// Checks after the faults: sent events are in the log, every turn is over, and the session answers or says why not.
    pub fn check(&mut self, place: &ClusterClient<'_>, notes: &HashMap<String, usize>) {
        if let Err(error) = self.try_check(place, notes) {
            self.problem(error);
        }
    }

    fn try_check(
        &mut self,
        place: &ClusterClient<'_>,
        notes: &HashMap<String, usize>,
    ) -> Result<(), String> {
        let mut log: Vec<Value> = Vec::new();
        loop {
            let path = format!("/sessions/{}/events?after={}", self.id, log.len());
            let page = place.json(&path)?;
            log.extend(page["events"].as_array().into_iter().flatten().cloned());
            if page["more"] != true {
                break;
            }
        }
        if let Some(wrong) = (1..).zip(&log).find(|(n, event)| event["seq"] != *n) {
            self.problem(format!("the log has a gap: {wrong:?}"));
        }
        for told in self.told.values().cloned().collect::<Vec<_>>() {
            let logged = log.get(told.id as usize - 1);
            if !logged.is_some_and(|logged| told.is_logged_as(logged)) {
                self.figures.lost += 1;
                self.problem(format!("LOST {told:?}: the log has {logged:?}"));
            }
        }
        let look = place.json(&format!("/sessions/{}", self.id))?;
        if look["turn_count"] != self.taken.len() {
            self.problem(format!("{} turns were taken: {look}", self.taken.len()));
        }
        for (turn, mark) in self.taken.clone() {
            let at = place.json(&format!("/sessions/{}/turns/{turn}", self.id))?;
            let ends =
                log.iter().filter(|e| e["event"] == "turn" && e["turn_index"] == turn).count();
            let noted = notes.get(&mark).copied().unwrap_or_default();
            let text = at["text"].as_str().unwrap_or_default();
            match at["state"].as_str() {
                Some("finished") if text.starts_with(&mark) && noted == 1 => {
                    self.figures.finished += 1;
                }
                Some("interrupted") if noted <= 1 => self.figures.interrupted += 1,
                Some("failed")
                    if at["error"] == "the ledger could not be written" && noted <= 1 =>
                {
                    self.figures.unwritten += 1;
                }
                Some("resume_failed") if noted == 0 => self.figures.resume_failed += 1,
                _ => self.problem(format!(
                    "turn {turn}, {mark}, which ran {noted} times: {}",
                    short(&at)
                )),
            }
            if ends != 1 {
                self.problem(format!("turn {turn} has {ends} ends in the log"));
            }
        }
        let word = format!("next-{}", self.number);
        let body = json!({"prompt": format!("[[say {word}]]")}).to_string();
        let path = format!("/sessions/{}/turn", self.id);
        let reply = place.insist_on_a_turn(&path, &body)?;
        match (reply.status(), reply.json()["code"].as_str()) {
            (200, _) if reply.json()["text"] == word => {}
            (502, Some("resume_failed")) => self.figures.resume_failed += 1,
            _ => self.problem(format!("no next turn: {reply:?}")),
        }
        Ok(())
    }
}

fn same(one: &StreamEvent, other: &StreamEvent) -> bool {
    let data = |event: &StreamEvent| {
        to_microseconds(&serde_json::from_str(&event.data).unwrap_or_default())
    };
    one.kind == other.kind && (one.data == other.data || data(one) == data(other))
}

/// A turn without its events.
fn short(turn: &Value) -> Value {
    let mut turn = turn.clone();
    turn["events"] = json!(turn["events"].as_array().map(Vec::len));
    turn
}
