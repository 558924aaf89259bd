"""A private network on this machine, whose speed can be limited."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import time
from pathlib import Path

from rawduck.errors import RawduckError

_CLONE_NEWNET = 0x40000000
_START_SECONDS = 5
# Of the token bucket: slightly more than the loopback's largest packets (64 KiB). A larger burst would exceed
# the rate of a real link.
_BURST = "96kb"
_QUEUE = "50ms"


class PrivateNetwork:
    """A network namespace with its own loopback only; a context manager. Needs root and iproute2."""

    @staticmethod
    def why_not() -> str:
        """Why there can be none on this machine; empty when there can."""
        if os.geteuid() != 0:
            return "a private network needs root"
        missing = [program for program in ("ip", "tc", "unshare", "nsenter") if not shutil.which(program)]
        return f"{', '.join(missing)} not installed (iproute2, util-linux)" if missing else ""

    def __enter__(self) -> PrivateNetwork:
        self._holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"], stdin=subprocess.DEVNULL)
        limit = time.monotonic() + _START_SECONDS
        while self._same_as_ours():
            if time.monotonic() > limit or self._holder.poll() is not None:
                self.__exit__()
                raise RawduckError("cannot make a private network: `unshare --net` does not work here")
            time.sleep(0.01)
        self.run("ip", "link", "set", "lo", "up")
        return self

    def __exit__(self, *_: object) -> None:
        self._holder.kill()
        self._holder.wait()

    @property
    def path(self) -> str:
        """The argument of `enter`."""
        return f"/proc/{self._holder.pid}/ns/net"

    @property
    def wrapper(self) -> tuple[str, ...]:
        """Put before a command to run it in this network."""
        return ("nsenter", f"--net={self.path}")

    @property
    def pid(self) -> int:
        """Of a process in this network."""
        return self._holder.pid

    def limit(self, rate: str, device: str = "lo") -> None:
        """Limits what the device sends, such as 1gbit; an empty string removes the limit."""
        shaping = ["tbf", "rate", rate, "burst", _BURST, "latency", _QUEUE] if rate else ["noqueue"]
        self.run("tc", "qdisc", "replace", "dev", device, "root", *shaping)

    def run(self, *command: str) -> str:
        """Runs a command in this network. Returns its output; raises RawduckError when it fails."""
        result = subprocess.run([*self.wrapper, *command], capture_output=True, text=True, check=False)
        if result.returncode != 0:
            raise RawduckError(f"`{' '.join(command)}` failed: {result.stderr.strip()}")
        return result.stdout

    def _same_as_ours(self) -> bool:
        return os.readlink(self.path) == os.readlink("/proc/self/ns/net")


def enter(path: str) -> None:
    """Moves this thread, and threads and processes that it starts, into a private network."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        if libc.setns(descriptor, _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"{path}: cannot enter the network")
    finally:
        os.close(descriptor)


def transferred_bytes() -> int:
    """Bytes that this thread's network has carried so far: those that it sent to itself, and those that it
    sent to others and received from them."""
    total = 0
    for line in Path("/proc/thread-self/net/dev").read_text().splitlines():
        name, separator, counters = line.partition(":")
        if separator:
            received, sent = int(counters.split()[0]), int(counters.split()[8])
            total += sent if name.strip() == "lo" else received + sent
    return total
