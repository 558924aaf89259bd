"""A Ceph cluster on this machine, for trying out, tests and benchmarks: one monitor and a few OSDs on files.

All files are below one directory, and all daemons listen on 127.0.0.1 only. There is no manager and no
systemd. The daemons are Debian's own and run as the user who starts them. No other process is ever ended.
In a scale model, each daemon has a host of its own, and listens on that host's address.
"""

from __future__ import annotations

import glob
import json
import os
import shutil
import socket
import subprocess
import time
import uuid
from collections.abc import Callable, Container, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from rawduck.ceph.daemon import Daemon
from rawduck.ceph.model_hosts import ModelHost
from rawduck.errors import RawduckError

OSDS_MAX = 6
MONITOR = "mon.a"

_PROGRAMS = ("ceph", "ceph-authtool", "ceph-mon", "ceph-osd", "monmaptool")
_STATE = "rawduck-ceph.json"
_START_SECONDS = 120
_COMMAND_SECONDS = 60
_POLL_SECONDS = 5
_SOCKET_PATH_BYTES_MAX = 107
_GROUPS_PER_OSD = 16
_LOOPBACK = "127.0.0.1"
# What Ceph itself has in osd_class_default_list.
_DEFAULT_CLASSES = (
    "cephfs hello journal lock log numops otp rbd refcount rgw rgw_gc timeindex user version cas cmpomap "
    "queue 2pc_queue fifo"
)


@dataclass(frozen=True)
class Options:
    """Properties of a cluster, stored in its directory."""

    osds: int = 1
    copies: int = 1  # replicas of each object, in pools with the defaults
    cephx: bool = False  # clients and daemons authenticate with keys
    osd_bytes: int = 16 << 30  # sparse files


def class_directory() -> Path | None:
    """The directory of the object class in this package, for `Cluster.up`. None where it was not built."""
    directory = Path(__file__).parent.parent / "class"
    return directory if (directory / "libcls_rawduck.so").exists() else None


