"""Drives of a known speed: block devices over files that a process is let read no faster."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from rawduck.errors import RawduckError
from rawduck.measuring.control_group import ControlGroups

#: Of cgroup v1 and v2: the controller, its file, and a line of it.
_LIMITS = {
    "cgroup": ("blkio", "blkio.throttle.read_bps_device", "{device} {limit}"),
    "cgroup2": ("io", "io.max", "{device} rbps={limit}"),
}


@dataclass(frozen=True)
class SlowDrives:
    """`losetup`: the program's path."""

    groups: ControlGroups
    losetup: str

    @staticmethod
    def find() -> SlowDrives:
        """Raises RawduckError, saying why, where there can be none."""
        losetup = shutil.which("losetup", path="/usr/sbin:/sbin:/usr/bin:/bin")
        if not losetup:
            raise RawduckError("losetup is not installed (package mount or util-linux)")
        errors = []
        for controller, _, _ in _LIMITS.values():
            try:
                return SlowDrives(ControlGroups.find(controller), losetup)
            except RawduckError as error:
                errors.append(str(error))
        raise RawduckError("; ".join(errors))

    @contextmanager
    def made(self, folder: Path, count: int, drive_bytes: int) -> Iterator[list[str]]:
        """So many block devices, whose files in `folder` go with them."""
        with ExitStack() as stack:
            devices = []
            for number in range(count):
                image = folder / f"drive{number}.img"
                with image.open("wb") as file:
                    file.truncate(drive_bytes)
                stack.callback(image.unlink)
                devices.append(self._attach(image))
                stack.callback(self._run, "--detach", devices[-1])
            yield devices

    @contextmanager
    def limited(self, devices: list[str], bytes_per_second: int) -> Iterator[str]:
        """A control group whose processes read from each of the devices no faster."""
        _, name, line = _LIMITS[self.groups.kind]
        with self.groups.group({}) as group:
            for device in devices:
                number = os.stat(device).st_rdev
                text = line.format(device=f"{os.major(number)}:{os.minor(number)}", limit=bytes_per_second)
                (group / name).write_text(text)
            yield str(group)

    def _attach(self, image: Path) -> str:
        return self._run("--find", "--show", "--direct-io=on", str(image)).strip()

    def _run(self, *arguments: str) -> str:
        done = subprocess.run([self.losetup, *arguments], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RawduckError(f"losetup {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout
