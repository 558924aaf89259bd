"""What is remembered of an object or a query is of one cluster: another one may have the same names."""

from __future__ import annotations

import pytest
import rawduck
from ceph_support import connect, one
from rawduck.ceph.cluster import Cluster, Options, class_directory

POOL = "twin"
PATH = f"rados://{POOL}/x.parquet"
QUERY = f"SELECT sum(a) FROM '{PATH}'"
WHY = "SELECT why FROM rados_scans() ORDER BY scan DESC LIMIT 1"


@pytest.fixture
def two(cluster, tmp_path_factory):
    """Connections to two clusters with one pool name, each with one placement group."""
    if class_directory() is None:
        pytest.skip("no object class: rados/objclass.h or libpython was missing when the package was built")
    other = Cluster(tmp_path_factory.mktemp("o"))
    try:
        other.up(Options(osds=1), class_directory())
    except rawduck.RawduckError as error:
        pytest.skip(f"no second cluster: {error}")
    for each in (cluster, other):
        each.create_pool(POOL, groups=1)
    with connect(cluster) as con, connect(other) as con2:
        yield con, con2
    cluster.ceph("osd", "pool", "delete", POOL, POOL, "--yes-i-really-really-mean-it")
    other.down()


def test_objects_of_one_name_and_version(two):
    """The first object of a pool has the same version in each cluster."""
    large, small = two
    large.execute(f"COPY (SELECT random() AS a FROM range(300000)) TO '{PATH}' (FORMAT parquet)")
    small.execute(f"COPY (SELECT random() AS a FROM range(10)) TO '{PATH}' (FORMAT parquet)")
    large.execute("EXPLAIN " + QUERY).fetchall()
    assert " KiB per object" in one(large, WHY)
    small.execute("EXPLAIN " + QUERY).fetchall()
    assert " bytes per object" in one(small, WHY)

    large.execute("SET rados_offload = 'always'")
    large.execute(QUERY).fetchall()
    large.execute("SET rados_offload = 'auto'")
    large.execute("EXPLAIN " + QUERY).fetchall()
    assert "kept the earlier answers" in one(large, WHY)
    small.execute("EXPLAIN " + QUERY).fetchall()
    assert "there is little to read" in one(small, WHY)
