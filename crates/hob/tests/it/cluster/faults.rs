//! Sessions that stream while nodes are killed, suspended or disconnected from the database, and while the database
//! restarts. No event that was sent is lost or repeated, no turn runs twice, no two nodes ever serve one session, and
//! every session answers in the end.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use hob_testkit::{Cluster, ClusterOptions, Random, cluster, is_campaign};
use serde_json::json;

use super::setup::{alone, assert_fences, options};
use super::talker::{ClusterClient, Figures, Talker};

/// The settings of a run.
struct Run {
    name: &'static str,
    sessions: usize,
    lasts: Duration,
    /// Whether the database goes away: then a turn may fail because it could not be written.
    database_goes: bool,
    options: ClusterOptions,
}

fn run(name: &'static str, sessions: usize, short_secs: u64, long_secs: u64) -> Run {
    let lasts = Duration::from_secs(if is_campaign() { long_secs } else { short_secs });
    let options = options(3, "[sessions]\nmax_live = 400\n");
    let sessions = if is_campaign() { 100 } else { sessions };
    Run { name, sessions, lasts, database_goes: false, options }
}

/// Records who held a lease with which fencing token, outside the ledger's schema.
const WATCH: &str = "
    CREATE TABLE public.held (session uuid, fence bigint, holder text);
    CREATE FUNCTION public.watch() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
        BEGIN INSERT INTO public.held VALUES (NEW.session, NEW.fence, NEW.holder); RETURN NULL; END $$;
    CREATE TRIGGER made AFTER INSERT ON hob.heads FOR EACH ROW EXECUTE FUNCTION public.watch();
    CREATE TRIGGER taken AFTER UPDATE ON hob.heads FOR EACH ROW
        WHEN (OLD.fence <> NEW.fence OR OLD.holder IS DISTINCT FROM NEW.holder)
        EXECUTE FUNCTION public.watch();";

/// Runs turns in all sessions while `disturb` is called again and again, and checks everything afterwards. `disturb`
/// leaves all nodes running.
fn under(run: &Run, disturb: impl Fn(&Cluster, &mut Random) -> usize) {
    let _alone = alone();
    let cluster = Cluster::start(&run.options);
    cluster.sql(WATCH);
    let token = cluster.app("faults");
    let place = ClusterClient { cluster: &cluster, token: &token };
    let seed = cluster::seed();
    let mut talkers: Vec<Talker> = (0..run.sessions)
        .map(|number| {
            let body = json!({"agent": "acp"}).to_string();
            let (reply, _) = place.insist("POST", "/sessions", &[], Some(body)).expect("a session");
            let id = reply.json()["session_id"].as_str().expect("a name").to_owned();
            Talker::new(number, id, seed)
        })
        .collect();
    let until = Instant::now() + run.lasts;
    let mut disturbed = 0;
    std::thread::scope(|scope| {
        for talker in &mut talkers {
            let place = &place;
            scope.spawn(move || talker.talk(place, until));
        }
        let mut random = Random::new(seed | 1);
        while Instant::now() < until {
            disturbed += disturb(&cluster, &mut random);
        }
    });
    let talked = Instant::now();
    let notes = notes(&cluster);
    let parts = talkers.chunks_mut(run.sessions.div_ceil(8));
    std::thread::scope(|scope| {
        for part in parts {
            let (place, notes) = (&place, &notes);
            scope.spawn(move || part.iter_mut().for_each(|talker| talker.check(place, notes)));
        }
    });
    report(run, disturbed, &talkers, talked.elapsed());
    assert_fences(&cluster);
    let two = "SELECT session, fence, array_agg(DISTINCT holder) FROM public.held
        WHERE holder IS NOT NULL GROUP BY 1, 2 HAVING count(DISTINCT holder) > 1 LIMIT 10";
    assert_eq!(cluster.sql(two), "", "two nodes had the lease of a session with one fencing token");
    let nobody = "SELECT e.session, e.fence FROM hob.events e
        WHERE NOT EXISTS (SELECT FROM public.held h WHERE (h.session, h.fence) = (e.session, e.fence)) LIMIT 10";
    assert_eq!(cluster.sql(nobody), "", "events with a fencing token that no node had");
    let taken = cluster.sql("SELECT count(*) FROM hob.heads WHERE fence > 1");
    println!(
        "{}: {taken} of {} sessions were taken by another run or node",
        run.name, run.sessions
    );
    let unwritten: usize = talkers.iter().map(|talker| talker.figures.unwritten).sum();
    assert!(run.database_goes || unwritten == 0, "{unwritten} turns could not be written");
    let twice: Vec<_> = notes.iter().filter(|(_, count)| **count > 1).collect();
    assert!(twice.is_empty(), "turns that ran twice: {twice:?}");
    let problems: Vec<&String> = talkers.iter().flat_map(|talker| &talker.problems).collect();
    let some = &problems[..problems.len().min(20)];
    assert!(problems.is_empty(), "{}: {} problems: {some:#?}", run.name, problems.len());
}

