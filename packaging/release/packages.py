"""Makes packages from a binary. Every function returns the file name and the bytes of one package."""
import base64
import hashlib
import json
import re
import textwrap
from dataclasses import dataclass

from archives import Member, ar, gz, tar, xz, zip_archive

SUMMARY = "Coding agents in durable sessions that share one long-term memory"
DESCRIPTION = "Hob remembers what you and your coding agents did, gives it back to them when they need it, and runs " \
              "them as durable sessions for your programs. One static program, one folder, no account."
LICENCE = "MIT OR Apache-2.0"
# `packaging/systemd` has the path of `cargo install` for one user, and the path of a tarball for a node.
UNIT_PROGRAMS = ("%h/.cargo/bin/hob", "/usr/local/bin/hob")


@dataclass(frozen=True)
class Contents:
    """What the packages for one system are made from. The dictionaries map names of files or shells to contents."""
    version: str
    epoch: int
    binary: bytes
    manual: dict
    completions: dict
    documents: dict
    units: dict
    third_party: bytes

    def shared(self):
        """Returns manual pages, completions and documents, below `share`."""
        members = [Member(f"share/man/man1/{name}", data) for name, data in self.manual.items()]
        folders = {"bash": "bash-completion/completions/hob", "zsh": "zsh/site-functions/_hob",
                   "fish": "fish/vendor_completions.d/hob.fish"}
        members += [Member(f"share/{folders[shell]}", data) for shell, data in self.completions.items()]
        members += [Member(f"share/doc/hob/{name}", data) for name, data in self.documents.items()]
        members.append(Member("share/doc/hob/THIRD-PARTY-LICENSES", self.third_party))
        return members

    def systemd(self, program):
        """Returns the units, which start this program. The unit of a cluster's node is an example."""
        members = []
        for name, text in self.units.items():
            for usual in UNIT_PROGRAMS:
                text = text.replace(f"ExecStart={usual} ", f"ExecStart={program} ")
            if name == "hob-node.service":
                members.append(Member(f"share/doc/hob/examples/{name}", text.encode()))
            else:
                # The comment at the start says how to install the unit by hand.
                members.append(Member(f"lib/systemd/user/{name}", text[text.index("[Unit]"):].encode()))
        return members


def tarball(contents, target):
    """A folder to unpack into a prefix such as /usr/local or ~/.local."""
    top = f"hob-{contents.version}-{target.triple}"
    members = [Member("bin/hob", contents.binary, 0o755), *contents.shared(), *contents.systemd("/usr/local/bin/hob")]
    members = [Member(f"{top}/{member.path}", member.data, member.mode) for member in members]
    return f"{top}.tar.gz", gz(tar(members, contents.epoch))


