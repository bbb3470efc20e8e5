//! Confined children: what they can and cannot reach, and that they end like all others.
//!
//! A free child tries everything that is refused to a confined one, so that nothing is refused for another
//! reason.
#![allow(clippy::disallowed_methods, reason = "tests make files and processes of their own")]

use std::fs;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::symlink;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hob_child::sweep::Marker;
use hob_child::{
    Child, ChildSpec, Children, ChildrenOptions, Confinement, Exit, Size, SpawnError, Stdin,
    StopLadder, Streams, landlock_version, opens, tree,
};
use hob_testkit::leak::processes_with;
use hob_testkit::{program, wait_until};
use tokio::io::AsyncReadExt;
use tokio::runtime::Runtime;

const PIPES: Streams = Streams::Pipes { stdin: Stdin::Null };

/// A home with secrets and a workspace, and a user's folder next to it.
struct Fixture {
    base: PathBuf,
    children: Children,
    runtime: Runtime,
    _folder: tempfile::TempDir,
}

/// Returns `None` on a kernel that cannot confine.
fn place() -> Option<Fixture> {
    place_in(&std::env::temp_dir())
}

fn place_in(parent: &Path) -> Option<Fixture> {
    if landlock_version().is_none() {
        println!("skipped: this kernel has no Landlock");
        return None;
    }
    let folder = tempfile::tempdir_in(parent).unwrap();
    let base = folder.path().canonicalize().unwrap().join("base");
    for path in ["hidden/other", "hidden/ws", "user/.conf", "tmp"] {
        fs::create_dir_all(base.join(path)).unwrap();
    }
    for path in ["hidden/key", "hidden/other/secret", "user/file", "user/.conf.json"] {
        fs::write(base.join(path), "content\n").unwrap();
    }
    let children = Children::new(ChildrenOptions {
        shim: program("hob-scripted-agent"),
        records: folder.path().join("run"),
        marker: Marker::new("confinement", folder.path().file_name().unwrap().to_string_lossy()),
        umask: 0o022,
        control_groups: None,
    })
    .unwrap();
    Some(Fixture { base, children, runtime: Runtime::new().unwrap(), _folder: folder })
}

impl Fixture {
    fn path(&self, below: &str) -> PathBuf {
        self.base.join(below)
    }

    fn confinement(&self) -> Confinement {
        let writable = ["hidden/ws", "user/.conf", "user/.conf.json", "user/.missing"];
        Confinement {
            hidden: vec![self.path("hidden")],
            writable: writable.iter().map(|path| self.path(path)).collect(),
            visible: vec![self.base.clone()],
            temporary: self.path("tmp"),
            ..Confinement::default()
        }
    }

    /// Returns a shell script in the workspace, with `H` as the hidden folder and `U` as the user's.
    fn shell(&self, script: &str, confinement: Option<Confinement>) -> ChildSpec {
        ChildSpec {
            program: "sh".into(),
            args: vec!["-c".into(), script.into()],
            env: vec![
                ("PATH".into(), std::env::var_os("PATH").unwrap_or_default()),
                ("NEST".into(), self.base.clone().into()),
                ("H".into(), self.path("hidden").into()),
                ("U".into(), self.path("user").into()),
            ],
            cwd: self.path("hidden/ws"),
            streams: PIPES,
            owner: None,
            confinement,
        }
    }

    fn confined(&self, script: &str) -> ChildSpec {
        self.shell(script, Some(self.confinement()))
    }

    fn start(&self, spec: ChildSpec) -> Child {
        self.runtime.block_on(self.children.spawn(spec)).unwrap()
    }

    /// Runs a child to its end and returns its exit and its output.
    fn run(&self, spec: ChildSpec) -> (Exit, String) {
        let mut child = self.start(spec);
        self.runtime.block_on(async {
            let mut text = String::new();
            child.stdout.take().unwrap().read_to_string(&mut text).await.unwrap();
            (child.gone().await, text + &child.output().tail_text())
        })
    }

    /// Asserts that a child is not even started.
    #[track_caller]
    fn does_not_start(&self, confinement: Confinement) {
        let spec = self.shell("true", Some(confinement));
        let started = self.runtime.block_on(self.children.spawn(spec));
        assert!(matches!(started, Err(SpawnError::NotConfined(_))), "{started:?}");
    }

    #[track_caller]
    fn refuses(&self, script: &str) {
        let (exit, text) = self.run(self.confined(script));
        assert!(matches!(exit, Exit::Code(1..)), "`{script}` went well: {text}");
        let (exit, text) = self.run(self.shell(script, None));
        assert_eq!(exit, Exit::Code(0), "`{script}` of a free child: {text}");
    }

