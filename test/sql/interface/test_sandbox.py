"""DuckDB's sandbox settings bind every way into a volume or a file: one table, setting x entry point."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pytest
import rawduck
from rawduck.volumes import format_volume
from support import one
from test_functions import SETTINGS as NVME_SETTINGS

MEMORY = "memory:sandbox"

#: What an entry point needs to be allowed.
NVME_FILE = "the file data.csv on the volume"
NVME = "everything on the volume"
NVME_NEW = "volumes beside it"
DIRECT_FILE = "the ordinary file data.csv"
DIRECT = "all ordinary files beside it"
MEMORY_VOLUME = "a volume in memory"
MACHINE = "the devices of the machine"
PLAIN = "ordinary files by their plain names"
NVME_AND_PLAIN = "everything on the volume, and ordinary files"
ANYWHERE = {NVME_FILE, NVME, NVME_NEW, DIRECT_FILE, DIRECT}
EVERYTHING = ANYWHERE | {MEMORY_VOLUME, MACHINE, PLAIN, NVME_AND_PLAIN}

NO_ACCESS = "SET enable_external_access = false"
NOTHING: set[str] = set()

#: Setting -> what it leaves. {area}: a folder with a volume and ordinary files; {link}: a link to it.
SETTINGS = {
    "SELECT 'nothing is set'": EVERYTHING,
    NO_ACCESS: NOTHING,
    "SET disabled_filesystems = 'LocalFileSystem'": {MEMORY_VOLUME},
    "SET disabled_filesystems = 'NvmeFileSystem'": {DIRECT_FILE, DIRECT, PLAIN},
    "SET disabled_filesystems = 'DirectFileSystem'": EVERYTHING - {DIRECT_FILE, DIRECT},
    "SET disabled_filesystems = 'NvmeFileSystem,DirectFileSystem'": {PLAIN},
    f"SET allowed_directories = ['nvme://{{area}}', 'direct://{{area}}']; {NO_ACCESS}": ANYWHERE,
    f"SET allowed_directories = ['nvme://{{link}}', 'direct://{{link}}']; {NO_ACCESS}": ANYWHERE,
    f"SET allowed_directories = ['nvme://{{area}}/volume']; {NO_ACCESS}": {NVME_FILE, NVME},
    f"SET allowed_directories = ['nvme://{MEMORY}']; {NO_ACCESS}": {MEMORY_VOLUME},
    f"SET allowed_directories = ['{{area}}']; {NO_ACCESS}": {PLAIN},
    f"SET allowed_directories = ['nvme:///elsewhere', 'direct:///elsewhere']; {NO_ACCESS}": NOTHING,
    f"SET allowed_paths = ['nvme://{{area}}/volume/data.csv', 'direct://{{area}}/data.csv']; {NO_ACCESS}": {
        NVME_FILE,
        DIRECT_FILE,
    },
    f"SET allowed_directories = ['nvme://{{area}}']; {NO_ACCESS}; "
    "SET disabled_filesystems = 'LocalFileSystem'": NOTHING,
}


@dataclass(frozen=True)
class Entry:
    needs: str
    query: str
    #: What it says where it is allowed and there is nothing to do for it.
    otherwise: str = ""


ENTRIES = [
    Entry(NVME_FILE, "FROM read_csv('nvme://{area}/volume/data.csv')"),
    Entry(NVME_FILE, "FROM glob('nvme://{area}/volume/data.csv')"),
    Entry(NVME_FILE, "SELECT content FROM read_text('nvme://{area}/volume/data.csv')"),
    Entry(NVME_FILE, "FROM nvme_random_reads('nvme://{area}/volume/data.csv', bytes := 512, reads := 1)"),
    Entry(NVME, "FROM glob('nvme://{area}/volume/*')"),
    Entry(NVME, "COPY (SELECT 1) TO 'nvme://{area}/volume/new.csv'"),
    Entry(NVME, "ATTACH 'nvme://{area}/volume/new.duckdb'"),
    Entry(NVME, "ATTACH 'nvme://{area}/volume/x.duckdb' (READ_ONLY)"),
    Entry(NVME, "EXPORT DATABASE 'nvme://{area}/volume/exported'"),
    Entry(NVME, "CALL nvme_copy('nvme://{area}/volume/data.csv', 'nvme://{area}/volume/copy.csv')"),
    Entry(NVME, "FROM nvme_info('{area}/volume')"),
    Entry(NVME, "FROM nvme_info('nvme://{area}/volume')"),
    Entry(NVME, "FROM nvme_files('{area}/volume')"),
    Entry(NVME, "FROM nvme_check('{area}/volume')"),
    Entry(NVME, "FROM nvme_check('{area}/volume', repair := true)"),
    Entry(NVME, "CALL nvme_snapshot('nvme://{area}/volume/data.csv', 'monday')"),
    Entry(NVME, "CALL nvme_clone('nvme://{area}/volume/data.csv', 'nvme://{area}/volume/clone.csv')"),
    Entry(NVME, "FROM nvme_snapshots('{area}/volume')"),
    Entry(NVME_AND_PLAIN, "CALL nvme_send('nvme://{area}/volume/data.csv@monday', '{area}/stream')"),
    Entry(NVME_AND_PLAIN, "CALL nvme_receive('{area}/stream', 'nvme://{area}/volume/received.csv')"),
    Entry(PLAIN, "FROM nvme_verify('{area}/data.csv')", "no stream"),
    Entry(NVME, "FROM nvme_received('nvme://{area}/volume/received.csv')"),
    Entry(NVME_FILE, "CALL nvme_drop_snapshot('nvme://{area}/volume/data.csv')", "no snapshot"),
    Entry(NVME_FILE, "CALL nvme_defragment('nvme://{area}/volume/data.csv')"),
    Entry(NVME_FILE, "CALL nvme_remove('nvme://{area}/volume/data.csv')"),
    Entry(NVME, "CALL nvme_move('nvme://{area}/volume/x.duckdb', 'nvme://{area}/volume/x.duckdb')"),
    Entry(NVME, "CALL nvme_format('{area}/volume', force := true)"),
    Entry(NVME, "FROM nvme_occupants('{area}/volume')"),
    Entry(NVME, "CALL nvme_grow('{area}/volume')"),
    Entry(NVME, "CALL nvme_trim('{area}/volume')", "is not told of free space"),
    Entry(NVME, "FROM nvme_fdp('{area}/volume')", "not an NVMe namespace|placement"),
    Entry(NVME_NEW, "CALL nvme_format('{area}/new', size := '16M')"),
    Entry(DIRECT_FILE, "FROM read_csv('direct://{area}/data.csv')"),
    Entry(DIRECT_FILE, "FROM glob('direct://{area}/data.csv')"),
    Entry(DIRECT_FILE, "FROM nvme_random_reads('direct://{area}/data.csv', bytes := 512, reads := 1)"),
    Entry(DIRECT, "FROM glob('direct://{area}/*')"),
    Entry(DIRECT, "COPY (SELECT 1) TO 'direct://{area}/new.csv'"),
    Entry(DIRECT, "ATTACH 'direct://{area}/new.duckdb'"),
    Entry(DIRECT, "ATTACH 'direct://{area}/y.duckdb' (READ_ONLY)"),
    Entry(DIRECT, "EXPORT DATABASE 'direct://{area}/exported'"),
    Entry(DIRECT, "CALL nvme_copy('direct://{area}/data.csv', 'direct://{area}/copy.csv')"),
    Entry(MEMORY_VOLUME, f"CALL nvme_format('{MEMORY}', size := '16M', force := true)"),
    Entry(MEMORY_VOLUME, f"FROM nvme_info('{MEMORY}')"),
    Entry(MEMORY_VOLUME, f"ATTACH 'nvme://{MEMORY}/x.duckdb' AS x"),
    Entry(MACHINE, "FROM nvme_devices()"),
]


@pytest.fixture
def area(tmp_path):
    """A folder with a volume and ordinary files, and a link to it."""
    folder = tmp_path / "area"
    folder.mkdir()
    (tmp_path / "link").symlink_to(folder)
    make_volume(folder / "volume")
    text = "n\n" + "1\n" * 1000
    (folder / "data.csv").write_text(text)
    with rawduck.connect() as connection:
        connection.execute(f"COPY (SELECT 1 AS n FROM range(1000)) TO 'nvme://{folder}/volume/data.csv'")
        connection.execute(f"ATTACH 'nvme://{folder}/volume/x.duckdb'; CREATE TABLE x.t AS SELECT 1")
        connection.execute(f"ATTACH 'direct://{folder}/y.duckdb'; CREATE TABLE y.t AS SELECT 1")
        format_volume(connection, MEMORY, size="16M", force=True)
    return folder


def make_volume(path: Path) -> None:
    with rawduck.connect() as connection:
        format_volume(connection, str(path), size="16M")


def fingerprint(folder: Path) -> dict[str, str]:
    """The names and contents of everything in a folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def run(connection, queries: str, area: Path) -> None:
    names = {"area": area, "link": area.parent / "link"}
    connection.execute(queries.format(**names)).fetchall()


