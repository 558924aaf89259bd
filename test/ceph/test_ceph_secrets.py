"""Which cluster and user are used for a path."""

from __future__ import annotations

import duckdb
import pytest
import rawduck
from ceph_support import User, connect, names, run_python, secret


def test_the_key_is_not_shown(cluster):
    key = cluster.ceph("auth", "get-key", "client.admin")
    with rawduck.connect(ceph=True) as con:
        con.execute(f"CREATE SECRET s (TYPE rados, CONF '{cluster.conf}', KEYRING '', KEY '{key}')")
        shown = con.execute("SELECT secret_string, scope FROM duckdb_secrets()").fetchall()
        assert key not in str(shown)
        assert "key=redacted" in str(shown)
        assert shown[0][1] == ["rados://"]
        names(con, "rados://data/*")  # and it is the key that counts


def test_the_scope_decides(con, cluster, data_prefix):
    """A secret for one pool, another for the rest; both connections are used in one query."""
    coded = data_prefix.replace("rados://data/", "rados://coded/")
    con.execute(f"COPY (SELECT 1 AS a) TO '{data_prefix}/x.csv'")
    con.execute(f"COPY (SELECT 2 AS a) TO '{coded}/x.csv'")
    keyring = cluster.create_user("coded", "mon", "allow r", "osd", "allow r pool=coded")
    con.execute(
        secret(cluster, User("coded", keyring), "SCOPE 'rados://coded/'").replace("ceph (", "coded (")
    )
    both = con.execute(f"FROM read_csv(['{data_prefix}/x.csv', '{coded}/x.csv'])")
    assert sorted(both.fetchall()) == [(1,), (2,)]
    con.execute(f"COPY (SELECT 3 AS a) TO '{data_prefix}/x.csv'")
    with pytest.raises(duckdb.Error, match=r"rados://coded/.*cannot write"):
        con.execute(f"COPY (SELECT 3 AS a) TO '{coded}/x.csv'")


@pytest.fixture
def restricted(cluster, tmp_path):
    """A database that may read a pool and a directory with the cluster's configuration; and the directory."""
    allowed = tmp_path / "allowed"
    allowed.mkdir()
    (allowed / "ceph.conf").write_text(cluster.conf.read_text())
    with rawduck.connect(ceph=True) as con:
        con.execute("SET allow_persistent_secrets = false")
        con.execute(f"SET allowed_directories = ['{allowed}', 'rados://data/']")
        con.execute("SET enable_external_access = false")
        yield con, allowed


@pytest.mark.parametrize(
    "clause",
    [
        "KEYRING '{allowed}/none;{outside}'",
        "KEYRING '{allowed}/none={outside}'",
        "KEYRING '{allowed}/none {outside}'",
        "KEYRING '{allowed}/none\t{outside}'",
        "KEYRING '{allowed}/$name'",
        "CONF '{allowed}/none;{outside}'",
    ],
)
def test_ceph_and_duckdb_read_paths_alike(restricted, cluster, clause):
    con, allowed = restricted
    clause = clause.format(allowed=allowed, outside=cluster.keyring)
    with pytest.raises(duckdb.PermissionException, match="configuration"):
        con.execute(f"CREATE SECRET (TYPE rados, {clause})")


@pytest.mark.parametrize("clause", ["CLUSTER '../x'", "CLUSTER 'a..b'", "USER 'a/b'", "USER '$host'"])
def test_names_are_no_paths(clause):
    with (
        rawduck.connect(ceph=True) as con,
        pytest.raises(duckdb.InvalidInputException, match="letters, digits"),
    ):
        con.execute(f"CREATE SECRET (TYPE rados, {clause})")


