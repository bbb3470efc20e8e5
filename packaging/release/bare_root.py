"""A root filesystem with nothing in it but what a test puts there. Programs run in it by chroot.

The test must run in namespaces of its own (`enter_namespaces`): mounts, processes and network end with it.
"""
import fcntl
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
USER_HOME = "/home/user"


def enter_namespaces():
    """Starts this script again in new namespaces, and returns in there."""
    if os.environ.pop("IN_NAMESPACES", None):
        subprocess.run(["mount", "-t", "proc", "proc", "/proc"], check=True)
        start_loopback()
        return
    user = [] if os.getuid() == 0 else ["--map-root-user"]
    command = ["unshare", *user, "--mount", "--pid", "--net", "--fork", "--kill-child", sys.executable, *sys.argv]
    os.execvpe(command[0], command, os.environ | {"IN_NAMESPACES": "1"})


def start_loopback():
    get_flags, set_flags, up = 0x8913, 0x8914, 1
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(any_socket, get_flags, request))[1]
        fcntl.ioctl(any_socket, set_flags, struct.pack("16sh14x", b"lo", flags | up))


class BareRoot:
    """A root filesystem, and the programs that run in it."""

    def __init__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="hob-root-")).resolve()
        self.folder.chmod(0o755)
        for name in ("dev", "proc", "tmp", USER_HOME.lstrip("/")):
            (self.folder / name).mkdir(parents=True)
        self.mounts = []
        self.mount("proc", "-t", "proc", "proc")
        for device in DEVICES:
            self.path(f"dev/{device}").touch()
            self.mount(f"dev/{device}", "--bind", f"/dev/{device}")

    def mount(self, inside, *arguments):
        subprocess.run(["mount", *arguments, self.path(inside)], check=True)
        self.mounts.append(inside)

    def path(self, inside):
        """Returns where a path of the root is on the machine."""
        return self.folder / str(inside).lstrip("/")

    def lend(self, source, inside=None):
        """Shows a file or folder of the machine at its own path or at another one, read-only."""
        source = Path(source)
        inside = str(inside or source).lstrip("/")
        target = self.path(inside)
        if source.is_dir():
            target.mkdir(parents=True, exist_ok=True)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.touch()
        self.mount(inside, "--bind", source)
        subprocess.run(["mount", "-o", "remount,bind,ro", target], check=True)

    def lend_program(self, program, inside=None):
        """Shows a program and the libraries that it loads."""
        self.lend(program, inside)
        for library in libraries(program):
            if not self.path(library).exists():
                self.lend(library)

    def start(self, *command, environment=None, **options):
        """Starts a program in the root, as its user's shell would."""
        variables = {"HOME": USER_HOME, "PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"} | (environment or {})

        def enter():
            os.chroot(self.folder)
            os.chdir(variables["HOME"])
        options = {"stdin": subprocess.DEVNULL, "text": True} | options
        program = self.find(command[0], variables["PATH"])
        return subprocess.Popen([program, *command[1:]], env=variables, preexec_fn=enter, **options)

    def find(self, program, path):
        places = [program] if "/" in program else [f"{folder}/{program}" for folder in path.split(":")]
        found = next((place for place in places if os.path.lexists(self.path(place))), None)
        if found is None:
            raise FileNotFoundError(f"{program} is not in the root filesystem (PATH {path})")
        return found

    def run(self, *command, text=None, environment=None, code=0):
        """Runs a program in the root and returns what it prints. Fails if its exit code is another."""
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        if text is not None:
            streams["stdin"] = subprocess.PIPE
        process = self.start(*command, environment=environment, **streams)
        out, errors = process.communicate(text, timeout=120)
        if process.returncode != code:
            raise AssertionError(f"{' '.join(command)} ended with {process.returncode}: {errors[-1500:]}{out[-500:]}")
        return out

    def files(self, below="", without=()):
        """Returns every file with its content and mode, except what is lent and what `without` names."""
        skipped = {str(self.path(name)) for name in [*self.mounts, *without]}
        found = {}
        for folder, folders, names in os.walk(self.path(below)):
            folders[:] = [name for name in folders if os.path.join(folder, name) not in skipped]
            for name in [*folders, *names]:
                path = Path(folder, name)
                if str(path) in skipped:
                    continue
                mode = path.lstat().st_mode
                content = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
                found[str(path.relative_to(self.folder))] = (mode, content)
        return found

    def remove_empty(self, *folders):
        """Removes folders of the system that a package shares with others, if nothing is in them."""
        for folder in folders:
            path = self.path(folder)
            if path.is_dir() and not any(path.iterdir()):
                path.rmdir()

    def close(self):
        """Unmounts what is lent, and removes the root. Removes nothing if a mount stays, because it is the machine's."""
        for mount in reversed(self.mounts):
            subprocess.run(["umount", "--lazy", self.path(mount)], check=True)
        shutil.rmtree(self.folder)


def libraries(program):
    """Returns the libraries that a program loads; none if it is static."""
    done = subprocess.run(["ldd", program], capture_output=True, text=True)
    words = [word for line in done.stdout.splitlines() for word in line.split()]
    return sorted({word for word in words if word.startswith("/") and os.path.isfile(word)})


def other_processes():
    """Returns the processes of this namespace except this one, which is its first."""
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                break
        except ChildProcessError:
            break
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]


def wait_until(what, is_true, seconds=20):
    deadline = time.monotonic() + seconds
    while not (value := is_true()):
        if time.monotonic() > deadline:
            raise AssertionError(f"after {seconds} s still not: {what}")
        time.sleep(0.02)
    return value