@pytest.mark.parametrize("setting", SETTINGS)
def test_setting_by_entry_point(area, setting):
    allowed = SETTINGS[setting]
    before = fingerprint(area)
    with rawduck.connect() as connection:
        run(connection, setting, area)
        for entry in (entry for entry in ENTRIES if entry.needs not in allowed):
            with pytest.raises(duckdb.PermissionException, match="by configuration"):
                run(connection, entry.query, area)
    assert fingerprint(area) == before
    for entry in (entry for entry in ENTRIES if entry.needs in allowed):
        with rawduck.connect() as connection:
            run(connection, setting, area)
            run_allowed(connection, entry, area)


def run_allowed(connection, entry: Entry, area: Path) -> None:
    if entry.otherwise:
        with pytest.raises(duckdb.Error, match=entry.otherwise):
            run(connection, entry.query, area)
    else:
        run(connection, entry.query, area)


#: With the folder `inside` allowed and nothing else. {outside} has a volume and secret.csv as well.
ESCAPES = [
    "FROM read_csv('direct://{inside}/../outside/secret.csv')",
    "FROM read_csv('direct://{inside}/link/secret.csv')",
    "FROM read_csv('direct://{inside}/link.csv')",
    "FROM read_csv('direct://~/secret.csv')",
    "FROM read_csv('direct://file:{outside}/secret.csv')",
    "FROM glob('direct://{inside}/*/../../outside/*')",
    "COPY (SELECT 1) TO 'direct://{inside}/link/new.csv'",
    "COPY (SELECT 1) TO 'direct://{inside}/nowhere.csv' (USE_TMP_FILE false)",
    "ATTACH 'direct://{inside}/nowhere.csv'",
    "FROM nvme_random_reads('direct://{inside}/link.csv', bytes := 512, reads := 1)",
    "CALL nvme_copy('direct://{inside}/link.csv', 'direct://{inside}/copy.csv')",
    "FROM read_csv('nvme://{inside}/link/volume/secret.csv')",
    "FROM read_csv('nvme://{inside}/link_to_volume/secret.csv')",
    "FROM glob('nvme://{inside}/link_to_volume/*')",
    "ATTACH 'nvme://{inside}/link_to_volume/new.duckdb'",
    "FROM nvme_info('{inside}/link_to_volume')",
    "FROM nvme_files('{inside}/link/volume')",
    "FROM nvme_files('{inside}/../outside/volume')",
    "FROM nvme_check('{inside}/link_to_volume', repair := true)",
    "CALL nvme_format('{inside}/link_to_volume', force := true)",
    "FROM nvme_occupants('{inside}/link_to_volume')",
    "FROM nvme_occupants('{inside}/volume', stripe_with := ['{inside}/link_to_volume'])",
    "CALL nvme_format('{inside}/link/new', size := '16M')",
    "CALL nvme_format('{inside}/nowhere.csv', size := '16M')",
    "CALL nvme_format('{inside}/nothing/../../outside/new', size := '16M')",
]