def test_a_configuration_names_no_other_file(restricted, cluster, tmp_path):
    """This one names a keyring outside, which is not read, and a log, which is not written."""
    con, allowed = restricted
    log = tmp_path / "log"
    with (allowed / "ceph.conf").open("a") as conf:
        conf.write(f"\n[client.admin]\nlog file = {log}\n")
    con.execute(f"CREATE SECRET s (TYPE rados, CONF '{allowed}/ceph.conf')")
    with pytest.raises(duckdb.PermissionException, match="no key was found"):
        names(con, "rados://data/*")
    (allowed / "keyring").write_bytes(cluster.keyring.read_bytes())
    con.execute(
        f"CREATE OR REPLACE SECRET s (TYPE rados, CONF '{allowed}/ceph.conf', KEYRING '{allowed}/keyring')"
    )
    names(con, "rados://data/*")
    assert not log.exists()


def test_scopes_of_other_schemes_are_refused(con):
    with pytest.raises(duckdb.InvalidInputException, match="rados://<pool>/"):
        con.execute("CREATE SECRET (TYPE rados, SCOPE 's3://bucket')")


def test_unknown_clauses_are_refused(con):
    with pytest.raises(duckdb.BinderException, match="password"):
        con.execute("CREATE SECRET (TYPE rados, PASSWORD 'x')")


def test_secrets_can_be_kept(cluster, tmp_path):
    with rawduck.connect(ceph=True, config={"secret_directory": str(tmp_path)}) as con:
        con.execute(secret(cluster, User("admin")).replace("SECRET", "PERSISTENT SECRET"))
    with rawduck.connect(ceph=True, config={"secret_directory": str(tmp_path)}) as con:
        names(con, "rados://data/*")


def test_ceph_s_own_defaults(cluster):
    """Without a secret, the defaults of every Ceph client."""
    code = """
        import rawduck
        print(rawduck.connect(ceph=True).execute("SELECT count(*) FROM glob('rados://data/*.none')").fetchone()[0])
    """
    assert run_python(code, CEPH_CONF=str(cluster.conf)) == "0"


def test_a_connection_is_shared_and_closed(cluster):
    """For any number of DuckDB connections; no thread of librados is left when they are closed."""
    code = """
        import glob, sys, rawduck
        def name(comm):
            try:
                return open(comm).read()
            except (FileNotFoundError, ProcessLookupError):  # the thread has ended since it was listed
                return ""
        def threads():
            return sum("msgr" in name(comm) for comm in glob.glob("/proc/self/task/*/comm"))
        made = []
        for _ in range(5):
            con = rawduck.connect(ceph=True)
            con.execute(f"CREATE SECRET (TYPE rados, CONF '{sys.argv[1]}')")
            con.execute("FROM glob('rados://data/**')")
            made.append((con, threads()))
        for con, _ in made:
            con.close()
        print(made[0][1] > 0, len({count for _, count in made}), threads())
    """
    assert run_python(code, str(cluster.conf)) == "True 1 0"


def test_after_a_fork(cluster, data_prefix):
    """A child of fork() connects again; the parent's connection continues to work."""
    code = """
        import os, sys, rawduck
        def total(con):
            return con.execute(f"SELECT sum(a) FROM '{sys.argv[2]}/x.csv'").fetchone()[0]
        def connect():
            con = rawduck.connect(ceph=True)
            con.execute(f"CREATE SECRET (TYPE rados, CONF '{sys.argv[1]}')")
            return con
        con = connect()
        con.execute(f"COPY (SELECT 4 AS a) TO '{sys.argv[2]}/x.csv'")
        child = os.fork()
        if child == 0:
            os._exit(total(connect()))
        print(total(con), os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    assert run_python(code, str(cluster.conf), data_prefix) == "4 4"


def test_many_threads(cluster, data_prefix):
    with connect(cluster) as con:
        con.execute("SET threads = 8")
        con.execute(
            f"COPY (SELECT i, hash(i) AS h FROM range(1000000) t(i)) TO '{data_prefix}' (FORMAT parquet)"
        )
        query = f"SELECT count(*), bit_xor(h) FROM read_parquet('{data_prefix}/*')"
        expected = con.execute("SELECT count(*), bit_xor(hash(i)) FROM range(1000000) t(i)").fetchall()
        assert all(con.cursor().execute(query).fetchall() == expected for _ in range(10))