    #[track_caller]
    fn allows(&self, script: &str) {
        self.allows_under(self.confinement(), script);
    }

    #[track_caller]
    fn allows_under(&self, confinement: Confinement, script: &str) {
        let (exit, text) = self.run(self.shell(script, Some(confinement)));
        assert_eq!(exit, Exit::Code(0), "`{script}`: {text}");
    }

    #[track_caller]
    fn refuses_under(&self, confinement: Confinement, script: &str) {
        let (exit, text) = self.run(self.shell(script, Some(confinement)));
        assert!(matches!(exit, Exit::Code(1..)), "`{script}` went well: {text}");
    }

    /// Returns whether children run in namespaces of their own. Process numbers start at 1 there.
    fn has_view(&self) -> bool {
        self.run(self.confined("test $$ -lt 10")).0 == Exit::Code(0)
    }

    /// Returns every process that was started here, also those that left its session.
    fn inhabitants(&self) -> Vec<i32> {
        processes_with(&format!("NEST={}", self.base.display()))
    }
}

#[test]
fn hidden_files_are_neither_read_nor_written() {
    let Some(place) = place() else { return };
    for script in [
        "cat $H/key",
        "cat ../key",
        "cat $H/other/secret",
        "ls $H | grep key",
        "ls $H/other",
        "echo x >> $H/key",
        "touch $H/new",
        "mkdir $H/folder",
        "ln $H/key stolen && rm stolen",
        "mv $H/other/secret . && mv secret $H/other",
    ] {
        place.refuses(script);
    }
    // A folder whose name begins with that of the hidden one is another folder.
    fs::create_dir(place.path("hidden2")).unwrap();
    fs::write(place.path("hidden2/file"), "").unwrap();
    place.allows("cat ${H}2/file");
}

#[test]
fn other_files_are_read_but_not_written() {
    let Some(place) = place() else { return };
    for script in [
        "echo x >> $U/file",
        ": > $U/file",
        "touch $U/new",
        "mkdir $U/folder",
        "mv $U/file $U/else && mv $U/else $U/file",
        "ln $U/file link && rm link",
        "mv $U/.conf.json $U/else && mv $U/else $U/.conf.json",
        "mkdir $U/.missing",
        "touch $U/../new",
    ] {
        place.refuses(script);
    }
    for script in ["cat $U/file", "ls -a $U | grep -q conf", "cd $U && cat file"] {
        place.allows(script);
    }
}

#[test]
fn readable_folders_inside_the_hidden_one_are_read_but_not_written() {
    let Some(place) = place() else { return };
    let confinement =
        Confinement { readable: vec![place.path("hidden/other")], ..place.confinement() };
    place.allows_under(confinement.clone(), "cat $H/other/secret && ls $H/other");
    for script in [
        "cat $H/key",
        "echo x >> $H/other/secret",
        "echo x > $H/other/new",
        "rm $H/other/secret",
        "mkdir $H/other/new",
        "mv $H/other/secret $H/ws/",
    ] {
        place.refuses_under(confinement.clone(), script);
    }
}

#[test]
fn writable_folders_are_written() {
    let Some(place) = place() else { return };
    for script in [
        "echo x > a && mv a b && cat b && rm b",
        "mkdir -p d e/f && echo x > d/a && mv d/a e/f/a && ln e/f/a d/b && rm -r d e",
        "ln -s $U/file link && cat link && rm link",
        "mkfifo pipe && rm pipe",
        "echo x > $U/.conf/a && rm $U/.conf/a",
        "echo x > a && mv a $U/.conf/a && rm $U/.conf/a",
        "echo new > $U/.conf.json && echo more >> $U/.conf.json",
        "cp /bin/sh own && ./own -c true",
    ] {
        place.allows(script);
    }
    assert_eq!(fs::read_to_string(place.path("user/.conf.json")).unwrap(), "new\nmore\n");
}

#[test]
fn confined_child_runs_programs_and_sees_devices_and_its_processes() {
    let Some(place) = place() else { return };
    for script in [
        "ls /usr/bin /etc",
        "/usr/bin/env true",
        "echo x > /dev/null && head -c 8 /dev/urandom | wc -c",
        "grep -q 'NoNewPrivs:.*1' /proc/self/status",
        "sleep 100 & cat /proc/$!/environ > /dev/null && kill $!",
    ] {
        place.allows(script);
    }
    // The variables of another process may hold secrets.
    place.refuses(&format!("cat /proc/{}/environ > /dev/null", std::process::id()));
}