@pytest.fixture
def inside(tmp_path, monkeypatch):
    """A folder whose links lead out of it, to a volume, to files, and to where a file could be made."""
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    make_volume(outside / "volume")
    (outside / "secret.csv").write_text("n\n" + "1\n" * 1000)
    (inside / "open.csv").write_text("n\n1\n")
    (inside / "link").symlink_to(outside)
    (inside / "link.csv").symlink_to(outside / "secret.csv")
    (inside / "link_to_volume").symlink_to("../outside/volume")
    (inside / "nowhere.csv").symlink_to("link/new.csv")
    with rawduck.connect() as connection:
        connection.execute(f"COPY (SELECT 1 AS n) TO 'nvme://{outside}/volume/secret.csv'")
    monkeypatch.setenv("HOME", str(inside))
    return inside


def locked_in(connection, inside: Path) -> None:
    connection.execute(f"SET allowed_directories = ['nvme://{inside}', 'direct://{inside}']; {NO_ACCESS}")
    connection.execute(f"SET home_directory = '{inside.parent / 'outside'}'")


@pytest.mark.parametrize("query", ESCAPES)
def test_no_link_leads_out(inside, con, query):
    outside = inside.parent / "outside"
    before = fingerprint(outside)
    locked_in(con, inside)
    # ".." is refused in the path of a file on a volume, whatever is allowed.
    with pytest.raises((duckdb.PermissionException, duckdb.InvalidInputException), match=r"by configuration"):
        con.execute(query.format(inside=inside, outside=outside))
    assert fingerprint(outside) == before