/// How often agents were asked what, by their own notes.
fn notes(cluster: &Cluster) -> HashMap<String, usize> {
    let mut notes = HashMap::new();
    for folder in cluster.workspaces() {
        for session in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let text = std::fs::read_to_string(session.path().join("notes")).unwrap_or_default();
            for line in text.lines() {
                *notes.entry(line.to_owned()).or_default() += 1;
            }
        }
    }
    notes
}

fn report(run: &Run, disturbed: usize, talkers: &[Talker], checked: Duration) {
    let sum = |figure: fn(&Figures) -> usize| -> usize {
        talkers.iter().map(|talker| figure(&talker.figures)).sum()
    };
    let most = |figure: fn(&Figures) -> Duration| {
        talkers.iter().map(|talker| figure(&talker.figures)).max().unwrap_or_default().as_millis()
    };
    println!(
        "{}: {disturbed} times in {} s under {} sessions: {} events told ({} again, the same), {} lost; {} turns \
         finished, {} interrupted, {} resume_failed, {} not written; {} streams cut and taken up, {} requests repeated; acknowledged \
         within {} ms, up to three turns over within {} ms; checked in {} s",
        run.name,
        run.lasts.as_secs(),
        talkers.len(),
        sum(|f| f.told),
        sum(|f| f.again),
        sum(|f| f.lost),
        sum(|f| f.finished),
        sum(|f| f.interrupted),
        sum(|f| f.resume_failed),
        sum(|f| f.unwritten),
        sum(|f| f.reconnected),
        sum(|f| f.asked_again),
        most(|f| f.slowest_ask),
        most(|f| f.slowest_turn),
        checked.as_secs(),
    );
}

fn sleep_ms(random: &mut Random, from: u64, to: u64) {
    std::thread::sleep(Duration::from_millis(from + random.below(to - from)));
}

/// A node is killed every five seconds. Some come back at once, others after all have noticed.
#[test]
fn sessions_survive_killed_nodes() {
    under(&run("kills", 100, 30, 180), |cluster, random| {
        let (began, node) = (Instant::now(), cluster.random_node());
        sleep_ms(random, 500, 1500);
        cluster.kill(node);
        if random.below(3) > 0 {
            sleep_ms(random, 1, 3500);
        }
        cluster.restart(node);
        std::thread::sleep(Duration::from_secs(5).saturating_sub(began.elapsed()));
        1
    });
}

/// The database ends without a word and comes back.
#[test]
fn sessions_survive_a_database_restart() {
    let mut run = run("database restarts", 30, 10, 60);
    run.database_goes = true;
    under(&run, |cluster, random| {
        sleep_ms(random, 1500, 2500);
        cluster.restart_database(Duration::from_millis(random.below(2000)));
        sleep_ms(random, 2000, 3000);
        1
    });
}

/// A node sleeps for longer than its lease, and wakes up with its agents and what it was about to write.
#[test]
fn sessions_survive_a_paused_node() {
    let pause = Duration::from_secs(if is_campaign() { 30 } else { 7 });
    under(&run("pauses", 30, 12, 100), |cluster, random| {
        let node = cluster.random_node();
        sleep_ms(random, 1500, 2500);
        cluster.pause(node);
        std::thread::sleep(pause);
        cluster.resume(node);
        sleep_ms(random, 2000, 3000);
        1
    });
}

/// The network between a node and the database holds everything back for longer than the lease and then delivers it,
/// or it is cut and refuses connections for a while.
#[test]
fn sessions_survive_a_disconnected_node() {
    let mut run = run("partitions", 30, 14, 90);
    run.options.proxied = true;
    run.database_goes = true;
    under(&run, |cluster, random| {
        let node = cluster.random_node();
        sleep_ms(random, 1000, 2000);
        cluster.proxy(node).swallow();
        sleep_ms(random, 4000, 5000);
        cluster.proxy(node).pass();
        sleep_ms(random, 1000, 2000);
        cluster.proxy(node).refuse();
        sleep_ms(random, 500, 4000);
        cluster.proxy(node).pass();
        2
    });
}

/// Nodes are stopped one after another and come back: a rolling upgrade. It interrupts no turn.
#[test]
fn sessions_survive_stopped_nodes() {
    let interrupted = |cluster: &Cluster| {
        cluster.sql("SELECT count(*) FROM hob.turns WHERE state = 'interrupted'")
    };
    // Even a busy machine must end a turn within the grace.
    let config = "shutdown_grace_secs = 60\n[sessions]\nmax_live = 400\n";
    let run = Run { options: options(3, config), ..run("drains", 30, 12, 60) };
    under(&run, |cluster, random| {
        let node = cluster.random_node();
        sleep_ms(random, 500, 1500);
        assert_eq!(cluster.stop(node).code(), Some(0));
        sleep_ms(random, 1, 1000);
        cluster.restart(node);
        assert_eq!(interrupted(cluster), "0", "turns are shorter than the grace");
        1
    });
}
