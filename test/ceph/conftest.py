"""Fixtures: one real cluster for the whole run, and connections to it."""

from __future__ import annotations

import itertools

import pytest
import rawduck
from ceph_support import connect
from rawduck.ceph.cluster import Cluster, Options, class_directory

_numbers = itertools.count()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    """Three OSDs with the object class, two replicas, and authentication."""
    made = Cluster(tmp_path_factory.mktemp("c"))
    try:
        rawduck.extension_path(ceph=True)
        made.up(Options(osds=3, copies=2, cephx=True), class_directory())
    except rawduck.RawduckError as error:
        pytest.skip(f"no Ceph cluster: {error}")
    made.create_pool("data")
    made.create_pool("coded", erasure_coded=True)
    yield made
    made.down()


@pytest.fixture
def con(cluster):
    """A connection to the cluster as its administrator."""
    with connect(cluster) as connection:
        yield connection


@pytest.fixture(params=["data", "coded"])
def prefix(request):
    """A prefix for a test's objects, in a replicated and in an erasure-coded pool."""
    return f"rados://{request.param}/test{next(_numbers)}"


@pytest.fixture
def data_prefix():
    """A prefix in the replicated pool, for tests that do not depend on the kind of pool."""
    return f"rados://data/test{next(_numbers)}"