class Cluster:
    """The cluster below a directory. Not thread-safe, but several processes may use a running one.

    `wrapper`: put before each command that uses the network, to run it in a private network for example.
    `hosts`: of a scale model, by the names of daemons. The monitor's is that of the commands too.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        wrapper: tuple[str, ...] = (),
        hosts: Mapping[str, ModelHost] | None = None,
    ) -> None:
        self.directory = Path(directory).absolute()
        self._hosts = hosts or {}
        self._wrapper = self._hosts[MONITOR].wrapper if self._hosts else wrapper

    @property
    def conf(self) -> Path:
        """The configuration file for clients."""
        return self.directory / "ceph.conf"

    @property
    def keyring(self) -> Path:
        """The administrator's key."""
        return self.directory / "keyring"

    @property
    def helper_directory(self) -> Path:
        """Where the helper process of the object class listens, for all OSDs."""
        return self.directory / "run" / "rawduck"

    def _helper_directory_of(self, osd: str) -> Path:
        """A host of a scale model has a helper process of its own."""
        return self.helper_directory / osd if self._hosts else self.helper_directory

    @property
    def exists(self) -> bool:
        return (self.directory / _STATE).exists()

    @property
    def options(self) -> Options:
        return Options(**self._state()["options"])

    def up(self, options: Options | None = None, class_directory: Path | None = None) -> None:
        """Creates the cluster if there is none and starts all daemons; returns when every OSD is up.

        `class_directory`: object classes that are installed beside the system's in each OSD that is started.
        """
        if reason := why_not():
            raise RawduckError(reason)
        if not self.exists:
            self._make(options or Options())
        elif options is not None and options != self.options:
            raise RawduckError(
                f"{self.directory} holds a cluster made with other options ({self.options}); "
                f"remove it first: rawduck ceph down --dir {self.directory}"
            )
        for osd in range(self.options.osds):
            self._link_classes(osd, class_directory)
        for name in self.daemon_names():
            self.start(name)
        self.wait(lambda: self.osds_up() == self.options.osds, "every OSD is up")

    def down(self, *, keep: bool = False) -> None:
        """Stops the daemons, and removes the directory unless `keep`."""
        if not self.exists:
            raise RawduckError(f"{self.directory} holds no cluster that rawduck made")
        for name in reversed(self.daemon_names()):
            self.daemon(name).stop()
        if not keep:
            shutil.rmtree(self.directory)

    def daemon_names(self) -> list[str]:
        return [MONITOR, *(f"osd.{number}" for number in range(self.options.osds))]

    def daemon(self, name: str) -> Daemon:
        """A daemon of this cluster by its name, such as osd.0."""
        return Daemon(name, self.directory / "run" / f"{name}.pid", str(self.conf))

    def start(self, name: str) -> None:
        """Starts a daemon unless it runs. Does not wait until it is ready."""
        if self.daemon(name).running:
            return
        kind, _, number = name.partition(".")
        command = [f"ceph-{kind}", "--foreground", "--id", number, "--conf", str(self.conf)]
        output = self.directory / "log" / f"{name}.out"
        environment = {}
        if kind == "osd":
            helper = self._helper_directory_of(name)
            helper.parent.mkdir(mode=0o700, exist_ok=True)
            environment["RAWDUCK_HELPER_DIR"] = str(helper)
        wrapper = self._hosts[name].wrapper if self._hosts else self._wrapper
        self.daemon(name).start([*wrapper, *command], output, **environment)

    def restart(self, name: str) -> None:
        """Restarts a daemon, which may have been killed, and waits until every OSD is up."""
        # Right after a stop, the monitor may still report the OSD as up. (A stopped monitor cannot be asked.)
        before = self._up_since() if name.startswith("osd.") else {}
        again = {osd: epoch for osd, epoch in before.items() if name == f"osd.{osd}"}
        self.daemon(name).stop()
        self.start(name)

        def all_up() -> bool:
            now = self._up_since()
            return len(now) == self.options.osds and all(now[osd] > epoch for osd, epoch in again.items())

        self.wait(all_up, "every OSD is up")

    def ceph(
        self, *arguments: str, text_input: str | None = None, connect_seconds: int = _COMMAND_SECONDS
    ) -> str:
        """Runs the `ceph` command on this cluster. Returns its output."""
        command = ["ceph", "--conf", str(self.conf), "--connect-timeout", str(connect_seconds), *arguments]
        timeout = connect_seconds + _COMMAND_SECONDS
        return _run([*self._wrapper, *command], text_input=text_input, timeout=timeout)

    def _up_since(self) -> dict[int, int]:
        """For each OSD that is up, the epoch of the cluster map in which it came up."""
        osds = json.loads(self.ceph("osd", "dump", "--format", "json"))["osds"]
        return {osd["osd"]: osd["up_from"] for osd in osds if osd["up"]}

    def osds_up(self) -> int:
        return len(self._up_since())

    def pools(self) -> list[str]:
        return [pool["poolname"] for pool in json.loads(self.ceph("osd", "lspools", "--format", "json"))]

    def create_pool(self, name: str, *, erasure_coded: bool = False, groups: int = 0) -> None:
        """`groups`: placement groups, by default 16 for each OSD: with fewer, one OSD has most objects. An
        erasure-coded pool splits objects in two and needs 3 OSDs."""
        groups = groups or _GROUPS_PER_OSD * self.options.osds
        if not erasure_coded:
            self.ceph("osd", "pool", "create", name, str(groups), str(groups), "replicated")
            return
        profile = ("k=2", "m=1", "crush-failure-domain=osd")
        self.ceph("osd", "erasure-code-profile", "set", "rawduck", *profile, "--force")
        self.ceph("osd", "pool", "create", name, str(groups), str(groups), "erasure", "rawduck")

    def create_user(self, name: str, *capabilities: str) -> Path:
        """Creates client.<name> with capabilities such as "mon", "allow r". Returns its keyring."""
        keyring = self.directory / f"{name}.keyring"
        self.ceph("auth", "get-or-create", f"client.{name}", *capabilities, "--out-file", str(keyring))
        return keyring

    def class_directory(self, osd: int) -> Path:
        """Where an OSD finds its object classes. A change takes effect at its next start."""
        return self.directory / f"osd.{osd}" / "classes"

    def wait(self, reached: Callable[[], bool], what: str, dead: Container[str] = ()) -> None:
        """Returns when `reached()` is true. Raises an error that names the logs after a timeout.

        Raises an error as well when a daemon ends that is not in `dead`.
        """
        limit = time.monotonic() + _START_SECONDS
        while not reached():
            self._require_daemons(dead)
            if time.monotonic() > limit:
                raise RawduckError(
                    f"{self.directory}: gave up waiting after {_START_SECONDS} s until {what}; "
                    f"the logs are in {self.directory / 'log'}"
                )
            time.sleep(0.2)

    def _require_daemons(self, dead: Container[str]) -> None:
        for name in self.daemon_names():
            if name not in dead and self.daemon(name).failed:
                log = self.directory / "log" / f"{name}.out"
                raise RawduckError(f"{name} does not run; the last it said: {_tail(log) or 'nothing'}")

    def _state(self) -> dict:
        try:
            return json.loads((self.directory / _STATE).read_text())
        except FileNotFoundError:
            raise RawduckError(
                f"{self.directory} holds no cluster; make one with: rawduck ceph up --dir {self.directory}"
            ) from None

    def _make(self, options: Options) -> None:
        """Creates an empty cluster: the configuration, the keys and the daemons' data."""
        if not 1 <= options.osds <= OSDS_MAX or not 1 <= options.copies <= options.osds:
            raise RawduckError(
                f"a cluster here has 1 to {OSDS_MAX} OSDs, and 1 to as many copies of an object"
            )
        if self.directory.exists() and any(self.directory.iterdir()):
            raise RawduckError(f"{self.directory} is not empty, and holds no cluster; name another directory")
        if len(str(self._helper_directory_of("osd.0") / "helper.sock")) > _SOCKET_PATH_BYTES_MAX:
            raise RawduckError(f"{self.directory}: the path is too long for sockets; name a shorter one")
        for folder in ("run", "log", *(f"osd.{osd}/classes" for osd in range(options.osds))):
            (self.directory / folder).mkdir(parents=True, exist_ok=True)
        try:
            cluster_id = str(uuid.uuid4())
            addresses = _monitor_addresses(self._address(MONITOR))
            self.conf.write_text(_configuration(self.directory, cluster_id, addresses, options))
            with self.conf.open("a") as conf:
                conf.writelines(_address_section(name, host.address) for name, host in self._hosts.items())
            self._make_monitor(cluster_id, addresses)
            state = {"fsid": cluster_id, "options": asdict(options)}
            (self.directory / _STATE).write_text(json.dumps(state, indent=2) + "\n")
            self.start(MONITOR)
            self.wait(self._monitor_answers, "the monitor answers")
            for osd in range(options.osds):
                self._make_osd(osd)
        except BaseException as error:
            said = _tail(self.directory / "log" / "mon.a.log")
            if self.exists:
                self.daemon(MONITOR).stop()
            shutil.rmtree(self.directory)
            if isinstance(error, RawduckError):
                raise RawduckError(f"{error}; the monitor's log ends with: {said or 'nothing'}") from None
            raise

    def _monitor_answers(self) -> bool:
        try:
            self.ceph("mon", "stat", connect_seconds=_POLL_SECONDS)
        except RawduckError:
            return False
        return True

    def _address(self, name: str) -> str:
        return self._hosts[name].address if self._hosts else _LOOPBACK

    def _make_monitor(self, cluster_id: str, addresses: str) -> None:
        keyring, monitor_keyring = str(self.keyring), str(self.directory / "mon.keyring")
        everything = [item for part in ("mon", "osd", "mgr", "mds") for item in ("--cap", part, "allow *")]
        _run(
            ["ceph-authtool", "--create-keyring", monitor_keyring, "--gen-key", "-n", "mon.", *everything[:3]]
        )
        _run(["ceph-authtool", "--create-keyring", keyring, "--gen-key", "-n", "client.admin", *everything])
        _run(["ceph-authtool", monitor_keyring, "--import-keyring", keyring])
        monitor_map = str(self.directory / "monmap")
        _run(["monmaptool", "--create", "--fsid", cluster_id, "--addv", "a", addresses, monitor_map])
        files = ["--monmap", monitor_map, "--keyring", monitor_keyring]
        _run(["ceph-mon", "--mkfs", "--id", "a", "--conf", str(self.conf), *files])

    def _make_osd(self, number: int) -> None:
        osd_id = str(uuid.uuid4())
        keyring = self.directory / f"osd.{number}" / "keyring"
        _run(["ceph-authtool", "--create-keyring", str(keyring), "--gen-key", "-n", f"osd.{number}"])
        key = _run(["ceph-authtool", str(keyring), "--print-key", "-n", f"osd.{number}"]).strip()
        secret = json.dumps({"cephx_secret": key})
        self.ceph("osd", "new", osd_id, str(number), "-i", "-", text_input=secret)
        command = ["ceph-osd", "--mkfs", "--id", str(number), "--conf", str(self.conf), "--osd-uuid", osd_id]
        _run([*self._wrapper, *command])  # asks the monitor

    def _link_classes(self, osd: int, class_directory: Path | None) -> None:
        """An OSD has one class directory: it gets links to the system's classes and to ours."""
        for link in self.class_directory(osd).iterdir():
            link.unlink()
        for source in (_system_classes(), class_directory):
            for library in sorted(source.glob("libcls_*.so")) if source else []:
                (self.class_directory(osd) / library.name).symlink_to(library.absolute())


