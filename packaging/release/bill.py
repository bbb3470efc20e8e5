"""What the binary contains: a software bill of materials (CycloneDX), and the licences of its parts."""
import base64
import json
import os
import time
import tomllib
import uuid
from dataclasses import dataclass, field
from pathlib import Path

from build import TOOLS, ReleaseError, output

LICENCE_STEMS = ("license", "licence", "copying", "copyright", "notice", "unlicense")
# A namespace for the serial numbers of bills, chosen at random once.
NAMESPACE = uuid.UUID("5f0c6b0e-6a0f-4b1e-9a57-3d5b0c1b6f42")


@dataclass
class Part:
    """A package inside the binary."""
    purl: str
    name: str
    version: str
    licence: str
    sha256: str = ""
    integrity: str = ""
    folder: Path = None
    uses: list = field(default_factory=list)


def parts_of(root, target):
    """Returns the parts of the binary for a target, and the package URLs that `hob` itself uses."""
    crates, top = rust_parts(root, target)
    return sorted(crates + console_parts(root) + runtime_parts(root), key=lambda part: part.purl), top


def rust_parts(root, target):
    """Returns the crates that are compiled into `hob`."""
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", target.triple]
    metadata = json.loads(output(*command, cwd=root))
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    checksums = {(package["name"], package["version"]): package.get("checksum", "")
                 for package in tomllib.loads((root / "Cargo.lock").read_text())["package"]}

    def is_inside(dependency):
        kinds = {kind["kind"] for kind in dependency["dep_kinds"]}
        # Crates named `-src` bring C code, which a build script compiles into the binary.
        return None in kinds or ("build" in kinds and packages[dependency["pkg"]]["name"].endswith("-src"))

    def purl(identity):
        return f"pkg:cargo/{packages[identity]['name']}@{packages[identity]['version']}"

    start = next(id for id, package in packages.items() if package["name"] == "hob" and package["source"] is None)
    found, waiting = {}, [start]
    while waiting:
        identity = waiting.pop()
        if identity in found:
            continue
        inside = [each["pkg"] for each in nodes[identity]["deps"] if is_inside(each)]
        package = packages[identity]
        found[identity] = Part(
            purl(identity), package["name"], package["version"], package["license"] or "",
            sha256=checksums.get((package["name"], package["version"]), ""),
            folder=Path(package["manifest_path"]).parent if package["source"] else None,
            uses=sorted({purl(each) for each in inside}))
        waiting += inside
    top = found.pop(start)
    return list(found.values()), top.uses


def console_parts(root):
    """Returns the npm packages that the embedded console is built from."""
    lock = json.loads((root / "console/package-lock.json").read_text())["packages"]
    parts = []
    for path, package in lock.items():
        if path and not package.get("dev"):
            name = path.rpartition("node_modules/")[2]
            purl = f"pkg:npm/{name.replace('@', '%40')}@{package['version']}"
            parts.append(Part(purl, name, package["version"], package.get("license", ""),
                              integrity=package.get("integrity", ""), folder=root / "console" / path))
    return parts


def runtime_parts(root):
    """Returns Rust's standard library, and the C library that zig links."""
    rust = output("rustc", "--version", cwd=root).split()[1]
    zig = TOOLS[0].partition("==")[2]
    texts = root / "packaging/release/licences"
    return [Part(f"pkg:generic/rust-std@{rust}", "rust-std", rust, "MIT OR Apache-2.0", folder=root),
            Part(f"pkg:generic/musl@zig-{zig}", "musl", f"zig-{zig}", "MIT", folder=texts / "musl")]


def cyclonedx(version, target, parts, top, epoch):
    """Returns a CycloneDX 1.5 document. The serial number follows from the content."""
    own = f"pkg:generic/hob@{version}"
    components = []
    for part in parts:
        component = {"type": "library", "bom-ref": part.purl, "name": part.name, "version": part.version}
        if part.licence:
            component["licenses"] = [{"expression": part.licence.replace("/", " OR ")}]
        if part.sha256:
            component["hashes"] = [{"alg": "SHA-256", "content": part.sha256}]
        if part.integrity.startswith("sha512-"):
            digest = base64.b64decode(part.integrity.removeprefix("sha512-")).hex()
            component["hashes"] = [{"alg": "SHA-512", "content": digest}]
        component["purl"] = part.purl
        components.append(component)
    # Crates of the workspace have no other part that uses the console and the runtime, so `hob` does.
    used = {purl for part in parts for purl in part.uses}
    roots = sorted(set(top) | {part.purl for part in parts if part.purl not in used})
    dependencies = [{"ref": own, "dependsOn": roots}]
    dependencies += [{"ref": part.purl, "dependsOn": part.uses} for part in parts]
    body = {
        "metadata": {
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch)),
            "component": {"type": "application", "bom-ref": own, "name": "hob", "version": version,
                          "licenses": [{"expression": "MIT OR Apache-2.0"}],
                          "properties": [{"name": "target", "value": target.triple}]},
        },
        "components": components,
        "dependencies": dependencies,
    }
    serial = uuid.uuid5(NAMESPACE, json.dumps(body, sort_keys=True))
    head = {"bomFormat": "CycloneDX", "specVersion": "1.5", "serialNumber": f"urn:uuid:{serial}", "version": 1}
    return (json.dumps(head | body, indent=1) + "\n").encode()


def licence_texts(parts):
    """Returns one text with the licences of all parts. Equal texts appear once, with the parts that have them."""
    holders = {}
    for part in parts:
        if part.folder is None:
            continue
        if not part.folder.is_dir():
            raise ReleaseError(f"{part.folder} is missing, so the licence of {part.name} is unknown; run `cargo fetch`, "
                               "and `npm ci` in console/")
        names = sorted(name for name in os.listdir(part.folder) if name.lower().startswith(LICENCE_STEMS))
        texts = [part.folder / name for name in names if (part.folder / name).is_file()]
        label = f"{part.name} {part.version} ({part.licence})"
        if not texts:
            holders.setdefault("(This package has no file with its licence.)", []).append(label)
        for path in texts:
            text = path.read_text(errors="replace").replace("\r\n", "\n").strip()
            holders.setdefault(text, []).append(label)
    ordered = sorted(holders.items(), key=lambda item: (sorted(item[1])[0].lower(), item[0]))
    head = "The binary `hob` contains these packages. The text of each licence follows the names of its packages.\n"
    rule = "\n" + "=" * 80 + "\n"
    blocks = [rule + "\n".join(sorted(set(names))) + f"\n\n{text}\n" for text, names in ordered]
    return (head + "".join(blocks)).encode()
