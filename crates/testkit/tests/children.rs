//! Children never outlive their owner: started, cancelled and killed at random, dropped with their
//! runtime, orphaned by a panic, or without their shim.
//!
//! The full counts run in `scripts/campaign` (`HOB_CAMPAIGN=1`).
#![allow(clippy::disallowed_methods, reason = "tests make files and processes of their own")]

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hob_child::sweep::{self, Marker};
use hob_child::{
    Child, ChildSpec, Children, ChildrenOptions, Exit, Size, SpawnError, Stdin, StopLadder,
    Streams, tree,
};
use hob_testkit::leak::processes_with;
use hob_testkit::{LeakCheck, Random, program, wait_until};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Runtime;

/// Leak checks count everything in the process, so only one test runs at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    let alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    // The first runtime of a process opens descriptors that stay for its life.
    drop(runtime());
    alone
}

struct Nest {
    children: Children,
    folder: tempfile::TempDir,
}

fn nest(run: &str) -> Nest {
    let folder = tempfile::tempdir().unwrap();
    let options = ChildrenOptions {
        shim: program("hob-scripted-agent"),
        records: folder.path().join("run"),
        marker: Marker::new("test", run),
        umask: 0o022,
        control_groups: None,
    };
    Nest { children: Children::new(options).unwrap(), folder }
}

const PIPES: Streams = Streams::Pipes { stdin: Stdin::Pipe };
const TERMINAL: Streams = Streams::Terminal { size: Size { rows: 30, cols: 90 } };

fn shell(nest: &Nest, script: &str, streams: Streams) -> ChildSpec {
    let path = std::env::var_os("PATH").unwrap_or_default();
    ChildSpec {
        program: "sh".into(),
        args: vec!["-c".into(), script.into()],
        env: vec![("PATH".into(), path), ("NEST".into(), nest.folder.path().into())],
        cwd: nest.folder.path().to_owned(),
        streams,
        owner: None,
        confinement: None,
    }
}

/// Returns every process that was started in this nest, also those that left its session.
fn inhabitants(nest: &Nest) -> Vec<i32> {
    processes_with(&format!("NEST={}", nest.folder.path().display()))
}

async fn read_all(child: &mut Child) -> String {
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).await.unwrap();
    text
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Leaves grandchildren in sessions of their own, one of which ignores every signal but KILL.
const FAMILY: &str = "setsid sleep 1000 & (setsid sh -c 'trap \"\" TERM HUP INT; sleep 1000 & \
    sleep 1000' &) ; echo ready; ";

#[test]
fn child_on_pipes_has_input_output_errors_and_a_code() {
    let _alone = alone();
    let nest = nest("pipes");
    runtime().block_on(async {
        let script = "read x; echo \"got $x\"; echo oops >&2; pwd; exit 7";
        let mut child = nest.children.spawn(shell(&nest, script, PIPES)).await.unwrap();
        child.stdin.take().unwrap().write_all(b"hello\n").await.unwrap();
        let folder = nest.folder.path().canonicalize().unwrap();
        assert_eq!(read_all(&mut child).await, format!("got hello\n{}\n", folder.display()));
        assert_eq!(child.gone().await, Exit::Code(7));
        assert_eq!(child.output().tail_text(), "oops\n");
        assert!(!child.is_running());
    });
}

#[test]
fn child_has_exactly_the_given_environment() {
    let _alone = alone();
    let nest = nest("environment");
    runtime().block_on(async {
        let mut spec = shell(&nest, "env", PIPES);
        spec.streams = Streams::Pipes { stdin: Stdin::Null };
        spec.env.push(("GIVEN".into(), OsString::from("a b\nc")));
        let mut child = nest.children.spawn(spec).await.unwrap();
        let text = read_all(&mut child).await;
        let names: Vec<&str> =
            text.lines().filter_map(|line| line.split_once('=')).map(|(n, _)| n).collect();
        for name in &names {
            assert!(
                ["PATH", "NEST", "GIVEN", "HOB_RUN", "PWD", "OLDPWD", "SHLVL", "_"].contains(name),
                "{name}"
            );
        }
        assert!(names.contains(&"HOB_RUN"));
    });
}

#[test]
fn child_on_a_terminal_has_a_terminal() {
    let _alone = alone();
    let nest = nest("terminal");
    runtime().block_on(async {
        let script = "test -t 0 && test -t 1 && tty >/dev/null && stty size; read x; echo \"got $x\"; \
                      read y; stty size; echo done";
        let child = nest.children.spawn(shell(&nest, script, TERMINAL)).await.unwrap();
        let seen = async |wanted: &str| {
            let mut from = 0;
            while !child.output().tail_text().contains(wanted) {
                let (start, bytes) = child.output().read_from(from).await.expect(wanted);
                from = start + bytes.len() as u64;
            }
        };
        seen("30 90").await;
        child.write_terminal(b"hello\n").await.unwrap();
        seen("got hello").await;
        child.resize(Size { rows: 11, cols: 22 }).unwrap();
        child.write_terminal(b"\n").await.unwrap();
        seen("11 22").await;
        assert_eq!(child.gone().await, Exit::Code(0));
        seen("done").await;
    });
}