def _monitor_addresses(address: str) -> str:
    ports = _free_ports(2)
    return f"[v2:{address}:{ports[0]},v1:{address}:{ports[1]}]"


def _address_section(name: str, address: str) -> str:
    return f"\n[{name}]\npublic_addr = {address}\ncluster_addr = {address}\n"


def _configuration(directory: Path, cluster_id: str, addresses: str, options: Options) -> str:
    auth = "cephx" if options.cephx else "none"
    return f"""\
# Written by `rawduck ceph up`; `rawduck ceph down` removes it with everything beside it.
[global]
fsid = {cluster_id}
mon_initial_members = a
mon_host = {addresses}
public_addr = {_LOOPBACK}
cluster_addr = {_LOOPBACK}
auth_cluster_required = {auth}
auth_service_required = {auth}
auth_client_required = {auth}
keyring = {directory}/keyring
run_dir = {directory}/run
admin_socket = {directory}/run/$name.asok
crash_dir = {directory}/log
log_file = {directory}/log/$name.log
log_to_stderr = false
err_to_stderr = true

[client]
admin_socket =
log_file =

[mon]
mon_data = {directory}/mon.a
keyring = {directory}/mon.keyring
mon_cluster_log_file = {directory}/log/cluster.log
mon_allow_pool_size_one = true
mon_allow_pool_delete = true
mon_osd_min_down_reporters = 1
mon_warn_on_pool_no_redundancy = false
auth_allow_insecure_global_id_reclaim = false
osd_pool_default_size = {options.copies}
osd_pool_default_min_size = 1
osd_pool_default_pg_autoscale_mode = off
osd_crush_chooseleaf_type = 0

[osd]
osd_data = {directory}/osd.$id
keyring = {directory}/osd.$id/keyring
osd_objectstore = bluestore
bluestore_block_size = {options.osd_bytes}
# Ceph's minimum leaves almost no memory to cache data, and each read would go to the disk.
osd_memory_target = 939524096
bluestore_cache_autotune = false
bluestore_cache_size = 536870912
bluestore_cache_meta_ratio = 0.2
bluestore_cache_kv_ratio = 0.1
osd_class_dir = {directory}/osd.$id/classes
osd_class_load_list = *
# Not ours: an "allow x" for a pool does not allow its pushed queries, "allow class rawduck" does.
osd_class_default_list = {_DEFAULT_CLASSES}
osd_heartbeat_interval = 1
osd_heartbeat_grace = 5
"""