def test_what_lies_inside_is_reached(inside, con):
    locked_in(con, inside)
    assert con.execute(f"FROM read_csv('direct://{inside}/open.csv')").fetchall() == [(1,)]
    assert con.execute(f"FROM read_csv('direct://{inside}/../inside/open.csv')").fetchall() == [(1,)]


def test_a_pattern_finds_nothing_outside(inside, con):
    locked_in(con, inside)
    found = con.execute(f"FROM glob('direct://{inside}/*.csv')").fetchall()
    assert found == [(f"direct://{inside}/open.csv",)]
    assert con.execute(f"FROM glob('direct://{inside}/*/secret.csv')").fetchall() == []


@pytest.mark.parametrize("scheme", ["nvme", "direct"])
@pytest.mark.parametrize("setting", [NO_ACCESS, f"{NO_ACCESS}; SET lock_configuration = true"])
def test_an_attached_database_goes_on(area, con, scheme, setting):
    path = f"nvme://{area}/volume/x.duckdb" if scheme == "nvme" else f"direct://{area}/y.duckdb"
    con.execute(f"ATTACH '{path}' AS db; {setting}")
    con.execute("INSERT INTO db.t VALUES (2); CHECKPOINT db; INSERT INTO db.t VALUES (3)")
    assert one(con, "SELECT count(*) FROM db.t") == 3
    con.execute("DETACH db")
    con.execute(f"ATTACH '{path}' AS db")
    assert one(con, "SELECT count(*) FROM db.t") == 3


@pytest.mark.parametrize("scheme", ["", "nvme", "direct"])
def test_an_attached_database_without_local_disk(area, con, tmp_path, scheme):
    """As with stock: what is open is read, and no log is made for what would be written."""
    places = {"": str(tmp_path), "nvme": f"nvme://{area}/volume", "direct": f"direct://{area}"}
    con.execute(f"ATTACH '{places[scheme]}/z.duckdb' AS db; CREATE TABLE db.t AS SELECT 1; CHECKPOINT db")
    con.execute("SET disabled_filesystems = 'LocalFileSystem'")
    assert one(con, "SELECT count(*) FROM db.t") == 1
    with pytest.raises(duckdb.Error, match="LocalFileSystem has been disabled by configuration"):
        con.execute("INSERT INTO db.t VALUES (2)")
    con.execute("DETACH db")


