//! Conversations with the client's own tools that are cut off at random: by a client that leaves during a request, by one
//! that never returns a result, and by `kill -9` of the server. No conversation gets an answer of another one, also if its
//! history was given to a new process, and nothing is left.

use std::io::Write;
use std::net::TcpStream;
use std::sync::Mutex;
use std::time::Duration;

use hob_testkit::leak::processes_with;
use hob_testkit::{HobServer, Random, TestHome, is_campaign, wait_until};
use serde_json::{Value, json};

/// The tool calls of a conversation, each in a request of its own.
const ROUNDS: u64 = 5;
/// The conversations that run at once.
const AT_ONCE: usize = 6;
/// The limit of live agents. Abandoned conversations need some of them for a while.
const MAX_LIVE: usize = 12;

fn home() -> TestHome {
    let home = TestHome::new();
    let agent = TestHome::scripted_agent("claude", "claude-stream", &[]);
    home.configure(&format!(
        "[claude]\ntool_result_timeout_secs = 2\nidle_secs = 2\n[sessions]\nmax_live = {MAX_LIVE}\n{agent}"
    ));
    home
}

/// The state of a conversation, as its client knows it.
struct Conversation {
    number: u64,
    messages: Vec<Value>,
    /// The rounds that were answered.
    rounds: u64,
    is_over: bool,
    /// Whether a process got the history, after a cut.
    is_seeded: bool,
    /// The last text.
    answer: String,
}

impl Conversation {
    fn new(number: u64) -> Conversation {
        let calls: Vec<String> = (1..=ROUNDS)
            .map(|round| format!("[[tool mcp__app__double {}]]", json!({"n": number * 10 + round})))
            .collect();
        let prompt = format!("{} [[say Last: {{result}}]]", calls.join(" [[say {result}]] "));
        let messages = vec![json!({"role": "user", "content": prompt})];
        Conversation {
            number,
            messages,
            rounds: 0,
            is_over: false,
            is_seeded: false,
            answer: String::new(),
        }
    }

    fn body(&self) -> Value {
        json!({"model": "claude", "max_tokens": 9, "messages": self.messages,
            "tools": [{"name": "double", "input_schema": {"type": "object"}}]})
    }

    /// Checks an answer and adds it with the results of its calls.
    fn take(&mut self, message: &Value) {
        let mut results = Vec::new();
        for block in message["content"].as_array().unwrap() {
            if block["type"] == "tool_use" {
                let n = block["input"]["n"].as_u64().unwrap();
                let expected = self.number * 10 + self.rounds + 1;
                assert_eq!(n, expected, "the next call of this conversation: {message}");
                self.rounds += 1;
                results.push(json!({"type": "tool_result", "tool_use_id": block["id"],
                    "content": (n * 2).to_string()}));
            }
        }
        self.messages.push(json!({"role": "assistant", "content": message["content"]}));
        if results.is_empty() {
            self.is_over = true;
            let text = message["content"][0]["text"].as_str().unwrap_or_default();
            let expected = format!("Last: {}", (self.number * 10 + ROUNDS) * 2);
            assert!(text.ends_with(&expected), "{expected:?}: {message}");
            assert_eq!(self.rounds, ROUNDS, "{message}");
            self.answer = text.to_owned();
        } else {
            self.messages.push(json!({"role": "user", "content": results}));
        }
    }

    /// Sends the request and leaves before its answer.
    fn leave(&self, server: &HobServer, token: &str) {
        let body = self.body().to_string();
        let Ok(mut stream) = TcpStream::connect(server.address()) else { return };
        let _ = write!(
            stream,
            "POST /v1/messages HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
    }

    /// Goes on until the conversation is over, the server is gone or the client gives up.
    fn run(&mut self, server: &HobServer, token: &str, mut random: Random) {
        let client = server.client(token);
        while !self.is_over {
            match random.below(40) {
                0..=2 => self.leave(server, token),
                3 => {
                    // The client never comes back.
                    self.is_over = true;
                    return;
                }
                _ => {}
            }
            let Ok(answer) = client.try_call("POST", "/v1/messages", &[], &self.body()) else {
                return;
            };
            match answer.status {
                200 => {
                    self.is_seeded |= answer.headers["x-hob-session"] == "seeded";
                    self.take(&answer.json());
                }
                // The places of abandoned conversations are free after a while.
                529 => std::thread::sleep(Duration::from_millis(50)),
                _ => panic!("{}", answer.text),
            }
        }
    }
}

#[test]
fn conversations_with_client_tools_survive_cuts_and_kills() {
    let (count, phases) = if is_campaign() { (100, 12) } else { (18, 2) };
    let mut random = Random::new(2026);
    let home = home();
    let token = home.app("tools");
    let mut conversations: Vec<Conversation> = (1..=count).map(Conversation::new).collect();
    for phase in 0..=phases {
        let server = home.serve();
        let waiting: Vec<&mut Conversation> =
            conversations.iter_mut().filter(|conversation| !conversation.is_over).collect();
        let queue = Mutex::new(
            waiting
                .into_iter()
                .map(|one| (one, Random::new(random.below(1 << 40))))
                .collect::<Vec<_>>(),
        );
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..AT_ONCE)
                .map(|_| {
                    scope.spawn(|| {
                        loop {
                            let next = queue.lock().unwrap().pop();
                            let Some((conversation, random)) = next else { return };
                            conversation.run(&server, &token, random);
                        }
                    })
                })
                .collect();
            if phase < phases {
                std::thread::sleep(Duration::from_millis(200 + random.below(1000)));
                server.signal(nix::sys::signal::Signal::SIGKILL);
            }
            workers.into_iter().for_each(|worker| worker.join().unwrap());
        });
        if phase < phases {
            server.kill();
            continue;
        }
        assert!(conversations.iter().all(|conversation| conversation.is_over));
        let answered = conversations.iter().filter(|one| !one.answer.is_empty());
        let (seeded, whole): (Vec<_>, Vec<_>) = answered.partition(|one| one.is_seeded);
        let abandoned = conversations.len() - whole.len() - seeded.len();
        let (whole, seeded) = (whole.len(), seeded.len());
        println!("{whole} whole, {seeded} seeded after a cut, {abandoned} abandoned");
        assert!(whole > 0, "some are not cut");
        assert!(seeded > 0 || !is_campaign(), "some are cut");
        let hob = hob_testkit::program("hob").display().to_string();
        wait_until("no agent is left", || {
            let mut found = processes_with(&format!("HOME={}", home.user_home().display()));
            found.retain(|pid| {
                let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                line.split(|byte| *byte == 0).next() != Some(hob.as_bytes())
            });
            found.is_empty().then_some(())
        });
        // Every place is free again.
        let client = server.client(&token);
        for number in 0..MAX_LIVE as u64 {
            let answer = client.post("/v1/messages", &Conversation::new(1000 + number).body());
            assert_eq!(answer.json()["stop_reason"], "tool_use", "{}", answer.text);
        }
        assert!(server.stop().success());
        return;
    }
}
