"""Paths as the extension reads them, and SQL quoting."""

from __future__ import annotations

import os
import stat
from pathlib import Path, PurePosixPath

from rawduck.errors import RawduckError

VOLUME_SCHEME = "nvme://"
DIRECT_SCHEME = "direct://"
MEMORY_PREFIX = "memory:"
VFIO_PREFIX = "vfio:"
CEPH_SCHEME = "rados://"


def quote(text: str) -> str:
    """A string as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def identifier(name: str) -> str:
    """A name as a quoted SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def is_volume_path(path: str) -> bool:
    return path.startswith(VOLUME_SCHEME)


def is_function(target: str) -> bool:
    """A namespace of a PCI function, which a driver in the process has."""
    return target.startswith(VFIO_PREFIX)


def is_ceph_path(path: str) -> bool:
    return path.startswith(CEPH_SCHEME)


def with_both_slashes(path: str) -> str | None:
    """The path that was meant by nvme:/dev/x or direct:x, which DuckDB takes for names of extensions."""
    for scheme in (VOLUME_SCHEME, DIRECT_SCHEME):
        name = scheme.removesuffix("//")
        if path.startswith(name) and not path.startswith(scheme):
            return scheme + path[len(name) :]
    return None


def has_scheme(path: str) -> bool:
    return path.startswith((VOLUME_SCHEME, DIRECT_SCHEME))


def absolute_target(target: str) -> str:
    """A target as typed at a shell: relative paths are allowed there, and so is the nvme:// prefix."""
    target = target[len(VOLUME_SCHEME) :] if is_volume_path(target) else target
    return target if target.startswith((MEMORY_PREFIX, VFIO_PREFIX)) else os.path.abspath(target)


def _may_be_open_here(path: str) -> bool:
    """Then stock DuckDB may have locked it, and to open and to close it would take that lock along. A lock is
    taken through a descriptor, so where there is none there is no lock."""
    asked = os.stat(path)
    try:
        descriptors = os.listdir("/proc/self/fd")
    except OSError:
        return True
    for descriptor in descriptors:
        try:
            known = os.fstat(int(descriptor))
        except OSError:
            continue  # that of the folder itself, or closed meanwhile
        if os.path.samestat(known, asked):
            return True
    return False


def holds_volume(path: str) -> bool:
    """Whether an ordinary path is the file or device of a volume (docs/ON_DISK_FORMAT.md)."""
    try:
        kind = os.stat(path).st_mode
        if not (stat.S_ISREG(kind) or stat.S_ISBLK(kind)):  # opening a pipe waits for its other end
            return False
        if _may_be_open_here(path):
            return False
        with open(path, "rb") as file:
            return file.read(8) in (b"RAWDUCK\0", b"RAWDUCKM")  # alone, or one of several
    except (OSError, ValueError):
        return False


def meant_on_volume(path: str) -> str | None:
    """What to say of an ordinary path that is, or leads into, the file or device of a volume."""
    absolute = PurePosixPath(os.path.abspath(path))
    for target in (absolute, *absolute.parents):
        if holds_volume(str(target)):
            file = str(absolute.relative_to(target)) if target != absolute else "<name>"
            return f"{target} is a rawduck volume: write {volume_path(str(target), file)}"
    return None


def split_volume_path(path: str) -> tuple[str, str] | None:
    """Target and file of nvme://<target>/<file>. The target is the first that is no directory; None: there is
    none."""
    rest = path.removeprefix(VOLUME_SCHEME)
    if rest.startswith((MEMORY_PREFIX, VFIO_PREFIX)):
        target, _, file = rest.partition("/")
        return target, file
    for target in PurePosixPath(rest).parents:
        if os.path.exists(target) and not os.path.isdir(target):
            return str(target), str(PurePosixPath(rest).relative_to(target))
    return None


def volume_path(target: str, file: str) -> str:
    return f"{VOLUME_SCHEME}{absolute_target(target)}/{file}"


def make_folder(folder: Path, option: str) -> None:
    """With those above it. The option is where another one can be named."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RawduckError(
            f"{folder}: cannot make this folder ({error.strerror}); name another one with {option}"
        ) from None


def direct_path(path: str) -> str:
    """The direct:// path of an ordinary file."""
    return DIRECT_SCHEME + os.path.abspath(path)