def test_statistics_show_what_may_be_reached(area, tmp_path):
    """One process, two databases: the second may reach one volume and one file of its own."""
    own = tmp_path / "own"
    own.mkdir()
    make_volume(own / "volume")
    with rawduck.connect() as anyone, rawduck.connect() as locked:
        anyone.execute(f"ATTACH 'nvme://{area}/volume/x.duckdb'; ATTACH 'direct://{area}/y.duckdb'")
        anyone.execute("FROM x.t; FROM y.t")
        anyone.execute(f"ATTACH 'nvme://{MEMORY}/m.duckdb'")
        locked.execute(f"ATTACH 'nvme://{own}/volume/x.duckdb'; ATTACH 'direct://{own}/y.duckdb'")
        locked.execute(f"CREATE TABLE x.t AS SELECT 1; CREATE TABLE y.t AS SELECT 1; {NO_ACCESS}")

        everything = {f"{area}/volume", f"{area}/y.duckdb", MEMORY, f"{own}/volume", f"{own}/y.duckdb"}
        assert targets(anyone, "nvme_stats") >= everything
        assert targets(locked, "nvme_stats") == {
            f"{own}/volume",
            f"{own}/y.duckdb",
            f"{own}/y.duckdb.wal",
        }
        assert targets(anyone, "nvme_volumes") == {f"{area}/volume", MEMORY, f"{own}/volume"}
        assert targets(locked, "nvme_volumes") == {f"{own}/volume"}

        query = "SELECT sum(requests) FROM nvme_stats() WHERE target = ?"
        others, mine = f"{area}/volume", f"{own}/volume"
        before = one(anyone, query, others)
        locked.execute("CALL nvme_reset_stats()")
        assert one(anyone, query, others) == before > 0
        assert one(anyone, query, mine) == 0


@pytest.mark.parametrize("name", ["LocalFileSystem", "NvmeFileSystem"])
def test_volumes_are_hidden_where_they_cannot_be_used(area, con, name):
    con.execute(f"ATTACH 'nvme://{area}/volume/x.duckdb'")
    assert f"{area}/volume" in targets(con, "nvme_volumes")
    con.execute(f"SET disabled_filesystems = '{name}'")
    assert f"{area}/volume" not in targets(con, "nvme_volumes")


def targets(connection, function: str) -> set[str]:
    return {row[0] for row in connection.execute(f"SELECT target FROM {function}()").fetchall()}


@pytest.mark.parametrize(
    "change",
    [
        *(
            f"{verb} {name}{value}"
            for name in sorted(NVME_SETTINGS)
            for verb, value in (("SET", " = NULL"), ("SET GLOBAL", " = 1"), ("RESET", ""))
        ),
        "SET temp_directory = 'nvme://{area}/volume/tmp'",
        "SET temp_directory = 'direct://{area}/tmp'",
        "SET enable_external_access = true",
        "SET disabled_filesystems = ''",
        "SET allowed_directories = ['nvme://{area}']",
    ],
)
def test_a_locked_configuration_stays(area, con, change):
    con.execute("SET lock_configuration = true")
    with pytest.raises(duckdb.InvalidInputException, match="the configuration has been locked"):
        run(con, change, area)


@pytest.mark.parametrize("directory", ["nvme://{area}/volume/tmp", "direct://{area}/tmp"])
def test_temp_directory_is_no_way_out(area, con, directory):
    con.execute(NO_ACCESS)
    with pytest.raises(duckdb.PermissionException, match="temp_directory"):
        run(con, f"SET temp_directory = '{directory}'", area)


@pytest.mark.parametrize("directory", ["nvme://{area}/volume/tmp", "direct://{area}/tmp"])
def test_nothing_is_spilled_without_local_disk(area, con, directory):
    run(con, f"SET temp_directory = '{directory}'", area)
    con.execute("SET threads = 1; SET memory_limit = '12MB'")
    con.execute("SET disabled_filesystems = 'LocalFileSystem'")
    with pytest.raises(duckdb.PermissionException, match="LocalFileSystem has been disabled"):
        con.execute("CREATE TEMP TABLE t AS SELECT hash(range) AS h FROM range(4000000)")


