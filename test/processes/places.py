"""Ways in which two processes can name one target, or two targets of which one contains the other."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from machine import MIB, loop_over, mounted, must, new_image, partition_of, second_node

_numbers = itertools.count()
VOLUME_BYTES = 64 * MIB
_PARTITION_START = 8 * MIB
#: Of a volume as large as the whole disk: where nothing lies yet.
_UNUSED_START, _UNUSED_BYTES = 40 * MIB, 17 * MIB


@dataclass
class Place:
    """One target under the names that its holder and the other process use."""

    way: str
    holder: str
    other: str
    #: The device that the holder's I/O passes, to be throttled.
    disk: str
    #: Whether the other name contains the target, or is contained in it.
    part: bool = False
    extra_names: list[str] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        return [self.holder, self.other, *self.extra_names]

    @property
    def other_is_device(self) -> bool:
        return Path(self.other).is_block_device()


def _same(base: str, _: Path, __: ExitStack) -> str:
    return base


def _symbolic_link(base: str, folder: Path, stack: ExitStack) -> str:
    link = folder / f"link{next(_numbers)}"
    link.symlink_to(base)
    stack.callback(link.unlink)
    return str(link)


def _hard_link(base: str, folder: Path, stack: ExitStack) -> str:
    link = folder / f"hard{next(_numbers)}"
    link.hardlink_to(base)
    stack.callback(link.unlink)
    return str(link)


def _bind_mount(base: str, folder: Path, stack: ExitStack) -> str:
    point = folder / f"bound{next(_numbers)}"
    point.touch()
    stack.callback(point.unlink)
    stack.enter_context(mounted(base, point, "--bind"))
    return str(point)


def _loop(base: str, _: Path, stack: ExitStack) -> str:
    return stack.enter_context(loop_over(base))


def _second_node(base: str, folder: Path, stack: ExitStack) -> str:
    return stack.enter_context(second_node(base, folder))


OF_A_FILE = {
    "same path": _same,
    "symbolic link": _symbolic_link,
    "hard link": _hard_link,
    "bind mount": _bind_mount,
    "loop device over it": _loop,
}
OF_A_DEVICE = {
    "device": _same,
    "link to the device": _symbolic_link,
    "second node": _second_node,
    "bind mount of the node": _bind_mount,
    "loop device over the device": _loop,
}
BACKING_FILE = "its backing file"
SECOND_LOOP = "second loop device"
BEHIND_A_LOOP = (BACKING_FILE, SECOND_LOOP)
#: For the kernel these are devices of their own, which nobody has claimed.
OTHER_LOOPS = ("loop device over it", "loop device over the device", SECOND_LOOP)
PARTITIONS = ("whole disk of its partition", "partition of it")
ALL_WAYS = (*OF_A_FILE, *OF_A_DEVICE, *BEHIND_A_LOOP, *PARTITIONS)


def write_out(path: Path) -> None:
    """Otherwise the first direct read of whoever opens it does that, and waits for a stopped disk."""
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


@contextmanager
def place(way: str, template: Path, folder: Path, disk: str) -> Iterator[Place]:
    """A copy of the template, in `folder` on `disk`, under two names."""
    base = folder / f"target{next(_numbers)}.img"
    shutil.copyfile(template, base)
    write_out(base)
    with ExitStack() as stack:
        stack.callback(base.unlink)
        if way in OF_A_FILE:
            yield Place(
                way, str(base), OF_A_FILE[way](str(base), folder, stack), disk, extra_names=[str(base)]
            )
            return
        if way == PARTITIONS[0]:
            yield _partition_first(base, template, folder, stack)
            return
        device = stack.enter_context(loop_over(base))
        names = [device, str(base)]
        if way in OF_A_DEVICE:
            # The other name is made beside the image: /dev is not ours.
            yield Place(way, device, OF_A_DEVICE[way](device, folder, stack), device, extra_names=names)
        elif way == BACKING_FILE:
            yield Place(way, device, str(base), device, extra_names=names)
        elif way == SECOND_LOOP:
            yield Place(way, device, stack.enter_context(loop_over(base)), device, extra_names=names)
        else:
            inside = stack.enter_context(partition_of(device, _UNUSED_START, _UNUSED_BYTES, folder))
            yield Place(way, device, inside, device, part=True, extra_names=names)


def _partition_first(base: Path, template: Path, folder: Path, stack: ExitStack) -> Place:
    """The template's volume on a partition."""
    new_image(base, _PARTITION_START + VOLUME_BYTES + MIB)
    device = stack.enter_context(loop_over(base))
    partition = stack.enter_context(partition_of(device, _PARTITION_START, VOLUME_BYTES, folder))
    must("dd", f"if={template}", f"of={partition}", "bs=1M", "oflag=direct", "conv=fsync")
    return Place(PARTITIONS[0], partition, device, device, part=True, extra_names=[device, str(base)])
