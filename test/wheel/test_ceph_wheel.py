"""The wheel for Ceph beside that of rawduck, in an empty environment: `make test-wheel`."""

from __future__ import annotations

import re
import subprocess

import pytest
from rawduck import RawduckError
from rawduck.ceph.cluster import Cluster
from recipes import recipe
from wheels import CEPH_WHEEL, WHEEL, Environment, needed_by, run, unpacked

HAS_LIBRADOS = (
    "librados.so.2"
    in subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
)


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    return Environment(tmp_path_factory.mktemp("environment"), WHEEL, CEPH_WHEEL)


def test_what_it_needs(tmp_path):
    """Of Ceph it needs the interface of C++ that is the same since release 14."""
    library = unpacked(CEPH_WHEEL, tmp_path) / "rawduck_ceph" / "librawduck_ceph_host.so"
    assert needed_by(library) == {"librados.so.2"}
    assert set(re.findall(r"LIBRADOS_[\w.]+", run("objdump", "-T", library))) == {"LIBRADOS_14.2.0"}


def test_where_it_is(environment):
    path = environment.run("rawduck", "extension-path", "--ceph").strip()
    assert path.endswith("/rawduck_ceph/rawduck_ceph.duckdb_extension")
    assert (
        environment.run("python", "-c", "import rawduck_ceph; print(rawduck_ceph.extension_path())").strip()
        == path
    )


@pytest.mark.skipif(HAS_LIBRADOS, reason="this system has librados")
def test_without_librados(environment):
    program = "import rawduck\ntry: rawduck.connect(ceph=True)\nexcept Exception as error: print(error)"
    assert "apt-get install librados2" in environment.run("python", "-c", program)


def test_parquet_on_ceph(environment, tmp_path_factory):
    """The recipe of docs/INSTALL.md on a real cluster."""
    cluster = Cluster(tmp_path_factory.mktemp("c"))
    try:
        cluster.up()
    except RawduckError as error:
        pytest.skip(f"no Ceph cluster: {error}")
    try:
        cluster.create_pool("pool")
        program = recipe("Parquet on Ceph").replace("/etc/ceph/ceph.conf", str(cluster.conf))
        assert "999999" in environment.run("python", "-c", program)
    finally:
        cluster.down()
