"""Control groups of the kernel (cgroup v1 and v2), made for a measurement and removed after it."""

from __future__ import annotations

import errno
import itertools
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rawduck.errors import RawduckError

_MOUNTS = Path("/proc/self/mounts")
_LEAVE_SECONDS = 10
_numbers = itertools.count(1)


@dataclass(frozen=True)
class ControlGroups:
    """Where groups with a controller can be made. `kind`: cgroup (v1) or cgroup2."""

    parent: Path
    kind: str

    @staticmethod
    def find(controller: str) -> ControlGroups:
        """`controller`: memory or cpu. Raises RawduckError, saying why, where no such group can be made."""
        if os.geteuid() != 0:
            raise RawduckError(
                f"only root can make a control group with the controller {controller} (cgroup)"
            )
        for line in _MOUNTS.read_text().splitlines():
            _, folder, kind, options = line.split()[:4]
            groups = ControlGroups(Path(folder), kind)
            if groups._has(controller, options) and groups._works():
                return groups
        raise RawduckError(
            f"no control group with the controller {controller} can be made here (cgroup v1 or v2)"
        )

    @contextmanager
    def group(self, limits: dict[str, str]) -> Iterator[Path]:
        """A new group, with values of the controller's files that exist here."""
        group = self.parent / f"rawduck-bench-{os.getpid()}-{next(_numbers)}"
        group.mkdir()
        try:
            for name, value in limits.items():
                if (group / name).exists():
                    (group / name).write_text(value)
            yield group
        finally:
            _remove(group)

    def _has(self, controller: str, options: str) -> bool:
        if self.kind == "cgroup":
            return controller in options.split(",")
        control = self.parent / "cgroup.subtree_control"
        return self.kind == "cgroup2" and control.exists() and controller in control.read_text().split()

    def _works(self) -> bool:
        try:
            with self.group({}):
                return True
        except (OSError, RawduckError):
            return False


def join(group: Path) -> None:
    """Moves this process into a group."""
    (group / "cgroup.procs").write_text(str(os.getpid()))


def _remove(group: Path) -> None:
    """An interrupted process takes a moment to leave the group. One that does not keeps it."""
    until = time.monotonic() + _LEAVE_SECONDS
    while True:
        try:
            group.rmdir()
            return
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > until:
                raise RawduckError(f"cannot remove the control group {group}: {error.strerror}") from error
        time.sleep(0.01)
