"""Builds the static binaries: Rust's musl targets, with zig as the C compiler and the linker."""
import os
import shutil
import subprocess
import sys
from pathlib import Path

# From PyPI. A later zig may generate other code, so the versions are fixed.
TOOLS = ["ziglang==0.17.0", "cargo-zigbuild==0.24.0"]


class ReleaseError(Exception):
    """What is missing or wrong, and what to do about it."""


def program(name, hint):
    """Returns the path of a program on the PATH."""
    found = shutil.which(name)
    if not found:
        raise ReleaseError(f"`{name}` is not on the PATH; {hint}")
    return found


def output(*command, cwd):
    """Runs a program and returns what it prints."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    if done.returncode != 0:
        raise ReleaseError(f"`{' '.join(command)}` failed: {done.stderr.strip()[-600:]}")
    return done.stdout


def install_tools(folder):
    """Installs zig and cargo-zigbuild into a virtual environment of their own."""
    stamp = folder / ".installed"
    if stamp.exists() and stamp.read_text() == "\n".join(TOOLS):
        return
    print(f"installing {', '.join(TOOLS)}", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    try:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        pip = [folder / "bin/pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        subprocess.run([*pip, *TOOLS], check=True)
    except subprocess.CalledProcessError as error:
        raise ReleaseError(f"cannot install the build tools from PyPI: {error}") from error
    stamp.write_text("\n".join(TOOLS))


def build(root, target_folder, target, epoch):
    """Builds one target with the profile that ships. Returns the path of its binary."""
    cargo = program("cargo", "install Rust: https://rustup.rs")
    program("npm", "the build of the console needs Node 20 or newer")
    sysroot = Path(output("rustc", "--print", "sysroot", cwd=root).strip())
    if not (sysroot / "lib/rustlib" / target.triple).is_dir():
        raise ReleaseError(f"Rust's library for {target.triple} is missing; run `rustup target add {target.triple}`")
    tools = target_folder / "release-tools"
    install_tools(tools)
    cargo_home = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"))
    # Paths of this machine must not be in the binary.
    remap = {root: "hob", cargo_home: "cargo"}
    if not target_folder.is_relative_to(root):
        remap[target_folder] = "hob/target"
    flags = [f"--remap-path-prefix={path}={name}" for path, name in remap.items()]
    if any(" " in flag for flag in flags):
        raise ReleaseError("the paths of the checkout, of CARGO_HOME and of the target folder must have no spaces")
    environment = os.environ | {
        "CARGO_TARGET_DIR": str(target_folder),
        "CARGO_ZIGBUILD_PYTHON_PATH": str(tools / "bin/python3"),
        "HOB_CONSOLE": "build",
        "PATH": f"{tools / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "RUSTFLAGS": " ".join(flags),
        "SOURCE_DATE_EPOCH": str(epoch),
    }
    command = [cargo, "zigbuild", "--locked", "--profile", "dist", "--package", "hob", "--target", target.triple]
    if subprocess.run(command, cwd=root, env=environment).returncode != 0:
        raise ReleaseError(f"the build for {target.triple} failed; the reason is above")
    return binary_path(target_folder, target)


def binary_path(target_folder, target):
    return target_folder / target.triple / "dist/hob"
