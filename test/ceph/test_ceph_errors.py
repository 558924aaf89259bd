"""Errors arrive in bounded time and name the pool or object, what was tried, and what to do next."""

from __future__ import annotations

import re
import socket
import time

import duckdb
import pytest
import rawduck
from ceph_support import User, connect, names, one, rados, run_python, secret

WAIT_SECONDS = 20


def fails(connection, query: str, kind: type, *words: str) -> str:
    """Runs a query that must fail with all words in its message. Returns the message."""
    with pytest.raises(kind) as caught:
        connection.execute(query).fetchall()
    for word in words:
        assert word in str(caught.value)
    return str(caught.value)


def test_missing_pool(con):
    words = "rados://nowhere", "no pool of this name", "data", "coded", "ceph osd pool create nowhere"
    fails(con, "FROM read_parquet('rados://nowhere/x/*')", duckdb.IOException, *words)
    fails(con, "COPY (SELECT 1) TO 'rados://nowhere/x' (FORMAT parquet)", duckdb.IOException, *words)
    fails(con, "COPY (SELECT 1) TO 'rados://nowhere/x.csv'", duckdb.IOException, *words)


def test_pool_made_and_removed_while_connected(con, cluster):
    with pytest.raises(duckdb.IOException, match="no pool"):
        names(con, "rados://later/*")
    for value in (1, 2):
        cluster.create_pool("later", groups=1)
        con.execute(f"COPY (SELECT {value} AS a) TO 'rados://later/x.csv'")
        assert con.execute("FROM 'rados://later/x.csv'").fetchall() == [(value,)]
        cluster.ceph("osd", "pool", "delete", "later", "later", "--yes-i-really-really-mean-it")
        wait_for_error(
            con, "FROM glob('rados://later/*')", "rados://later: the (pool was removed|cluster has no)"
        )


def wait_for_error(connection, query: str, pattern: str) -> None:
    """Ceph removes a pool in the background: its objects may still be visible for a moment."""
    limit = time.monotonic() + WAIT_SECONDS
    message = ""
    while not message and time.monotonic() < limit:
        try:
            connection.execute(query).fetchall()
            time.sleep(0.2)
        except duckdb.IOException as error:
            message = str(error)
    assert re.search(pattern, message), message or "it goes on to work"


def test_empty_prefix(con, data_prefix):
    con.execute(f"COPY (SELECT 1) TO '{data_prefix}/here.parquet'")
    pattern = f"{data_prefix}x/*.parquet"
    fails(
        con,
        f"FROM read_parquet('{pattern}')",
        duckdb.IOException,
        pattern,
        "pool data has",
        "the first of them",
    )


def test_missing_object(con, data_prefix):
    path = f"{data_prefix}/no.parquet"
    fails(con, f"FROM read_parquet('{path}')", duckdb.IOException, path, "No files found")
    fails(con, f"FROM parquet_metadata('{path}')", duckdb.IOException, path)
    fails(con, f"ATTACH '{data_prefix}/no.duckdb' (READ_ONLY)", duckdb.IOException, "does not exist")


@pytest.mark.parametrize("path", ["rados://", "rados:///x", "rados://data", "rados://data/"])
def test_paths_that_name_no_object(con, path):
    fails(con, f"ATTACH '{path}' AS x (READ_ONLY)", duckdb.InvalidInputException, path, "<object>")


@pytest.mark.parametrize("mode", ["never", "always"])
def test_corrupt_objects(con, cluster, data_prefix, mode):
    """Whether read or pushed: an error that names the object, never a result."""
    folder = data_prefix.removeprefix("rados://data/")
    path = f"{data_prefix}/x.parquet"
    con.execute(f"COPY (SELECT i, 'row ' || i AS s FROM range(300000) t(i)) TO '{path}'")
    whole = rados(cluster, "-p", "data", "get", f"{folder}/x.parquet", "-")
    middle = len(whole) // 2
    damaged = {
        "short": whole[:middle],
        "empty": b"",
        "footer": whole[:-20] + b"\xff" * 12 + whole[-8:],
        "pages": whole[:1000] + bytes(byte ^ 0x55 for byte in whole[1000:middle]) + whole[middle:],
    }
    for name, data in damaged.items():
        rados(cluster, "-p", "data", "put", f"{folder}/{name}.parquet", "-", data=data)
        query = f"SELECT sum(i), max(s) FROM read_parquet('{data_prefix}/{name}.parquet')"
        con.execute(f"SET rados_offload = '{mode}'")
        # DuckDB's own reader names a file whose footer is damaged, but not one whose pages are.
        named = None if (mode, name) == ("never", "pages") else f"{name}.parquet"
        with pytest.raises(duckdb.Error, match=named):
            con.execute(query).fetchall()
    assert one(con, f"SELECT count(*) FROM '{path}'") == 300000


def test_wrong_key(cluster, tmp_path):
    wrong = tmp_path / "wrong.keyring"
    wrong.write_text("[client.admin]\n\tkey = AQDnMtBlAAAAABAAmmEWTOTANxp8CLe02eLnrQ==\n")
    with connect(cluster, User("admin", wrong)) as con:
        fails(
            con,
            "FROM glob('rados://data/*')",
            duckdb.PermissionException,
            "client.admin",
            "the monitors refuse the key",
            "ceph auth get",
        )
        con.execute(secret(cluster, User("admin")))
        names(con, "rados://data/*")


def test_missing_keyring(cluster, tmp_path):
    with connect(cluster, User("admin", tmp_path / "no.keyring")) as con:
        words = "client.admin", "no key was found", "KEYRING"
        fails(con, "FROM glob('rados://data/*')", duckdb.PermissionException, *words)


