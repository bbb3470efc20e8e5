//! Sessions survive an orderly stop and a kill of the server.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use hob_testkit::{HobServer, Stopwatch, TestHome, wait_until};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::api::*;
use crate::backend::{Backend, backend_tests};

backend_tests!([file, postgres, cluster]: [
    session_continues_after_a_restart,
    replay_of_a_loaded_conversation_is_no_part_of_the_turn,
    lost_conversation_is_resume_failed_after_a_restart,
    session_without_a_turn_starts_after_a_restart,
    sigterm_lets_a_turn_finish,
    sigterm_interrupts_a_turn_after_the_grace,
    clients_of_an_interrupted_turn_are_answered,
    kill_9_interrupts_the_turn_and_keeps_its_events,
    queued_turns_run_after_a_kill,
    queued_turns_run_after_a_stop,
    client_of_a_queued_turn_is_answered_at_once,
    restart_keeps_open_and_closed_sessions,
    idempotency_keys_survive_a_restart,
    sweeper_closes_stale_sessions_after_a_restart,
    kills_at_any_moment_lose_nothing_acknowledged,
    open_session_keeps_an_idle_server_running,
    kill_while_agents_start_leaves_no_lock,
]);

fn stopped(server: HobServer) {
    assert_eq!(server.stop().code(), Some(0));
}

/// After an orderly stop a session is as it was: its next turn goes on with the conversation.
fn session_continues_after_a_restart(backend: Backend) {
    let api = backend.api("");
    let id = api.create(&json!({"agent": "acp", "meta": {"a": 1}, "permissions": "allow"}));
    assert_eq!(api.turn(&id, "remember the crane").status, 200);
    let (before, log) = (api.describe(&id), api.log(&id));
    let api = api.restart_after(stopped);
    assert_eq!(api.describe(&id), before);
    assert_eq!(api.log(&id), log);
    assert_eq!(api.ask(&id, "[[say {history}]]"), "remember the crane");
    assert_eq!(api.describe(&id)["turn_count"], 2);
    assert!(api.ask(&id, "[[permission x]]").starts_with("permission x: yes"), "as it was made");
    let log = api.log(&id);
    assert_gapless(&log);
    let resumed = log.iter().find(|event| event["event"] == "resume").expect("it is noted");
    assert_eq!(resumed["ok"], true);
}

/// Some agents say their whole past again when they load a conversation, even after the response. None
/// of it reaches the next turn's text, the events or the memory.
fn replay_of_a_loaded_conversation_is_no_part_of_the_turn(backend: Backend) {
    for replay in ["early", "late", "split"] {
        let agent = TestHome::scripted_agent("loader", "acp", &["acp", "--replay", replay]);
        let api = backend.api(&format!("{agent}\n"));
        let id = api.create(&json!({"agent": "loader"}));
        let pairs = [("first crane", "one heron"), ("second crane", "two herons")];
        for (prompt, reply) in pairs {
            assert_eq!(api.ask(&id, &format!("{prompt} [[say {reply}]]")), reply);
        }
        wait_until("four are remembered", || (api.turns_of(&api.token) == 4).then_some(()));
        let api = api.restart_after(|server| server.kill());
        assert_eq!(api.ask(&id, "third crane [[say three herons]]"), "three herons", "{replay}");
        let turn = api.get_turn(&id, 3);
        let events = turn["events"].to_string();
        for old in ["first", "one heron", "second", "two herons", "user_message_chunk"] {
            assert!(!events.contains(old), "{replay}: {old} in {events}");
        }
        let resumed = api.log(&id);
        assert!(resumed.iter().any(|event| event["event"] == "resume" && event["ok"] == true));
        // The turn after it is undisturbed as well, and by then the memory has all of the third.
        assert_eq!(api.ask(&id, "fourth [[say {history}]]").matches("crane").count(), 3);
        wait_until("all is remembered", || (api.turns_of(&api.token) >= 8).then_some(()));
        assert_eq!(api.turns_of(&api.token), 8, "{replay}: a prompt and an answer per turn");
    }
}

/// A conversation that is lost while the server is down is `resume_failed`.
fn lost_conversation_is_resume_failed_after_a_restart(backend: Backend) {
    let api = backend.api("");
    let id = api.session();
    assert_eq!(api.turn(&id, "remember the crane").status, 200);
    let api = api.restart_after(|server| server.kill());
    std::fs::remove_dir_all(api.conversations()).unwrap();
    assert_error(&api.turn(&id, "do you remember?"), 502, "resume_failed", "");
    assert_eq!(api.get_turn(&id, 2)["state"], "resume_failed");
}