#[test]
fn confined_child_on_a_terminal_has_a_terminal() {
    let Some(place) = place() else { return };
    let size = Size { rows: 31, cols: 91 };
    let script = "stty size < /dev/tty && stty -echo && echo fine > /dev/tty";
    let spec = ChildSpec { streams: Streams::Terminal { size }, ..place.confined(script) };
    let child = place.start(spec);
    let exit = place.runtime.block_on(child.gone());
    let text = child.output().tail_text();
    assert_eq!(exit, Exit::Code(0), "{text}");
    assert!(text.contains("31 91") && text.contains("fine"), "{text}");
}

#[test]
fn confined_child_signals_only_its_own_tree() {
    let Some(place) = place() else { return };
    if landlock_version() < Some(6) {
        println!("skipped: this kernel's Landlock does not rule signals");
        return;
    }
    let mut command = std::process::Command::new("sleep");
    let mut outside = command.arg("1000").spawn().unwrap();
    place.refuses(&format!("kill -0 {}", outside.id()));
    place.refuses("kill -0 $PPID");
    let (exit, _) = place.run(place.confined(&format!("kill -TERM {}", outside.id())));
    let (survivor, _) = (outside.try_wait().unwrap(), outside.kill().unwrap());
    outside.wait().unwrap();
    assert!(matches!(exit, Exit::Code(1..)), "{exit:?}");
    assert!(survivor.is_none(), "it was ended: {survivor:?}");

    // Another confined child is outside, too.
    let neighbour = place.start(place.confined("exec sleep 1000"));
    place.refuses(&format!("kill -0 {}", neighbour.pid()));
    place.allows("sleep 1000 & kill -TERM $!; wait $!; test $? -eq 143");
    place.allows(
        "setsid sleep 1000 & until [ $(cut -d' ' -f6 /proc/$!/stat) = $! ]; do sleep 0.01; done; \
         kill -TERM $!; wait $!; test $? -eq 143",
    );
}

#[test]
fn confined_child_reaches_only_the_sockets_that_are_named() {
    let Some(place) = place() else { return };
    let _with_path = UnixListener::bind(place.path("hidden/socket")).unwrap();
    let connect = |name: &str| {
        format!("python3 -c 'import os, socket; socket.socket(socket.AF_UNIX).connect({name})'")
    };
    let path = connect("os.environ[\"H\"] + \"/socket\"");
    let sockets = vec![place.path("hidden/socket")];
    place.allows_under(Confinement { sockets, ..place.confinement() }, &path);
    if place.has_view() {
        place.refuses(&path);
        let _elsewhere = UnixListener::bind(place.path("user/socket")).unwrap();
        place.refuses(&connect("os.environ[\"U\"] + \"/socket\""));
    }
    if landlock_version() >= Some(6) {
        let name = place.base.display().to_string();
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let _without = UnixListener::bind_addr(&address).unwrap();
        place.refuses(&connect(&format!("\"\\0{name}\"")));
    }
}

#[test]
fn links_do_not_lead_into_the_hidden_folder() {
    let Some(place) = place() else { return };
    symlink(place.path("hidden/key"), place.path("user/link")).unwrap();
    symlink(place.path("hidden"), place.path("door")).unwrap();
    place.refuses("cat $U/link");
    place.refuses("echo x >> $U/link");
    place.refuses("cat $U/../door/key");
    place.refuses("ls $U/../door/ | grep key");
    place.refuses("ln -s $H/key link; cat link");
    place.refuses("cat /proc/self/root$H/key");
    // A child must not be able to change what the next child may reach.
    symlink(place.path("hidden/other"), place.path("user/.conf/planted")).unwrap();
    symlink(place.path("hidden/other"), place.path("hidden/ws/planted")).unwrap();
    let mut confinement = place.confinement();
    confinement.writable.push(place.path("user/.conf/planted"));
    place.does_not_start(confinement);
    let mut confinement = place.confinement();
    confinement.writable.push(place.path("hidden/ws/planted"));
    place.refuses_under(confinement.clone(), "cat $H/other/secret");
    place.refuses_under(confinement, "echo x >> $H/other/secret");
    // Other names of the same folders make no difference.
    let confinement = Confinement {
        hidden: vec![place.path("door")],
        writable: vec![place.path("hidden/ws"), place.path("door/other")],
        ..place.confinement()
    };
    place.refuses_under(confinement.clone(), "cat $H/key");
    place.allows_under(confinement, "echo x > a && echo x > $H/other/secret");
}

