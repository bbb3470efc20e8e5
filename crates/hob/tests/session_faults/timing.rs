//! Neither the answer nor its duration shows whether a name exists.

use std::time::{Duration, Instant};

use hob_testkit::wire::{Reply, WireRequest};
use hob_testkit::{Wire, is_campaign};
use serde_json::json;

use crate::setup::home;

#[test]
fn session_of_another_app_answers_like_an_unknown_one() {
    let count = if is_campaign() { 2_000 } else { 200 };
    let home = home("");
    let server = home.serve();
    let (first, second) = (home.app("first"), home.app("second"));
    let client = server.client(&first);
    let id = client.create(&json!({"agent": "acp", "meta": {"purpose": "timing"}}));
    client.ask(&id, "hello");
    let existing = format!("/sessions/{id}");
    let mut wire = Wire::connect(server.address()).unwrap();
    let mut ask = |path: &str| -> (Reply, Duration) {
        let asked =
            WireRequest { method: "GET", path, token: Some(&second), ..WireRequest::default() };
        let begin = Instant::now();
        let reply = wire.call(&asked).expect("an answer");
        (reply, begin.elapsed())
    };
    let mut times: [Vec<Duration>; 2] = [Vec::new(), Vec::new()];
    for round in 0..count {
        let random = format!("/sessions/{}", uuid::Uuid::new_v4().simple());
        // Each is the first of the two as often as the other.
        let mut pair = [(0, existing.as_str()), (1, random.as_str())];
        if round % 2 == 1 {
            pair.reverse();
        }
        let replies = pair.map(|(which, path)| {
            let (reply, took) = ask(path);
            times[which].push(took);
            (reply.head.without_request_id(), reply.body)
        });
        assert_eq!(replies[0].0.status, 404);
        assert_eq!(replies[0], replies[1], "the answers are the same");
    }
    let medians = times.map(|mut times| {
        times.sort();
        times[times.len() / 2].as_secs_f64() * 1e6
    });
    println!(
        "timing: {count} each, median {:.1} us for another app's session, {:.1} us for none, difference {:.1} us",
        medians[0],
        medians[1],
        medians[0] - medians[1]
    );
    assert!(server.stop().success());
}