/// Before the first turn there is no conversation to resume.
fn session_without_a_turn_starts_after_a_restart(backend: Backend) {
    let api = backend.api("");
    let id = api.session();
    let api = api.restart_after(|server| server.kill());
    assert_eq!(api.ask(&id, "hi"), "echo: hi");
    assert!(!api.audit_kinds(&id).contains(&"resume".to_owned()));
}

/// SIGTERM lets a running turn finish, takes no new one, and ends with 0.
fn sigterm_lets_a_turn_finish(backend: Backend) {
    let api = {
        let api = backend.api("");
        let id = api.session();
        let folder = api.workspace(&id);
        std::thread::scope(|scope| {
            let asked = scope.spawn(|| api.turn(&id, "[[say begun]] [[until go]] [[say done]]"));
            wait_until("it runs", || (api.describe(&id)["turn_count"] == 1).then_some(()));
            wait_until("it has begun", || {
                (!api.get_turn(&id, 1)["events"].as_array().unwrap().is_empty()).then_some(())
            });
            api.server.signal(Signal::SIGTERM);
            wait_until("no new connection is taken", || {
                TcpStream::connect(api.server.address()).is_err().then_some(())
            });
            std::fs::write(folder.join("go"), "").unwrap();
            let answer = asked.join().unwrap();
            assert_eq!((answer.status, &answer.json()["text"]), (200, &json!("begundone")));
        });
        api
    };
    let api = api.restart_after(|mut server| assert_eq!(server.wait().code(), Some(0)));
    let id = api.get("/sessions").json()["sessions"][0]["session_id"].as_str().unwrap().to_owned();
    assert_eq!(api.get_turn(&id, 1)["state"], "finished");
}

const ENDLESS: &str = "[[stubborn]] [[deaf]] [[daemon]] [[say half]] [[hang]]";

/// After the grace a turn is interrupted, and the next one goes on.
fn sigterm_interrupts_a_turn_after_the_grace(backend: Backend) {
    let api = backend.api("shutdown_grace_secs = 1\n");
    let id = api.session();
    assert_eq!(api.turn(&id, "remember the crane").status, 200);
    let mut stream = api.stream_turn(&id, ENDLESS);
    assert!(stream.next().unwrap().data.contains("half"));
    let mut follower = api.follow(&id, 0);
    follower.next().unwrap();
    let waits = api.start_turn(&id, "[[say later]]");
    let stopwatch = Stopwatch::start();
    let api = api.restart_after(stopped);
    // Contract, section 2: on SIGTERM running turns may finish for `shutdown_grace_secs`, here 1. The limit
    // is below the default of 10.
    stopwatch
        .assert_within(Duration::from_secs(9), "running turns may finish for the grace period");
    let turn = api.get_turn(&id, 2);
    assert_eq!((&turn["state"], &turn["text"]), (&json!("interrupted"), &json!("half")));
    // The one that waited was taken in, so it runs.
    assert_eq!(api.wait_for_turn(&id, waits, "finished")["text"], "later");
    assert_gapless(&api.log(&id));
    assert_eq!(api.ask(&id, "[[say {history}]]"), "remember the crane|[[say later]]");
}

/// Clients that wait for an interrupted turn get an answer.
fn clients_of_an_interrupted_turn_are_answered(backend: Backend) {
    let mut api = backend.api("shutdown_grace_secs = 1\n");
    let id = api.session();
    let mut stream = api.stream_turn(&id, ENDLESS);
    assert!(stream.next().unwrap().data.contains("half"));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| api.turn(&id, "waits in the queue"));
        wait_until("one waits", || (api.describe(&id)["turn_count"] == 2).then_some(()));
        api.server.signal(Signal::SIGTERM);
        let last = stream.by_ref().last();
        let answer = waiting.join();
        let told = last.expect("the stream goes on").json();
        assert_eq!((&told["ok"], &told["code"]), (&json!(false), &json!("interrupted")));
        let answer = answer.expect("who waits is answered");
        assert_eq!(answer.status, 503, "{}", answer.text);
    });
    assert_eq!(api.server.wait().code(), Some(0));
}