#[test]
fn undrained_terminal_never_blocks_its_child() {
    let _alone = alone();
    let nest = nest("flood");
    runtime().block_on(async {
        let script = "i=0; while [ $i -lt 20000 ]; do echo $i-0123456789-0123456789-0123456789; \
                      i=$((i+1)); done";
        let child = nest.children.spawn(shell(&nest, script, TERMINAL)).await.unwrap();
        assert_eq!(child.gone().await, Exit::Code(0));
        let tail = child.output().tail();
        assert!(tail.len() <= 256 << 10, "{}", tail.len());
        assert!(String::from_utf8_lossy(&tail).contains("19999-"));
    });
}

#[test]
fn spawn_error_names_its_cause() {
    let _alone = alone();
    let check = LeakCheck::new();
    let nest = nest("failures");
    runtime().block_on(async {
        let good = shell(&nest, "true", PIPES);
        let missing = ChildSpec { program: "no-such-program".into(), ..good.clone() };
        let error = nest.children.spawn(missing).await.unwrap_err();
        assert!(matches!(error, SpawnError::NotFound(_)), "{error:?}");
        let folder = ChildSpec { program: nest.folder.path().into(), ..good.clone() };
        let error = nest.children.spawn(folder).await.unwrap_err();
        assert!(matches!(error, SpawnError::NotRunnable { .. }), "{error:?}");
        let nowhere = ChildSpec { cwd: PathBuf::from("/no/such/folder"), ..good.clone() };
        let error = nest.children.spawn(nowhere).await.unwrap_err();
        assert!(matches!(error, SpawnError::Folder(_)), "{error:?}");
        let nul = ChildSpec { args: vec![OsString::from("a\0b")], ..good.clone() };
        let error = nest.children.spawn(nul).await.unwrap_err();
        assert!(matches!(error, SpawnError::Invalid(_)), "{error:?}");
        let long = ChildSpec { args: vec!["-c".into(), "x".repeat(200 << 10).into()], ..good };
        let error = nest.children.spawn(long).await.unwrap_err();
        assert!(matches!(error, SpawnError::Invalid(_)), "{error:?}");
    });
    drop(nest);
    check.assert_clean();
}

#[test]
fn process_tree_ends_with_its_agent() {
    let _alone = alone();
    let nest = nest("ends");
    runtime().block_on(async {
        let script = format!("{FAMILY} exit 3");
        let child = nest.children.spawn(shell(&nest, &script, PIPES)).await.unwrap();
        assert_eq!(child.gone().await, Exit::Code(3));
        assert_eq!(inhabitants(&nest), [0; 0]);
    });
}

#[test]
fn killed_child_reports_its_signal() {
    let _alone = alone();
    let nest = nest("killed");
    runtime().block_on(async {
        let child = nest.children.spawn(shell(&nest, "kill -9 $$", PIPES)).await.unwrap();
        assert_eq!(child.gone().await, Exit::Signal(9));
        let child = nest.children.spawn(shell(&nest, "exec sleep 1000", PIPES)).await.unwrap();
        child.signal(15);
        assert_eq!(child.gone().await, Exit::Signal(15));
    });
}

#[test]
fn stop_closes_input_then_terminates_then_kills() {
    let _alone = alone();
    let nest = nest("polite");
    runtime().block_on(async {
        // Ends by itself at end of file.
        let script = "read x; exit 5";
        let mut child = nest.children.spawn(shell(&nest, script, PIPES)).await.unwrap();
        assert_eq!(child.stop(StopLadder::default()).await, Exit::Code(5));
        // Ends at TERM with a code of its own.
        let script = "trap 'exit 6' TERM; echo ready; while :; do sleep 0.02; done";
        let mut child = nest.children.spawn(shell(&nest, script, PIPES)).await.unwrap();
        let mut ready = [0; 6];
        child.stdout.as_mut().unwrap().read_exact(&mut ready).await.unwrap();
        let ladder = StopLadder { polite: Duration::ZERO, term: Duration::from_secs(20) };
        assert_eq!(child.stop(ladder).await, Exit::Code(6));
        // Ends at KILL, having ignored everything else.
        let script = "trap '' TERM HUP INT; echo ready; while :; do sleep 0.02; done";
        let mut child = nest.children.spawn(shell(&nest, script, PIPES)).await.unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut ready).await.unwrap();
        assert_eq!(child.stop(StopLadder::AT_ONCE).await, Exit::Signal(9));
        assert_eq!(inhabitants(&nest), [0; 0]);
    });
}

/// Start, then cancel, drop or kill at a random moment, on pipes and terminals, with grandchildren in
/// sessions of their own: nothing is left.
#[test]
fn random_lives_leave_no_process() {
    let _alone = alone();
    let rounds = if std::env::var_os("HOB_CAMPAIGN").is_some() { 200 } else { 20 };
    let mut random = Random::new(0x5eed);
    let runtime = runtime();
    let nest = nest("random");
    // The first life opens descriptors that the process keeps.
    runtime.block_on(one_life(&nest, &mut random));
    let check = LeakCheck::new();
    for _ in 0..rounds {
        runtime.block_on(one_life(&nest, &mut random));
    }
    wait_until("all trees are gone", || (nest.children.live() == 0).then_some(()));
    let left = inhabitants(&nest);
    check.assert_clean();
    assert_eq!(left, [0; 0]);
    assert_eq!(std::fs::read_dir(nest.folder.path().join("run")).unwrap().count(), 0);
    println!("{rounds} random lives: {} survivors, 0 zombies, equal descriptors", left.len());
}

