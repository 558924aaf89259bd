"""Which disk something lies on."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from rawduck import paths


def disk_of(path: str | os.PathLike[str]) -> str:
    """The name of the whole disk (such as 'nvme0n1') below a device, file or folder; '' for none."""
    status = os.stat(path)
    device = status.st_rdev if stat.S_ISBLK(status.st_mode) else status.st_dev
    entry = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}")
    if not entry.exists():
        return ""
    entry = entry.resolve()
    return entry.parent.name if (entry / "partition").exists() else entry.name


def block_device(target: str) -> str:
    """The block device of a namespace that is named by its character device, such as /dev/ng0n1; any other
    target itself."""
    name = Path(target).name
    generic = Path("/sys/class/nvme-generic") / name
    if not Path(target).is_char_device() or not generic.exists():
        return target
    namespace = name.rpartition("n")[2]
    # Both lie below the same controller or subsystem; the numbers in their names need not agree.
    for entry in generic.resolve().parent.glob(f"nvme*n{namespace}"):
        if (Path("/sys/block") / entry.name).exists():
            return f"/dev/{entry.name}"
    return target


def is_device(target: str) -> bool:
    """Whether a target is there whole, and has a size of its own: no regular file."""
    return paths.is_function(target) or Path(target).is_block_device() or Path(target).is_char_device()


def is_block_device(path: str) -> bool:
    try:
        return stat.S_ISBLK(os.stat(path).st_mode)
    except OSError:
        return False
