//! Equal turns captured in several ways, at once and in any order: each is stored once, and no two are merged.

use std::sync::Mutex;

use hob_testkit::{Random, TestHome};

use crate::hooks::{
    Watch, assert_no_process, assert_whole, deferred, deferred_folder, hook_input, serve,
    set_aside, wait_drained,
};
use crate::transcript::{ASSISTANT, Shape, Transcript, USER, assert_stored, exported};

const SHAPES: [Shape; 3] = [Shape::Claude, Shape::Bare, Shape::Codex];

/// Twenty hooks at once on one transcript that grows meanwhile.
fn many_hooks_on_one(shape: Shape, with_server: bool) {
    let (home, watch) = (TestHome::new(), Watch::new());
    let server = with_server.then(|| serve(&home));
    let transcript = Mutex::new(Transcript::new(&home, "shared", shape));
    std::thread::scope(|scope| {
        for number in 0..20 {
            let (home, watch, transcript) = (&home, &watch, &transcript);
            scope.spawn(move || {
                let (path, input) = {
                    let mut transcript = transcript.lock().unwrap();
                    transcript.talk(1);
                    (transcript.path.clone(), hook_input(&transcript, "UserPromptSubmit", None))
                };
                match number % 4 {
                    0 => drop(watch.capture(home, &["--no-spawn"], path.to_str().unwrap())),
                    1 => drop(watch.capture(home, &[], path.to_str().unwrap())),
                    _ => drop(watch.turn(home, &input)),
                }
            });
        }
    });
    assert_whole(&home);
    let transcript = transcript.into_inner().unwrap();
    watch.turn(&home, &hook_input(&transcript, "SessionEnd", None));
    let server = server.unwrap_or_else(|| serve(&home));
    wait_drained(&home);
    assert_stored(&home, &[&transcript]);
    assert!(server.stop().success());
    assert_no_process(&home);
    watch.print(&format!("twenty on one, {shape:?}, server {with_server}"));
}

#[test]
fn twenty_hooks_on_one_transcript_store_each_turn_once() {
    for shape in SHAPES {
        many_hooks_on_one(shape, true);
        many_hooks_on_one(shape, false);
    }
}

#[test]
fn twenty_hooks_on_twenty_transcripts_store_each_turn_once() {
    for with_server in [true, false] {
        let (home, watch) = (TestHome::new(), Watch::new());
        let server = with_server.then(|| serve(&home));
        let mut transcripts: Vec<Transcript> = (0..20)
            .map(|n| Transcript::new(&home, &format!("session-{n}"), SHAPES[n % 3]))
            .collect();
        std::thread::scope(|scope| {
            for (number, transcript) in transcripts.iter_mut().enumerate() {
                let (home, watch) = (&home, &watch);
                scope.spawn(move || {
                    transcript.talk(3);
                    match number % 3 {
                        0 => drop(watch.capture(home, &["--no-spawn"], transcript.path())),
                        1 => drop(watch.capture(home, &[], transcript.path())),
                        _ => drop(watch.turn(home, &hook_input(transcript, "Stop", None))),
                    }
                });
            }
        });
        let server = server.unwrap_or_else(|| serve(&home));
        wait_drained(&home);
        assert_stored(&home, &transcripts.iter().collect::<Vec<_>>());
        assert!(server.stop().success());
        watch.print(&format!("twenty on twenty, server {with_server}"));
    }
}

/// The hook knows the answer before its record is in the file, again and again with the same words.
#[test]
fn answers_before_their_records_are_stored_once() {
    for with_server in [true, false] {
        let (home, watch) = (TestHome::new(), Watch::new());
        let server = with_server.then(|| serve(&home));
        let mut transcripts = Vec::new();
        for shape in SHAPES {
            let mut transcript = Transcript::new(&home, &format!("lag-{shape:?}"), shape);
            for exchange in 0..5 {
                // Prompts may be equal as well.
                transcript.say(USER, if exchange % 2 == 0 { "go on" } else { "and now?" });
                if exchange % 2 == 0 {
                    watch.turn(&home, &hook_input(&transcript, "UserPromptSubmit", None));
                }
                transcript.say_later(ASSISTANT, "Done.");
                let stop = hook_input(&transcript, "Stop", Some("Done."));
                watch.turn(&home, &stop);
                if exchange == 2 {
                    watch.turn(&home, &stop);
                }
                transcript.flush();
                if exchange == 3 {
                    watch.turn(&home, &stop);
                }
            }
            // The last record never came to a hook: only the answer did.
            let input = hook_input(&transcript, "SessionEnd", None);
            watch.turn(&home, &input);
            transcripts.push(transcript);
        }
        let server = server.unwrap_or_else(|| serve(&home));
        wait_drained(&home);
        let all: Vec<&Transcript> = transcripts.iter().collect();
        assert_stored(&home, &all);
        for transcript in &transcripts {
            watch.capture(&home, &[], transcript.path());
            watch.capture(&home, &["--no-spawn"], transcript.path());
            assert!(home.run(&["import", transcript.path()]).status.success());
        }
        assert_stored(&home, &all);
        assert!(server.stop().success());
        watch.print(&format!("answers first, server {with_server}"));
    }
}

/// The hook's words and the record's differ in blanks at the end only.
#[test]
fn answer_with_other_blanks_is_stored_once() {
    let (home, watch) = (TestHome::new(), Watch::new());
    let server = serve(&home);
    let mut transcript = Transcript::new(&home, "blanks", Shape::Claude);
    transcript.say(USER, "first");
    transcript.say_later(ASSISTANT, "Done.\n");
    watch.turn(&home, &hook_input(&transcript, "Stop", Some("Done.")));
    transcript.flush();
    watch.turn(&home, &hook_input(&transcript, "SessionEnd", None));
    let there = exported(&home, "blanks");
    assert_eq!(there.len(), 2, "{there:?}");
    assert!(server.stop().success());
}