def why_not() -> str:
    """Why a cluster cannot be created on this machine; empty when it can."""
    missing = [program for program in _PROGRAMS if not shutil.which(program)]
    if not missing:
        return ""
    return (
        f"Ceph's {', '.join(missing)} are not installed; on Debian and Ubuntu run as root: "
        "apt-get install --no-install-recommends ceph-mon ceph-osd ceph-common (in a clone of rawduck: "
        "scripts/bootstrap_ceph.sh)"
    )


def _system_classes() -> Path:
    """The directory of Ceph's own object classes."""
    found = sorted(glob.glob("/usr/lib/*/rados-classes") + glob.glob("/usr/lib*/rados-classes"))
    if not found:
        raise RawduckError("Ceph's own object classes (rados-classes) are missing below /usr/lib")
    return Path(found[0])


def _free_ports(count: int) -> list[int]:
    """Unused ports of the loopback. The hosts of a scale model have all ports for themselves."""
    sockets = [socket.create_server((_LOOPBACK, 0)) for _ in range(count)]
    ports = [listening.getsockname()[1] for listening in sockets]
    for listening in sockets:
        listening.close()
    return ports


def _run(command: list[str], *, text_input: str | None = None, timeout: float = _COMMAND_SECONDS) -> str:
    try:
        result = subprocess.run(
            command, input=text_input or "", capture_output=True, text=True, check=False, timeout=timeout
        )
    except subprocess.TimeoutExpired:
        raise RawduckError(f"`{' '.join(command)}` did not answer within {timeout:.0f} s") from None
    if result.returncode != 0:
        said = result.stderr.strip() or result.stdout.strip() or "nothing"
        raise RawduckError(f"`{' '.join(command)}` failed with {result.returncode}; it said: {said}")
    return result.stdout


def _tail(path: Path, lines: int = 5) -> str:
    return " / ".join(path.read_text(errors="replace").strip().splitlines()[-lines:]) if path.exists() else ""