async fn one_life(nest: &Nest, random: &mut Random) {
    let streams = if random.below(2) == 0 { PIPES } else { TERMINAL };
    let ending =
        ["sleep 1000", "exit 0", "kill -9 $$", "exec sleep 1000", "trap '' TERM; sleep 1000"];
    let script = format!("{FAMILY} {}", ending[random.below(ending.len() as u64) as usize]);
    let spawning = nest.children.spawn(shell(nest, &script, streams));
    if random.below(8) == 0 {
        // The caller goes away while the child is being started.
        let _ = tokio::time::timeout(Duration::from_millis(random.below(4)), spawning).await;
        return;
    }
    let mut child = spawning.await.unwrap();
    tokio::time::sleep(Duration::from_millis(random.below(30))).await;
    match random.below(4) {
        0 => drop(child),
        1 => drop(child.stop(StopLadder::AT_ONCE).await),
        2 => {
            child.signal(9);
            child.gone().await;
        }
        _ => {
            // The shim itself is killed.
            if let Some(process) = tree::process(child.pid()) {
                let shim = nix::unistd::Pid::from_raw(process.parent);
                let _ = nix::sys::signal::kill(shim, nix::sys::signal::Signal::SIGKILL);
            }
            child.gone().await;
        }
    }
}

#[test]
fn dropped_runtime_leaves_no_process() {
    let _alone = alone();
    let check = LeakCheck::new();
    let nest = nest("runtime");
    let runtime = runtime();
    let child = runtime
        .block_on(nest.children.spawn(shell(&nest, &format!("{FAMILY} sleep 1000"), TERMINAL)))
        .unwrap();
    runtime.spawn(async move { child.gone().await });
    drop(runtime);
    wait_until("the tree is gone", || inhabitants(&nest).is_empty().then_some(()));
    drop(nest);
    check.assert_clean();
}

#[test]
fn panicking_owner_leaves_no_process() {
    let _alone = alone();
    let check = LeakCheck::new();
    let folder = std::thread::spawn(|| -> PathBuf {
        let nest = nest("panic");
        let path = nest.folder.path().to_owned();
        let runtime = runtime();
        let script = format!("{FAMILY} sleep 1000");
        let _child = runtime.block_on(nest.children.spawn(shell(&nest, &script, PIPES))).unwrap();
        std::panic::panic_any(path);
    })
    .join()
    .expect_err("it panics");
    let folder = *folder.downcast::<PathBuf>().unwrap();
    assert_eq!(processes_with(&format!("NEST={}", folder.display())), [0; 0]);
    check.assert_clean();
}

#[test]
fn closed_children_are_ended_and_no_more_start() {
    let _alone = alone();
    let check = LeakCheck::new();
    let nest = nest("close");
    runtime().block_on(async {
        let spec = shell(&nest, &format!("{FAMILY} sleep 1000"), PIPES);
        let child = nest.children.spawn(spec.clone()).await.unwrap();
        nest.children.close().await;
        assert_eq!(inhabitants(&nest), [0; 0]);
        assert!(matches!(child.gone().await, Exit::Signal(15)));
        assert!(matches!(nest.children.spawn(spec).await, Err(SpawnError::Closing)));
    });
    drop(nest);
    check.assert_clean();
}

/// The next run ends exactly the processes that a killed shim left, which it finds by their marker.
#[test]
fn leftovers_of_an_earlier_run_are_ended() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let start = |marker: &str| {
        let mut command = std::process::Command::new("sleep");
        command.arg("1000").env("HOB_RUN", marker);
        command.spawn().unwrap()
    };
    let home = format!("home{}", std::process::id());
    let mut stale = start(&format!("{home}.old.1"));
    let mut current = start(&format!("{home}.new.1"));
    let mut foreign = start("elsewhere.old.1");
    let mut recorded = start("x");
    let pid = recorded.id() as i32;
    let record = format!("{pid} {}\n{} 1\n", tree::start_time(pid).unwrap(), current.id());
    std::fs::write(folder.path().join(format!("{home}.old.2")), record).unwrap();
    let marker = Marker::new(home, "new");
    wait_until("the environment is that of the new program", || {
        (!processes_with(&format!("HOB_RUN={}", "elsewhere.old.1")).is_empty()).then_some(())
    });
    assert!(sweep::end_leftovers(&marker, folder.path()) >= 2);
    assert!(!stale.wait().unwrap().success());
    assert!(!recorded.wait().unwrap().success());
    for survivor in [&mut current, &mut foreign] {
        assert!(survivor.try_wait().unwrap().is_none(), "pid alone, or another home's, is spared");
        survivor.kill().unwrap();
        survivor.wait().unwrap();
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