#[test]
fn folders_above_the_hidden_one_are_not_writable() {
    let Some(place) = place() else { return };
    symlink(&place.base, place.path("user/up")).unwrap();
    let hidden = place.path("hidden");
    for path in ["", "hidden", "hidden/ws/..", "user/up", "user/up/hidden"] {
        assert!(opens(&place.path(path), &hidden), "{path}");
        let mut confinement = place.confinement();
        confinement.writable.push(place.path(path));
        if path.starts_with("user/up") {
            place.does_not_start(confinement);
            continue;
        }
        for script in ["cat $H/key", "echo x >> $U/file", "touch $U/../new"] {
            place.refuses_under(confinement.clone(), script);
        }
        place.allows_under(confinement, "echo x > a && rm a");
    }
    assert!(opens(Path::new("/"), &hidden));
    for path in ["hidden/ws", "hidden/key", "user", "user/.missing", "hidde"] {
        assert!(!opens(&place.path(path), &hidden), "{path}");
    }
    // Also before the hidden folder exists.
    assert!(opens(&place.path("user/up"), &place.path("hidden3")));
    assert!(!opens(&place.path("user"), &place.path("hidden3")));
}

#[test]
fn descendants_of_a_confined_child_are_confined() {
    let Some(place) = place() else { return };
    let script = "(setsid sh -c 'sleep 0.1; cat $H/key > stolen || echo refused > done' &)
        while ! test -e done; do test -s stolen && exit 1; sleep 0.02; done; cat done";
    let (exit, text) = place.run(place.confined(script));
    assert_eq!(exit, Exit::Code(0), "{text}");
    assert!(text.starts_with("refused"), "{text}");
}

/// Starts a grandchild in a session of its own that ignores every signal but KILL.
const GRANDCHILD: &str =
    "(setsid sh -c 'trap \"\" TERM HUP INT; echo x > ready; sleep 1000 & sleep 1000' &); ";

#[test]
fn confined_process_tree_ends_like_any_other() {
    let Some(place) = place() else { return };
    let ready = place.path("hidden/ws/ready");
    // `first` runs before the grandchild exists: once the grandchild is ready, so are the shell's traps.
    let start = |first: &str, last: &str| {
        let child = place.start(place.confined(&format!("{first}{GRANDCHILD}{last}")));
        wait_until("the grandchild runs", || fs::remove_file(&ready).ok());
        wait_until("the tree has three processes", || {
            (place.inhabitants().len() >= 3).then_some(())
        });
        child
    };
    let gone = |how: &str| {
        wait_until(&format!("the tree is gone: {how}"), || {
            (place.inhabitants().is_empty() && place.children.live() == 0).then_some(())
        });
    };
    let mut child = start("trap '' TERM; ", "while :; do sleep 0.02; done");
    assert_eq!(place.runtime.block_on(child.stop(StopLadder::AT_ONCE)), Exit::Signal(9));
    gone("stopped");
    let child = start("", "exec sleep 1000");
    child.signal(15);
    assert_eq!(place.runtime.block_on(child.gone()), Exit::Signal(15));
    gone("signalled");
    drop(start("", "sleep 1000"));
    gone("dropped");
    let child = start("", "sleep 1000");
    let shim = tree::process(child.pid()).unwrap().parent;
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(shim), nix::sys::signal::Signal::SIGKILL)
        .unwrap();
    gone("without its shim");
}

#[test]
fn child_that_cannot_be_confined_does_not_start() {
    let Some(place) = place() else { return };
    fs::copy("/bin/sh", place.path("hidden/program")).unwrap();
    let inside = ChildSpec { program: place.path("hidden/program").into(), ..place.confined(":") };
    let free = ChildSpec { confinement: None, ..inside.clone() };
    let error = place.runtime.block_on(place.children.spawn(inside)).unwrap_err();
    let refused = matches!(error, SpawnError::NotRunnable { .. } | SpawnError::NotFound(_));
    assert!(refused, "{error:?}");
    assert_eq!(place.run(free).0, Exit::Code(0));

    let nowhere = Confinement { hidden: vec![place.path("nowhere")], ..place.confinement() };
    let spec = place.shell("touch ran", Some(nowhere));
    let error = place.runtime.block_on(place.children.spawn(spec)).unwrap_err();
    assert!(matches!(error, SpawnError::NotConfined(_)), "{error:?}");
    assert!(!place.path("hidden/ws/ran").exists());
}

#[test]
fn free_child_is_not_confined() {
    let Some(place) = place() else { return };
    let script = "grep -q 'NoNewPrivs:.*0' /proc/self/status && cat $H/key && ls / $H/.. \
        && echo x >> $U/file && kill -0 $PPID";
    let (exit, text) = place.run(place.shell(script, None));
    assert_eq!(exit, Exit::Code(0), "{text}");
}

