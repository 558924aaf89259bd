"""'auto' depends on the measured speed of the link, on a cluster in a private network."""

from __future__ import annotations

import json
import re

import pytest
import rawduck
from ceph_support import run_python
from rawduck.ceph.cluster import Cluster, Options, class_directory
from rawduck.ceph.network import PrivateNetwork

LIMIT = "100mbit"
LIMIT_BYTES_PER_S = 100e6 / 8

# Read without measuring the link, because the replies would be much larger than the columns with their 20,000
# distinct values. At the second run the speed of the link is known.
QUERIES = """
    import json, sys
    from rawduck import connect
    from rawduck.ceph import network
    network.enter(sys.argv[1])
    con = connect(ceph=True)
    con.execute("SET enable_progress_bar = false")
    con.execute(f"CREATE SECRET (TYPE rados, CONF '{sys.argv[2]}', KEYRING '{sys.argv[3]}')")
    rows = "SELECT (random() * 20000)::BIGINT AS a FROM range(4000000)"
    con.execute(f"COPY ({rows}) TO 'rados://data/t' (FORMAT parquet, OVERWRITE)")
    query = "SELECT sum(hash(a) % 7) FROM read_parquet('rados://data/t/*')"
    for _ in range(2):
        con.execute(query).fetchall()
    plan = con.execute("EXPLAIN " + query).fetchone()[1]
    reasons = con.execute("SELECT why FROM rados_scans()").fetchall()
    speed = "SELECT bytes_per_s FROM rados_stats() WHERE operation = 'read' AND pool = 'data'"
    print(json.dumps([[why for why, in reasons], plan, con.execute(speed).fetchone()[0]]))
"""


# Would be pushed for the size of its replies; the speed of the link is not known yet.
FIRST_QUERY = """
    import json, sys
    from rawduck import connect
    from rawduck.ceph import network
    network.enter(sys.argv[1])
    con = connect(ceph=True)
    con.execute(f"CREATE SECRET (TYPE rados, CONF '{sys.argv[2]}', KEYRING '{sys.argv[3]}')")
    con.execute("SET enable_progress_bar = false")
    rows = "SELECT random() AS a FROM range(4000000)"  # large enough for a trial that no burst hides
    con.execute(f"COPY ({rows}) TO 'rados://data/large' (FORMAT parquet, OVERWRITE)")
    plan = con.execute("EXPLAIN SELECT sum(a) FROM read_parquet('rados://data/large/*')").fetchone()[1]
    print(json.dumps([plan, con.execute("SELECT why FROM rados_scans()").fetchone()[0]]))
"""


# The number of groups, which equals the number of rows, is not known before the first reply.
GROUPS = """
    import json, sys
    from rawduck import connect
    from rawduck.ceph import network
    network.enter(sys.argv[1])
    con = connect(ceph=True)
    con.execute(f"CREATE SECRET (TYPE rados, CONF '{sys.argv[2]}', KEYRING '{sys.argv[3]}')")
    con.execute("SET enable_progress_bar = false")
    rows = "SELECT range AS a, range % 3 AS b FROM range(1000000)"
    con.execute(f"COPY ({rows}) TO 'rados://data/groups' (FORMAT parquet, OVERWRITE)")
    groups = "SELECT a * 8 + b AS x, a * 3 AS y, count(*) AS z FROM read_parquet('rados://data/groups/*')"
    query = f"SELECT count(*), sum(z), sum(hash(x, y) % 1000) FROM ({groups} GROUP BY ALL)"
    scan = "SELECT why, answered, fallback_reasons, offloaded FROM rados_scans() WHERE pushed LIKE '%GROUP BY%'"
    answers = []
    for _ in range(2):
        answers += con.execute(query).fetchall()
        answers += con.execute(scan + " ORDER BY scan DESC LIMIT 1").fetchall()
    con.execute("SET rados_offload = 'never'")
    print(json.dumps([answers, con.execute(query).fetchall()], default=str))
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A private network and a cluster with one OSD in it."""
    if reason := PrivateNetwork.why_not():
        pytest.skip(reason)
    if class_directory() is None:
        pytest.skip("no object class: rados/objclass.h or libpython was missing when the package was built")
    with PrivateNetwork() as network:
        cluster = Cluster(tmp_path_factory.mktemp("l"), network.wrapper)
        try:
            cluster.up(Options(osds=1), class_directory())
        except rawduck.RawduckError as error:
            pytest.skip(f"no Ceph cluster: {error}")
        cluster.create_pool("data")
        yield network, cluster
        cluster.down()


def run_queries(network: PrivateNetwork, cluster: Cluster) -> list:
    output = run_python(QUERIES, network.path, str(cluster.conf), str(cluster.keyring))
    return json.loads(output)


def test_a_slow_link_is_noticed(site):
    network, cluster = site
    network.limit(LIMIT)
    reasons, plan, speed = run_queries(network, cluster)
    assert LIMIT_BYTES_PER_S / 2 < speed < LIMIT_BYTES_PER_S * 1.1
    assert "reading would take about" not in reasons[0]
    assert "reading would take about" in reasons[1]
    times = r"; reading would take about ([0-9.]+) s, pushing [0-9.]+ s with compressed answers$"
    taken = re.search(times, reasons[1])
    assert 0.4 < float(taken[1]) < 2
    assert "Not pushed" in plan


def test_a_fast_link_is_noticed(site):
    network, cluster = site
    network.limit("")
    _, _, speed = run_queries(network, cluster)
    assert speed > LIMIT_BYTES_PER_S * 2


def expected_to_read(network: PrivateNetwork, cluster: Cluster) -> tuple[str, float]:
    """The plan of a process's first query, and its expected seconds for reading."""
    output = run_python(FIRST_QUERY, network.path, str(cluster.conf), str(cluster.keyring))
    plan, why = json.loads(output)
    return plan, float(re.search(r"; reading would take about ([0-9.e-]+) s", why)[1])


def test_a_new_process_tries_the_link(site):
    network, cluster = site
    network.limit("")
    _, fast = expected_to_read(network, cluster)
    network.limit(LIMIT)
    plan, slow = expected_to_read(network, cluster)
    assert 1 < slow < 6
    assert fast < slow / 2
    assert "RADOS_OFFLOAD" in plan.upper().replace(" ", "_")


def test_answers_that_are_too_large_are_read_and_remembered(site):
    """On a slow link. On a fast link with slow OSDs, no object would be asked."""
    network, cluster = site
    network.limit(LIMIT)
    output = run_python(GROUPS, network.path, str(cluster.conf), str(cluster.keyring))
    (first, tried, second, again), [stock] = json.loads(output)
    assert first == second == stock
    assert tried[0].startswith("the number of groups is not known")
    assert tried[1] == 0
    assert "too large" in str(tried[2]), tried
    assert not again[3], again
    assert again[0].startswith("by the last run an answer has"), again
