"""Hosts of a scale model: separate networks, and shares of the processors that the kernel enforces."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest
from rawduck.ceph.model_hosts import ModelHosts, shares_fit

SPIN = "import time\nwhile time.process_time() < 0.2: pass"
SEND = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=10) as connection:
    connection.sendall(b"hello")
"""
RECEIVE = """
import socket, sys
with socket.create_server((sys.argv[1], 0)) as server:
    print(server.getsockname()[1], flush=True)
    connection, _ = server.accept()
    print(connection.recv(5).decode())
"""


@pytest.fixture
def hosts():
    if reason := ModelHosts.why_not():
        pytest.skip(reason)
    with ModelHosts({"monitor": None, "slow": 0.1}) as made:
        yield made


def python_on(host, code: str, *arguments: str) -> list[str]:
    return [*host.wrapper, sys.executable, "-c", code, *arguments]


def throttled(group: str) -> int:
    """How often the kernel has stopped the group, because its share was used up."""
    lines = (Path(group) / "cpu.stat").read_text().splitlines()
    return int(dict(line.split() for line in lines)["nr_throttled"])


def test_a_share_of_a_processor_is_enforced(hosts):
    slow = hosts.hosts["slow"]
    before = throttled(slow.group)
    subprocess.run(python_on(hosts.hosts["monitor"], SPIN), check=True)
    assert throttled(slow.group) == before
    subprocess.run(python_on(slow, SPIN), check=True)
    # 200 ms of processor time, and a millisecond of each period
    assert throttled(slow.group) - before > 100


def test_hosts_reach_each_other_and_nothing_else(hosts):
    receiver, sender = hosts.hosts["slow"], hosts.hosts["monitor"]
    command = python_on(receiver, RECEIVE, receiver.address)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        port = process.stdout.readline().strip()
        subprocess.run(python_on(sender, SEND, receiver.address, port), check=True)
        assert process.stdout.readline().strip() == "hello"
    with socket.create_server(("127.0.0.1", 0)) as ours:
        outside = python_on(sender, SEND, "127.0.0.1", str(ours.getsockname()[1]))
        assert b"refused" in subprocess.run(outside, capture_output=True, check=False).stderr


def test_links_are_limited_in_both_directions(hosts):
    hosts.limit("200mbit")
    show = ["tc", "qdisc", "show"]
    for host in hosts.hosts.values():
        shown = subprocess.run([*host.wrapper, *show], capture_output=True, text=True, check=True).stdout
        assert "rate 200Mbit" in shown
    # The other direction is limited at the port of the bridge: the sum that one host receives.
    assert hosts.bridge.run(*show).count("rate 200Mbit") == len(hosts.hosts)
    hosts.limit("")
    assert "tbf" not in hosts.bridge.run(*show)


def test_nothing_is_left(hosts):
    with ModelHosts({"only": 0.1}) as others:
        group, network = others.hosts["only"].group, others.hosts["only"].network
        assert Path(group).exists()
    assert not Path(group).exists()
    assert not Path(network).exists()


def test_shares_leave_something_for_the_rest():
    assert shares_fit({"a": 0.1, "b": None})
    assert not shares_fit({"a": 10000.0})