/// A prompt that waits in a file, while its answer goes to a server that has come back.
#[test]
fn answer_that_overtakes_its_prompt_keeps_its_order() {
    let (home, watch) = (TestHome::new(), Watch::new());
    let mut transcript = Transcript::new(&home, "overtaking", Shape::Claude);
    let server = serve(&home);
    transcript.say(USER, "first");
    transcript.say(ASSISTANT, "Done.");
    watch.turn(&home, &hook_input(&transcript, "Stop", Some("Done.")));
    server.kill();
    transcript.say(USER, "second");
    watch.turn(&home, &hook_input(&transcript, "UserPromptSubmit", None));
    // The file is kept from the server until the answer is there.
    let folder = deferred_folder(&home);
    let name = deferred(&home).into_iter().next().unwrap();
    let aside = home.user_home().join("aside");
    std::fs::rename(folder.join(&name), &aside).unwrap();
    let server = serve(&home);
    transcript.say_later(ASSISTANT, "Done.");
    watch.turn(&home, &hook_input(&transcript, "Stop", Some("Done.")));
    std::fs::rename(&aside, folder.join(&name)).unwrap();
    wait_drained(&home);
    assert_eq!(exported(&home, "overtaking").len(), 4, "the answer is stored");
    transcript.flush();
    watch.turn(&home, &hook_input(&transcript, "SessionEnd", None));
    assert_stored(&home, &[&transcript]);
    assert!(server.stop().success());
}

/// A prompt and its answer that wait in a file, while the same words of the next exchange go to a server that
/// has come back. In the end both are there, in their order.
fn a_file_that_is_drained_late(shape: Shape) {
    let (home, watch) = (TestHome::new(), Watch::new());
    let mut transcript = Transcript::new(&home, "late", shape);
    transcript.say(USER, "go on");
    transcript.say(ASSISTANT, "Done.");
    watch.turn(&home, &hook_input(&transcript, "Stop", Some("Done.")));
    let folder = deferred_folder(&home);
    let name = deferred(&home).into_iter().next().unwrap();
    let aside = home.user_home().join("aside");
    std::fs::rename(folder.join(&name), &aside).unwrap();
    let server = serve(&home);
    transcript.say(USER, "go on");
    transcript.say_later(ASSISTANT, "Done.");
    watch.turn(&home, &hook_input(&transcript, "Stop", Some("Done.")));
    std::fs::rename(&aside, folder.join(&name)).unwrap();
    wait_drained(&home);
    transcript.flush();
    watch.turn(&home, &hook_input(&transcript, "SessionEnd", None));
    assert_stored(&home, &[&transcript]);
    assert!(server.stop().success());
}

#[test]
fn late_deferral_file_of_claude_is_deduplicated() {
    a_file_that_is_drained_late(Shape::Claude);
}

#[test]
fn late_deferral_file_without_ids_is_deduplicated() {
    a_file_that_is_drained_late(Shape::Bare);
}

#[test]
fn late_deferral_file_of_codex_is_deduplicated() {
    a_file_that_is_drained_late(Shape::Codex);
}

/// Captures in random ways, concurrently and in sequence, while the server comes and goes.
#[test]
fn captures_in_any_way_and_order_store_each_turn_once() {
    let mut random = Random::new(77);
    let rounds = if hob_testkit::is_campaign() { 40 } else { 3 };
    for round in 0..rounds {
        let (home, watch) = (TestHome::new(), Watch::new());
        let mut transcripts: Vec<Transcript> = SHAPES
            .iter()
            .map(|shape| Transcript::new(&home, &format!("mixed-{shape:?}"), *shape))
            .collect();
        let mut server = None;
        for _ in 0..6 {
            server = match (server, random.below(3)) {
                (None, 0..=1) => Some(serve(&home)),
                (Some(server), 0) => {
                    hob_testkit::HobServer::kill(server);
                    None
                }
                (server, _) => server,
            };
            for transcript in &mut transcripts {
                transcript.talk(1 + random.below(2) as usize);
            }
            let plan: Vec<(usize, u64)> =
                (0..6).map(|_| (random.below(3) as usize, random.below(5))).collect();
            std::thread::scope(|scope| {
                for (which, way) in plan {
                    let (home, watch, transcript) = (&home, &watch, &transcripts[which]);
                    let path = transcript.path().to_owned();
                    let input =
                        hook_input(transcript, "Stop", Some(&transcript.said.last().unwrap().1));
                    scope.spawn(move || match way {
                        0 => drop(watch.capture(home, &["--no-spawn"], &path)),
                        1 => drop(watch.capture(home, &[], &path)),
                        2 => {
                            let import = home.run(&["import", &path]);
                            assert!(
                                import.status.success(),
                                "{}",
                                String::from_utf8_lossy(&import.stderr)
                            );
                        }
                        _ => drop(watch.turn(home, &input)),
                    });
                }
            });
        }
        let server = server.unwrap_or_else(|| serve(&home));
        for transcript in &transcripts {
            watch.capture(&home, &[], transcript.path());
        }
        wait_drained(&home);
        assert_eq!(set_aside(&home), [""; 0]);
        assert_stored(&home, &transcripts.iter().collect::<Vec<_>>());
        assert!(server.stop().success());
        assert_no_process(&home);
        watch.print(&format!("all ways, round {round}"));
    }
}
