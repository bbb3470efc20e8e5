"""Archives whose bytes depend only on their members: sorted, with one time and one owner."""
import gzip
import io
import lzma
import stat
import tarfile
import time
import zipfile
from dataclasses import dataclass


@dataclass(frozen=True)
class Member:
    """A regular file in an archive."""
    path: str
    data: bytes
    mode: int = 0o644


def folders_of(members):
    """Returns every folder above the members, each before what it contains."""
    folders = set()
    for member in members:
        parts = member.path.split("/")[:-1]
        folders.update("/".join(parts[:count]) for count in range(1, len(parts) + 1))
    return sorted(folder for folder in folders if folder not in ("", "."))


def tar(members, epoch, prefix=""):
    """Returns an uncompressed tar archive. `prefix` comes before every path, such as `./` in Debian packages."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as archive:
        def add(path, kind, mode, data=b""):
            entry = tarfile.TarInfo(prefix + path)
            entry.type, entry.mode, entry.mtime, entry.size = kind, mode, epoch, len(data)
            entry.uname = entry.gname = "root"
            archive.addfile(entry, io.BytesIO(data))
        if prefix:
            add("", tarfile.DIRTYPE, 0o755)
        for folder in folders_of(members):
            add(folder + "/", tarfile.DIRTYPE, 0o755)
        for member in sorted(members, key=lambda member: member.path):
            add(member.path, tarfile.REGTYPE, member.mode, member.data)
    return out.getvalue()


def gz(data):
    """Compresses with gzip, without a name and a time."""
    out = io.BytesIO()
    with gzip.GzipFile(filename="", fileobj=out, mode="wb", compresslevel=9, mtime=0) as file:
        file.write(data)
    return out.getvalue()


def xz(data):
    return lzma.compress(data, format=lzma.FORMAT_XZ, check=lzma.CHECK_CRC64, preset=9)


def ar(members, epoch):
    """Returns an `ar` archive with its members in the given order, as Debian packages need it."""
    out = io.BytesIO()
    out.write(b"!<arch>\n")
    for member in members:
        header = f"{member.path:<16}{epoch:<12}{0:<6}{0:<6}{0o100000 | member.mode:<8o}{len(member.data):<10}`\n"
        out.write(header.encode())
        out.write(member.data + b"\n" * (len(member.data) % 2))
    return out.getvalue()


def zip_archive(members, epoch):
    """Returns a zip archive with its members in the given order. Zip knows no time before 1980."""
    moment = time.gmtime(max(epoch, 315_532_800))[:6]
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for member in members:
            entry = zipfile.ZipInfo(member.path, moment)
            entry.create_system = 3
            entry.external_attr = (stat.S_IFREG | member.mode) << 16
            archive.writestr(entry, member.data, zipfile.ZIP_DEFLATED, 9)
    return out.getvalue()