def deb(contents, target):
    """A Debian package without maintainer scripts: it starts nothing, and stops nothing."""
    # A pre-release sorts before its release.
    version = contents.version.replace("-", "~", 1)
    members = [Member("usr/bin/hob", contents.binary, 0o755)]
    for member in contents.shared() + contents.systemd("/usr/bin/hob"):
        is_manual = member.path.startswith("share/man/")
        path, data = (member.path + ".gz", gz(member.data)) if is_manual else (member.path, member.data)
        members.append(Member(f"usr/{path}", data, member.mode))
    members.append(Member("usr/share/doc/hob/copyright", COPYRIGHT.encode()))
    size = sum((len(member.data) + 1023) // 1024 for member in members)
    control = textwrap.dedent(f"""\
        Package: hob
        Version: {version}
        Architecture: {target.deb}
        Maintainer: The Hob developers <hob@localhost>
        Installed-Size: {size}
        Recommends: ca-certificates
        Section: devel
        Priority: optional
        Description: {SUMMARY}
        """) + "".join(f" {line}\n" for line in textwrap.wrap(DESCRIPTION, 76))
    sums = "".join(f"{hashlib.md5(member.data).hexdigest()}  {member.path}\n"
                   for member in sorted(members, key=lambda member: member.path))
    about = [Member("control", control.encode()), Member("md5sums", sums.encode())]
    parts = [Member("debian-binary", b"2.0\n"),
             Member("control.tar.xz", xz(tar(about, contents.epoch, "./"))),
             Member("data.tar.xz", xz(tar(members, contents.epoch, "./")))]
    return f"hob_{version}_{target.deb}.deb", ar(parts, contents.epoch)


def npm_platform(contents, target):
    """The npm package with the binary for one system. npm installs it only on that system."""
    about = {
        "name": target.npm_package, "version": contents.version,
        "description": f"{SUMMARY}: the program for {target.npm_os} {target.npm_cpu}", "license": LICENCE,
        "os": [target.npm_os], "cpu": [target.npm_cpu], "files": ["bin", "share"], "preferUnplugged": True,
    }
    members = [Member("bin/hob", contents.binary, 0o755), *contents.shared()]
    return npm_archive(target.npm_package, about, members, contents)


def npm_main(contents, targets, launcher):
    """The npm package `hob`: a launcher for the binary in the package of this system."""
    about = {
        "name": "hob", "version": contents.version, "description": SUMMARY, "license": LICENCE,
        "bin": {"hob": "bin/hob.js"}, "files": ["bin"], "engines": {"node": ">=18"},
        "optionalDependencies": {target.npm_package: contents.version for target in targets},
    }
    members = [Member("bin/hob.js", launcher, 0o755)]
    members += [Member(name, data) for name, data in contents.documents.items()]
    return npm_archive("hob", about, members, contents)


def npm_archive(name, about, members, contents):
    members = [*members, Member("package.json", (json.dumps(about, indent=2) + "\n").encode())]
    members = [Member(f"package/{member.path}", member.data, member.mode) for member in members]
    return f"{name}-{contents.version}.tgz", gz(tar(members, contents.epoch))


def wheel(contents, target):
    """A Python wheel that only installs the program, its manual pages and completions."""
    # PEP 440 writes 1.0.0-rc.1 as 1.0.0rc1.
    version = re.sub(r"-(a|b|rc|alpha|beta)\.?(\d+)$", r"\1\2", contents.version)
    name, tags = f"hob-{version}", ".".join(target.wheel)
    about = "".join(f"Tag: py3-none-{tag}\n" for tag in target.wheel)
    about = f"Wheel-Version: 1.0\nGenerator: hob scripts/release\nRoot-Is-Purelib: false\n{about}"
    metadata = f"Metadata-Version: 2.1\nName: hob\nVersion: {version}\nSummary: {SUMMARY}\nLicense: {LICENCE}\n" \
               f"Requires-Python: >=3.8\nDescription-Content-Type: text/plain\n\n{DESCRIPTION}\n"
    members = [Member(f"{name}.data/scripts/hob", contents.binary, 0o755)]
    members += [Member(f"{name}.data/data/{member.path}", member.data) for member in contents.shared()]
    members.sort(key=lambda member: member.path)
    information = {"METADATA": metadata.encode(), "WHEEL": about.encode()}
    information |= {f"licenses/{file}": data for file, data in contents.documents.items() if file.startswith("LICENSE")}
    members += [Member(f"{name}.dist-info/{file}", data) for file, data in information.items()]
    record = "".join(record_line(member) for member in members) + f"{name}.dist-info/RECORD,,\n"
    members.append(Member(f"{name}.dist-info/RECORD", record.encode()))
    return f"{name}-py3-none-{tags}.whl", zip_archive(members, contents.epoch)


def record_line(member):
    digest = base64.urlsafe_b64encode(hashlib.sha256(member.data).digest()).rstrip(b"=").decode()
    return f"{member.path},sha256={digest},{len(member.data)}\n"


def formula(version, tarballs, address):
    """A Homebrew formula. `tarballs` has the name and the digest of the tarball of each target."""
    blocks = "".join(f'    {target.brew} do\n      url "{address}/{name}"\n      sha256 "{digest}"\n    end\n'
                     for target, (name, digest) in tarballs.items())
    return "hob.rb", textwrap.dedent("""\
        class Hob < Formula
          desc "{summary}"
          homepage "{address}"
          version "{version}"
          license any_of: ["MIT", "Apache-2.0"]

          on_linux do
        {blocks}  end

          depends_on :linux

          def install
            bin.install "bin/hob"
            man1.install Dir["share/man/man1/*"]
            bash_completion.install "share/bash-completion/completions/hob"
            zsh_completion.install "share/zsh/site-functions/_hob"
            fish_completion.install "share/fish/vendor_completions.d/hob.fish"
            doc.install Dir["share/doc/hob/*"]
          end

          service do
            run [opt_bin/"hob", "serve"]
            keep_alive crashed: true
          end

          test do
            assert_match version.to_s, shell_output("#{{bin}}/hob --version")
          end
        end
        """).format(summary=SUMMARY, address=address, version=version, blocks=blocks).encode()


COPYRIGHT = """\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: hob

Files: *
Copyright: The Hob developers
License: Expat or Apache-2.0
Comment: The texts are in LICENSE-MIT and LICENSE-APACHE next to this file.
 THIRD-PARTY-LICENSES has those of the packages that the program contains.
"""