/// After a kill in the middle of a turn its events are stored, the turn is interrupted, the session is open,
/// and no process is left.
fn kill_9_interrupts_the_turn_and_keeps_its_events(backend: Backend) {
    let api = backend.api("");
    let id = api.session();
    assert_eq!(api.turn(&id, "remember the crane").status, 200);
    let mut stream = api.stream_turn(&id, "[[daemon]] [[stubborn]] [[chunks 30]] [[hang]]");
    let seen: Vec<StreamEvent> = stream.by_ref().take(30).collect();
    let killed = Stopwatch::start();
    let (home, token) = api.end_with(HobServer::kill);
    wait_until("no process is left", || processes_of(&home).is_empty().then_some(()));
    // Contract, section 2.
    killed.assert_within(Duration::from_secs(3), "after kill -9 every agent is gone within 3 s");
    let api = backend.start(home, &token);
    let turn = api.get_turn(&id, 2);
    assert_eq!((&turn["state"], &turn["code"]), (&json!("interrupted"), &json!("interrupted")));
    let events: Vec<Value> = seen.iter().map(StreamEvent::json).collect();
    assert_eq!(turn["events"], json!(events), "events that were sent are not lost");
    let log = api.log(&id);
    assert_gapless(&log);
    let last = log.last().unwrap();
    assert_eq!((&last["event"], &last["state"]), (&json!("turn"), &json!("interrupted")));
    assert_eq!(api.describe(&id)["state"], "idle");
    // A reader that was cut goes on where it was.
    let rest = api.follow(&id, seen.last().unwrap().id).until(|event| event.kind == "turn");
    assert_eq!(rest.len(), 1);
    assert_eq!(rest[0].json()["code"], "interrupted");
    assert_eq!(api.ask(&id, "[[say {history}]]"), "remember the crane");
}

/// Turns that were acknowledged with 202 run after the restart, in order, without another request.
fn queued_turns_run_after_a_kill(backend: Backend) {
    let api = backend.api("");
    let id = api.session();
    api.start_gated_turn(&id);
    let waiting = [api.start_turn(&id, "first"), api.start_turn(&id, "second")];
    let api = api.restart_after(|server| server.kill());
    for (turn, text) in waiting.iter().zip(["echo: first", "echo: second"]) {
        assert_eq!(api.wait_for_turn(&id, *turn, "finished")["text"], text);
    }
    assert_eq!(api.get_turn(&id, 1)["state"], "interrupted");
    let log = api.log(&id);
    assert_gapless(&log);
    let ended: Vec<u64> = log
        .iter()
        .filter(|event| event["event"] == "turn")
        .map(|event| event["turn_index"].as_u64().unwrap())
        .collect();
    assert_eq!(ended, [1, 2, 3]);
}

/// So it is after an orderly stop.
fn queued_turns_run_after_a_stop(backend: Backend) {
    let api = backend.api("shutdown_grace_secs = 0\n");
    let id = api.session();
    api.start_gated_turn(&id);
    let waiting = api.start_turn(&id, "later");
    let api = api.restart_after(stopped);
    assert_eq!(api.wait_for_turn(&id, waiting, "finished")["text"], "echo: later");
    assert_eq!(api.get_turn(&id, 1)["state"], "interrupted");
}

/// A client that waited for a queued turn held up the stop for the whole grace.
fn client_of_a_queued_turn_is_answered_at_once(backend: Backend) {
    let api = backend.api("shutdown_grace_secs = 600\n");
    let id = api.session();
    api.start_gated_turn(&id);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| api.turn(&id, "later"));
        let second = format!("/sessions/{id}/turns/2");
        wait_until("it is queued", || (api.get(&second).json()["state"] == "queued").then_some(()));
        api.server.signal(Signal::SIGTERM);
        assert_error(&waiting.join().unwrap(), 503, "stopping", "after the next start");
    });
}