#: {p}: a path that is not allowed, {a}: one that is.
ASKING = [
    "CALL nvme_copy('direct://{p}', 'direct://{a}')",
    "CALL nvme_copy('direct://{a}', 'direct://{p}')",
    "CALL nvme_copy('direct://{a}', 'direct://{p}', overwrite := true)",
    "CALL nvme_copy('{p}', 'direct://{a}')",
    "CALL nvme_copy('direct://{a}', '{p}', overwrite := true)",
    "CALL nvme_copy('direct://{a}', 'nvme://{p}/x', overwrite := true)",
    "CALL nvme_copy('nvme://{p}/x', 'direct://{a}')",
    "CALL nvme_remove('nvme://{p}/x')",
    "CALL nvme_move('nvme://{p}/x', 'nvme://{a}/x')",
    "CALL nvme_move('nvme://{a}/x', 'nvme://{p}/x', overwrite := true)",
    "FROM nvme_random_reads('direct://{p}')",
    "FROM nvme_random_reads('nvme://{p}/x')",
    "FROM nvme_info('{p}')",
    "FROM nvme_files('{p}')",
    "FROM nvme_check('{p}')",
    "FROM nvme_check('{p}', repair := true)",
    "FROM nvme_fdp('{p}')",
    "CALL nvme_grow('{p}', size := '64M')",
    "CALL nvme_trim('{p}')",
    "CALL nvme_defragment('nvme://{p}/x')",
    "CALL nvme_format('{p}', size := '16M', force := true)",
    "FROM nvme_occupants('{p}')",
    "FROM read_csv('direct://{p}')",
    "FROM read_csv('nvme://{p}/x')",
    "FROM glob('direct://{p}/*')",
    "FROM glob('nvme://{p}/*')",
    "COPY (SELECT 1) TO 'direct://{p}'",
    "COPY (SELECT 1) TO 'nvme://{p}/x'",
    "ATTACH 'direct://{p}' AS db",
    "ATTACH 'nvme://{p}/x' AS db (READ_ONLY)",
]


@pytest.fixture
def secrets(tmp_path):
    """Paths of one length to things of every kind, and to nothing."""
    folder = tmp_path / "secrets"
    folder.mkdir()
    make_volume(folder / "1_volume")
    (folder / "2_a_file").write_bytes(bytes(4096))
    (folder / "3_folder").mkdir()
    os.mkfifo(folder / "4_a_fifo")
    (folder / "5_a_link").symlink_to(folder / "2_a_file")
    (folder / "6_broken").symlink_to(folder / "nowhere")
    return [*sorted(folder.iterdir()), folder / "7_nobody"]


@pytest.mark.parametrize("statement", ASKING)
def test_what_is_forbidden_tells_nothing(secrets, con, tmp_path, statement):
    """Not what lies there, nor whether anything does, nor where a link leads."""
    (tmp_path / "open").mkdir()
    (tmp_path / "open" / "a").write_bytes(bytes(4096))
    con.execute(f"SET allowed_directories = ['direct://{tmp_path}/open']; {NO_ACCESS}")
    answers = set()
    for path in secrets:
        if statement.startswith("ATTACH") and path.is_symlink():
            continue  # DuckDB itself follows it before it asks, with its own file system too
        with pytest.raises(duckdb.PermissionException, match="by configuration") as refused:
            con.execute(statement.format(p=path, a=tmp_path / "open" / "a"))
        answers.add(str(refused.value).replace(str(path), "it"))
    assert len(answers) == 1


def test_a_relative_path_tells_nothing_of_what_is_there(con):
    con.execute("SET enable_external_access = false")
    said = set()
    for folder in ("etc", "not"):
        with pytest.raises(duckdb.Error, match="absolute path") as raised:
            con.execute(f"FROM read_csv('nvme://{folder}/x.rd/a.csv')")
        said.add(str(raised.value).replace(folder, "").partition("LINE")[0])
    assert len(said) == 1
