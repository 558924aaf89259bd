"""Hosts of a scale model on this machine: each has a network of its own and a share of the processors.

The hosts are connected by a bridge. The link of each host is limited in both directions.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from rawduck.ceph.network import PrivateNetwork
from rawduck.errors import RawduckError
from rawduck.measuring.control_group import ControlGroups, join

_NETWORK = "10.213.0"
_MASK_BITS = 24
#: How often a host gets its share. With the kernel's default of 100 ms, a request of some milliseconds would
#: run at full speed, and the next one would wait for a tenth of a second.
_PERIOD_US = 5000
#: The kernel accepts no less in a period.
_QUOTA_US_MIN = 1000


@dataclass(frozen=True)
class ModelHost:
    """Plain data, so that a measuring process can move to the host."""

    address: str
    network: str  #: a path for network.enter
    group: str  #: the control group; empty where the host has all processors

    @property
    def wrapper(self) -> tuple[str, ...]:
        """Put before a command to run it on this host."""
        inside = ("nsenter", f"--net={self.network}")
        if not self.group:
            return inside
        script = 'echo $$ > "$0" && exec "$@"'
        return ("sh", "-c", script, str(Path(self.group) / "cgroup.procs"), *inside)

    def join(self) -> None:
        """Moves this process into the control group; its threads that exist already too."""
        if self.group:
            join(Path(self.group))


class ModelHosts:
    """A context manager. `shares`: of each host, in processors; None for one without a limit."""

    def __init__(self, shares: Mapping[str, float | None]) -> None:
        self._shares = shares
        self._stack = ExitStack()
        self._networks: dict[str, PrivateNetwork] = {}
        self.bridge: PrivateNetwork
        self.hosts: dict[str, ModelHost] = {}

    @staticmethod
    def why_not() -> str:
        """Why there can be none on this machine; empty when there can."""
        if reason := PrivateNetwork.why_not():
            return reason
        try:
            ControlGroups.find("cpu")
        except RawduckError as error:
            return str(error)
        return ""

    def __enter__(self) -> ModelHosts:
        with ExitStack() as stack:
            groups = ControlGroups.find("cpu")
            self.bridge = stack.enter_context(PrivateNetwork())
            self.bridge.run("ip", "link", "add", "bridge", "type", "bridge")
            self.bridge.run("ip", "link", "set", "bridge", "up")
            for number, (name, share) in enumerate(self._shares.items(), start=1):
                network = self._networks[name] = stack.enter_context(PrivateNetwork())
                self._connect(network, number)
                group = "" if share is None else str(stack.enter_context(groups.group(_quota(share))))
                self.hosts[name] = ModelHost(f"{_NETWORK}.{number}", network.path, group)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def limit(self, rate: str) -> None:
        """Limits each host's link, in each direction, such as 2gbit; an empty string removes the limit."""
        for number, network in enumerate(self._networks.values(), start=1):
            network.limit(rate, "uplink")
            self.bridge.limit(rate, f"port{number}")

    def _connect(self, network: PrivateNetwork, number: int) -> None:
        port = f"port{number}"
        pair = ("type", "veth", "peer", "name", "uplink", "netns", str(network.pid))
        self.bridge.run("ip", "link", "add", port, *pair)
        self.bridge.run("ip", "link", "set", port, "master", "bridge", "up")
        network.run("ip", "address", "add", f"{_NETWORK}.{number}/{_MASK_BITS}", "dev", "uplink")
        network.run("ip", "link", "set", "uplink", "up")


def _quota(share: float) -> dict[str, str]:
    period = max(_PERIOD_US, round(_QUOTA_US_MIN / share))
    quota = round(share * period)
    return {
        "cpu.cfs_period_us": str(period),
        "cpu.cfs_quota_us": str(quota),
        "cpu.max": f"{quota} {period}",
    }


def shares_fit(shares: Mapping[str, float | None]) -> bool:
    """Whether the hosts' shares leave something of this machine's processors for the rest."""
    wanted = sum(share for share in shares.values() if share is not None)
    return wanted < len(os.sched_getaffinity(0))