/// Open sessions are live after a restart too; closed ones stay closed, with their log.
fn restart_keeps_open_and_closed_sessions(backend: Backend) {
    let api = backend.api(&sessions("max_live = 2"));
    let closed = api.session();
    assert_eq!(api.turn(&closed, "hi").status, 200);
    assert_eq!(api.close(&closed).status, 200);
    let open = [api.session(), api.session()];
    let log = api.log(&closed);
    let api = api.restart_after(|server| server.kill());
    let body = json!({"agent": "acp"});
    assert_error(&api.post("/sessions", &body), 503, "pool_full", "2");
    assert_eq!(api.describe(&closed)["state"], "closed");
    assert_eq!(api.turn(&closed, "hi").status, 410);
    assert_eq!(api.close(&closed).json()["already_closed"], true);
    assert_eq!(api.log(&closed), log);
    assert_eq!(api.get("/sessions").json()["count"], 3);
    assert_eq!(api.close(&open[0]).json(), json!({"ok": true}));
    assert_eq!(api.post("/sessions", &body).status, 200);
}

/// A repeat after the restart still runs nothing, whether the first one ended or was interrupted.
fn idempotency_keys_survive_a_restart(backend: Backend) {
    let api = backend.api("");
    let id = api.session();
    let key = |name: &'static str| [("idempotency-key", name)];
    let first = api.turn_with(&id, &key("done"), "hello");
    assert_eq!(first.status, 200);
    let prompt = "[[say half]] [[hang]]";
    let taken = api.turn_with(&id, &[ASYNC, key("hangs")[0]], prompt);
    assert_eq!(taken.status, 202);
    wait_until("it runs", || (api.get_turn(&id, 2)["events"] != json!([])).then_some(()));
    let api = api.restart_after(|server| server.kill());
    let again = api.turn_with(&id, &key("done"), "hello");
    assert_eq!((again.status, again.text), (200, first.text));
    assert_eq!(api.turn_with(&id, &key("done"), "other").status, 409);
    let interrupted = api.turn_with(&id, &key("hangs"), prompt);
    assert_error(&interrupted, 503, "interrupted", "");
    assert_eq!(api.describe(&id)["turn_count"], 2);
}

/// A session that went stale while the server was down is closed by its sweeper.
fn sweeper_closes_stale_sessions_after_a_restart(backend: Backend) {
    let api = backend.api(&sessions("ttl_secs = 1\nsweep_interval_secs = 1"));
    let id = api.session();
    let api = api.restart_after(|server| server.kill());
    wait_until("it is closed", || (api.describe(&id)["state"] == "closed").then_some(()));
    assert_eq!(api.audit_kinds(&id), ["create", "sweep_close"]);
}

/// Kills at any moment lose nothing acknowledged, and no event is sent twice.
fn kills_at_any_moment_lose_nothing_acknowledged(backend: Backend) {
    let mut api = backend.api("");
    let id = api.session();
    let mut told: Vec<StreamEvent> = Vec::new();
    for round in 0..4 {
        let mut stream = api.stream_turn(&id, "[[chunks 40]] [[sleep 2]] [[chunks 40]]");
        told.extend(stream.by_ref().take(5 + round * 25));
        api = api.restart_after(|server| server.kill());
    }
    let log = api.log(&id);
    assert_gapless(&log);
    let stored: Vec<StreamEvent> = api.follow(&id, 0).take(log.len()).collect();
    for event in &told {
        assert!(stored.contains(event), "{event:?} is gone");
    }
    assert_eq!(api.describe(&id)["turn_count"], 4);
    assert_eq!(log.iter().filter(|event| event["event"] == "turn").count(), 4);
}

/// An open session keeps an idle server alive; once it is closed, the server stops by itself.
fn open_session_keeps_an_idle_server_running(backend: Backend) {
    let home = hob_testkit::TestHome::new();
    backend.configure(&home, &sessions("ttl_secs = 2\nsweep_interval_secs = 1"));
    let token = home.app("tests");
    let server = backend.serve_with(&home, |command| {
        command.env("HOB_IDLE_SHUTDOWN_SECS", "1");
    });
    let api = Api::new(backend, server, home, &token);
    let since = Instant::now();
    let id = api.session();
    let api = api.restart_after(|mut server| assert_eq!(server.wait().code(), Some(0)));
    // A busy machine can only make this longer.
    assert!(since.elapsed() > Duration::from_secs(2), "stopped before the session's ttl_secs");
    assert_eq!(api.audit_kinds(&id), ["create", "sweep_close"]);
}

/// A server that is killed while it starts an agent leaves no lock for the next one.
fn kill_while_agents_start_leaves_no_lock(backend: Backend) {
    let mut api = backend.api("");
    for _ in 0..8 {
        api.session();
        api = api.restart_after(|server| server.kill());
    }
    assert_eq!(api.get("/sessions").json()["count"], 8);
}