def test_unknown_user(cluster):
    with connect(cluster, User("nobody")) as con:
        fails(con, "FROM glob('rados://data/*')", duckdb.PermissionException, "client.nobody")


def test_user_who_may_only_read(con, cluster, data_prefix):
    con.execute(f"COPY (SELECT 5 AS a) TO '{data_prefix}/x.csv'")
    reader = User("reader", cluster.create_user("reader", "mon", "allow r", "osd", "allow r pool=data"))
    with connect(cluster, reader) as limited:
        assert limited.execute(f"FROM '{data_prefix}/x.csv'").fetchall() == [(5,)]
        copy = f"COPY (SELECT 6 AS a) TO '{data_prefix}/x.csv'"
        fails(limited, copy, duckdb.Error, f"{data_prefix}/x.csv", "cannot write", "ceph auth get")
        fails(
            limited,
            "FROM glob('rados://coded/*')",
            duckdb.PermissionException,
            "rados://coded",
            "cannot list",
        )
    assert con.execute(f"FROM '{data_prefix}/x.csv'").fetchall() == [(5,)]


def test_missing_configuration(con):
    con.execute("CREATE OR REPLACE SECRET ceph (TYPE rados, CONF '/nowhere/ceph.conf')")
    words = "/nowhere/ceph.conf", "CREATE SECRET (TYPE rados, CONF"
    fails(con, "FROM glob('rados://data/*')", duckdb.InvalidInputException, *words)


def test_no_monitor_answers():
    """Nothing listens on the port. The error arrives after rados_timeout, not after Ceph's five minutes."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    key = "AQDnMtBlAAAAABAAmmEWTOTANxp8CLe02eLnrQ=="
    with rawduck.connect(ceph=True) as con:
        con.execute("SET rados_timeout = 2")
        con.execute(f"CREATE SECRET (TYPE rados, MON_HOST '127.0.0.1:{port}', KEY '{key}')")

        start = time.monotonic()
        fails(
            con,
            "FROM glob('rados://data/*')",
            duckdb.IOException,
            "no monitor answered within 2 s",
            str(port),
        )
        assert time.monotonic() - start < 10


def test_external_access_can_be_switched_off(con, data_prefix):
    con.execute("SET enable_external_access = false")
    fails(con, f"FROM glob('{data_prefix}/*')", duckdb.PermissionException, data_prefix)
    fails(con, f"COPY (SELECT 1) TO '{data_prefix}/x.csv'", duckdb.PermissionException, data_prefix)


def test_counters_show_what_may_be_reached(con, cluster, data_prefix):
    con.execute(f"COPY (SELECT 1 AS n) TO '{data_prefix}/x.parquet'; FROM '{data_prefix}/x.parquet'")
    pools = "SELECT DISTINCT pool FROM rados_stats() WHERE requests > 0"
    scans = f"SELECT count(*) FROM rados_scans() WHERE first_object LIKE '{data_prefix}%'"
    before = con.execute(pools).fetchall()
    assert ("data",) in before
    assert con.execute(scans).fetchall() == [(1,)]
    with connect(cluster) as locked:
        locked.execute("SET allowed_directories = ['rados://coded']; SET enable_external_access = false")
        assert set(locked.execute(pools).fetchall()) <= {("coded",)}
        assert locked.execute(scans).fetchall() == [(0,)]
        locked.execute("CALL rados_reset_stats()")
    assert con.execute(pools).fetchall() >= [("data",)]


def test_messages_name_what_may_be_reached(con, cluster, data_prefix):
    folder = data_prefix.removeprefix("rados://data/")
    for name in ("public/a.parquet", "hidden/b.parquet"):
        con.execute(f"COPY (SELECT 1 AS n) TO '{data_prefix}/{name}'")
    with connect(cluster) as locked:
        locked.execute(f"SET allowed_directories = ['{data_prefix}/public/', 'rados://nowhere/']")
        locked.execute("SET enable_external_access = false")
        words = "pool data has 1 objects that this database may access", f"{folder}/public/a.parquet"
        query = f"FROM read_parquet('{data_prefix}/public/nothing*')"
        assert "hidden" not in fails(locked, query, duckdb.IOException, *words)
        query = "FROM read_parquet('rados://nowhere/x/*')"
        message = fails(locked, query, duckdb.IOException, "no pool of this name")
        assert "coded" not in message
        assert "data" not in message.replace("database", "")


@pytest.mark.parametrize("parameter", ["CONF '/etc/hostname'", "KEYRING 'a,/etc/hostname'"])
@pytest.mark.parametrize(
    "setting", ["enable_external_access = false", "disabled_filesystems = 'LocalFileSystem'"]
)
def test_a_secret_opens_no_forbidden_file(setting, parameter):
    with rawduck.connect(ceph=True) as con:
        con.execute(f"SET allow_persistent_secrets = false; SET {setting}")
        fails(con, f"CREATE SECRET (TYPE rados, {parameter})", duckdb.PermissionException, "configuration")
        con.execute("CREATE SECRET (TYPE rados, USER 'x')")


def test_nothing_is_said_on_standard_error(cluster):
    """librados would print to standard error, which a library must not."""
    code = """
        import contextlib, os, sys, duckdb, rawduck
        os.dup2(os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT), 2)
        con = rawduck.connect(ceph=True)
        con.execute(f"CREATE SECRET (TYPE rados, CONF '{sys.argv[1]}', KEYRING '/nowhere')")
        with contextlib.suppress(duckdb.PermissionException):
            con.execute("FROM glob('rados://data/*')")
            print("no error")
    """
    log = cluster.directory / "stderr.txt"
    assert run_python(code, str(cluster.conf), str(log)) == ""
    assert log.read_text() == ""
