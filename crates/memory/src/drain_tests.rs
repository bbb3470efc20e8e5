use hob_domain::DataKey;
use hob_testkit::{SteeredMemory, wait_until};

use super::*;
use crate::capture::backlog::FAILED_SUFFIX;
use crate::capture::seal::{OpeningKey, OpeningKeys};

struct Setup {
    memory: Arc<SteeredMemory>,
    folder: tempfile::TempDir,
}

impl Setup {
    fn new() -> Setup {
        Setup { memory: Arc::default(), folder: tempfile::tempdir().unwrap() }
    }

    fn add(&self, name: &str, text: &str) {
        let content = format!(
            "{{\"version\":1,\"session_id\":\"{name}\",\"cwd\":\"/nowhere\"}}\n\
             {{\"text\":\"{text}\",\"role\":\"user\"}}\n"
        );
        fs::write(self.folder.path().join(name), content).unwrap();
    }

    /// Drains as a server does that is then killed, once a condition holds.
    async fn run_until(&self, deadline: Duration, what: &str, is_done: impl Fn() -> bool) {
        let keys = OpeningKeys::from(OpeningKey::of(&DataKey::from_bytes([3; 32])));
        let engine = Engine::new(self.memory.clone(), keys, Duration::ZERO);
        let mut drain = Drain::new(engine, self.folder.path().to_owned());
        drain.files.deadline = deadline;
        drain.pause_after_end = Duration::from_millis(5);
        let running = tokio::spawn(drain.run(CancellationToken::new()));
        wait_until(what, || is_done().then_some(()));
        running.abort();
        let _ = running.await;
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder.path()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    fn counted(&self) -> Option<String> {
        fs::read_to_string(self.folder.path().join("bad-1.jsonl.attempts")).ok()
    }
}

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn file_that_takes_too_long_is_set_aside_and_holds_no_others_back() {
    let setup = Setup::new();
    setup.add("bad-1.jsonl", "[[hang]]");
    setup.add("good-1.jsonl", "good");
    let aside = format!("bad-1{FAILED_SUFFIX}");
    setup
        .run_until(Duration::from_millis(600), "it is set aside", || {
            setup.names() == [aside.clone()]
        })
        .await;
    assert_eq!(setup.memory.stored(), ["good"]);
    let events = setup.memory.events_of("set_aside");
    assert!(events.len() == 1 && events[0].contains("takes too long"), "{events:?}");
    assert_eq!(setup.memory.calls().len(), 2 + MAX_RETRIES as usize);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn file_whose_work_panics_is_set_aside_and_does_not_end_the_drain() {
    let setup = Setup::new();
    setup.add("bad-1.jsonl", "[[panic]]");
    setup.add("good-1.jsonl", "good");
    let aside = format!("bad-1{FAILED_SUFFIX}");
    setup.run_until(HOUR, "it is set aside", || setup.names() == [aside.clone()]).await;
    assert_eq!(setup.memory.stored(), ["good"]);
    let events = setup.memory.events_of("set_aside");
    assert!(events.len() == 1 && events[0].contains("panic"), "{events:?}");
}

/// After its first attempt a file is tried next to the others, which do not wait for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn file_at_which_servers_end_is_set_aside() {
    let setup = Setup::new();
    setup.add("bad-1.jsonl", "[[hang]]");
    for start in 1..=MAX_ENDS {
        let is_tried = || setup.counted().is_some_and(|count| count == start.to_string());
        let others = || start == 1 || setup.memory.stored() == ["good"];
        setup.run_until(HOUR, "the others are stored", || is_tried() && others()).await;
        // The end of the task removes the count, which the end of a process would have left.
        wait_until("the count is gone", || setup.counted().is_none().then_some(()));
        fs::write(setup.folder.path().join("bad-1.jsonl.attempts"), start.to_string()).unwrap();
        if start == 1 {
            setup.add("good-1.jsonl", "good");
        }
    }
    assert_eq!(setup.memory.stored(), ["good"]);
    let aside = format!("bad-1{FAILED_SUFFIX}");
    setup.run_until(HOUR, "it is set aside", || setup.names() == [aside.clone()]).await;
    assert_eq!(setup.memory.events_of("set_aside").len(), 1);
}

#[test]
fn attempts_are_counted_as_long_as_they_go_on() {
    let setup = Setup::new();
    let file = setup.folder.path().join("bad-1.jsonl");
    setup.add("bad-1.jsonl", "x");
    assert_eq!(AttemptFile::ends(&file), 0);
    let attempt = AttemptFile::begin(&file, 3).unwrap();
    assert_eq!(AttemptFile::ends(&file), 3);
    AttemptFile::remove_orphans(setup.folder.path());
    assert_eq!(setup.counted().as_deref(), Some("3"));
    drop(attempt);
    assert_eq!(setup.names(), ["bad-1.jsonl"]);
    std::mem::forget(AttemptFile::begin(&file, 2));
    fs::remove_file(&file).unwrap();
    AttemptFile::remove_orphans(setup.folder.path());
    assert_eq!(setup.names(), [""; 0]);
}