/// Prints the cost of confinement at the start of a child, with many neighbouring files to name. Asserts nothing.
#[test]
fn confinement_cost_is_printed() {
    let Some(place) = place() else { return };
    for number in 0..400 {
        fs::write(place.path(&format!("neighbour{number}")), "").unwrap();
    }
    let first_output = |confinement: Option<Confinement>| {
        let spec = place.shell("echo", confinement);
        let started = Instant::now();
        let mut child = place.start(spec);
        let reading = async { child.stdout.as_mut().unwrap().read_u8().await.unwrap() };
        place.runtime.block_on(reading);
        let took = started.elapsed();
        place.runtime.block_on(child.gone());
        took
    };
    let mut times: [Vec<Duration>; 2] = Default::default();
    for _ in 0..25 {
        times[0].push(first_output(None));
        times[1].push(first_output(Some(place.confinement())));
    }
    let [free, confined] = times.map(|mut times| {
        times.sort();
        times[times.len() / 2]
    });
    println!("from spawn to first output: free {free:?}, confined next to 400 files {confined:?}");
}

/// The folder was checked before, and another child may have replaced it by a link since.
#[test]
fn working_folder_that_has_become_a_link_is_refused() {
    let Some(place) = place() else { return };
    let (link, target) = (place.path("user/link"), place.path("user/private"));
    std::fs::create_dir_all(&target).unwrap();
    std::os::unix::fs::symlink(&target, &link).unwrap();
    let mut confinement = place.confinement();
    confinement.writable.push(link.clone());
    let spec = ChildSpec { cwd: link, ..place.shell("echo x > escaped", Some(confinement)) };
    let refused = place.runtime.block_on(place.children.spawn(spec));
    assert!(matches!(refused, Err(SpawnError::NotConfined(_))), "{refused:?}");
    assert!(!target.join("escaped").exists());
}

/// Files that an agent fills, and core dumps, are bounded.
#[test]
fn confined_child_has_limits() {
    let Some(place) = place() else { return };
    let (_, limits) = place.run(place.confined("ulimit -c; ulimit -n; ulimit -f"));
    let limits: Vec<u64> = limits.lines().map(|line| line.parse().unwrap_or(u64::MAX)).collect();
    assert_eq!(limits[0], 0, "core dumps");
    assert!(limits[1] <= 65_536, "open files: {limits:?}");
    assert!(limits[2] < u64::MAX, "size of a file: {limits:?}");
}

/// A descriptor that Hob inherited leads around the view.
#[test]
fn child_inherits_no_descriptor() {
    let Some(place) = place() else { return };
    let file = fs::File::open(place.path("hidden/key")).unwrap();
    let inherited = nix::unistd::dup(&file).unwrap();
    let number = std::os::fd::AsRawFd::as_raw_fd(&inherited);
    let (_, text) =
        place.run(place.confined(&format!("cat /proc/self/fd/{number} 2>&1; echo end")));
    assert!(!text.contains("content") && text.contains("end"), "{text}");
}

/// A store of credentials that the owner creates or replaces while a child runs stays hidden. Its folder must not lie in
/// `/tmp`, which is the child's own.
#[test]
fn stores_that_change_stay_hidden() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).canonicalize().unwrap();
    if folder.starts_with("/tmp") || folder.starts_with("/var/tmp") {
        println!("skipped: the build folder lies in a folder for temporary files");
        return;
    }
    let Some(place) = place_in(&folder) else { return };
    fs::create_dir_all(place.path("user/.store")).unwrap();
    fs::write(place.path("user/.store/login"), "old content\n").unwrap();
    let stores = ["hidden", "user/.store/login", "user/.keys"].map(|path| place.path(path));
    let confinement = Confinement { hidden: stores.to_vec(), ..place.confinement() };
    let script =
        "until test -e go; do sleep 0.02; done; cat $U/.store/login $U/.keys/key; cat $U/file";
    let mut child = place.start(place.shell(script, Some(confinement)));
    fs::write(place.path("user/.store/new"), "new content\n").unwrap();
    fs::rename(place.path("user/.store/new"), place.path("user/.store/login")).unwrap();
    fs::create_dir_all(place.path("user/.keys")).unwrap();
    fs::write(place.path("user/.keys/key"), "new content\n").unwrap();
    fs::write(place.path("hidden/ws/go"), "").unwrap();
    let text = place.runtime.block_on(async {
        let mut text = String::new();
        child.stdout.take().unwrap().read_to_string(&mut text).await.unwrap();
        child.gone().await;
        text
    });
    assert_eq!(text, "content\n", "only what is not hidden");
}
