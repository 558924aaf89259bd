"""Which disk something lies on."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def disk_of(path: str | os.PathLike[str]) -> str:
    """The name of the whole disk (such as 'nvme0n1') below a device, file or folder; '' for none."""
    status = os.stat(path)
    device = status.st_rdev if stat.S_ISBLK(status.st_mode) else status.st_dev
    entry = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}")
    if not entry.exists():
        return ""
    entry = entry.resolve()
    return entry.parent.name if (entry / "partition").exists() else entry.name


def is_block_device(path: str) -> bool:
    try:
        return stat.S_ISBLK(os.stat(path).st_mode)
    except OSError:
        return False
