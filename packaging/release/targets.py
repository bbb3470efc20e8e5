"""The systems that packages are made for."""
import platform
from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """A system, by its names in each kind of package."""
    triple: str
    machine: str
    deb: str
    npm_os: str
    npm_cpu: str
    brew: str
    # The binary is static, so it needs no particular C library.
    wheel: tuple

    @property
    def npm_package(self):
        return f"hob-{self.npm_os}-{self.npm_cpu}"

    def runs_here(self):
        return platform.system() == "Linux" and platform.machine() == self.machine


def linux(machine, deb, npm_cpu, brew):
    tags = tuple(f"{tag}_{machine}" for tag in ("manylinux2014", "manylinux_2_17", "musllinux_1_1"))
    return Target(f"{machine}-unknown-linux-musl", machine, deb, "linux", npm_cpu, brew, tags)


TARGETS = {
    target.triple: target
    for target in (
        linux("x86_64", "amd64", "x64", "on_intel"),
        linux("aarch64", "arm64", "arm64", "on_arm"),
    )
}
