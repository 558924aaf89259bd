"""Writes the seeds of the fuzz targets into test/fuzz/corpus/<target>: a few KB that reach every decoder.

What a longer run of a target has found stays in build/fuzz. Run this again when the format changes, with the
Python that has DuckDB.
"""

from __future__ import annotations

import struct
import sys
import tempfile
from pathlib import Path

import duckdb

ROOT = Path(__file__).resolve().parent.parent.parent
CORPUS = ROOT / "test" / "fuzz" / "corpus"

sys.path.insert(0, str(ROOT / "test" / "ceph"))
from class_protocol import FRAME_BYTES, Request  # noqa: E402

TEXTS = [
    "nvme:///dev/nvme0n1/sales.duckdb",
    "nvme://memory:scratch/tmp/x.parquet",
    "nvme://simulated:disk/a/./b//c",
    "nvme://memory:x/../y",
    "nvme://etc/passwd",
    "nvme:///etc/hostname/x.duckdb",
    "direct:///data/plain.duckdb",
    "direct://~/x",
    "8 GiB",
    "1.5T",
    "256kB",
    "18446744073709551615",
    "99999999999T",
    "-1",
    "0.0000001K",
    "a/b/c.duckdb.wal",
    "duckdb_temp_storage_S32K-0.tmp",
]

CREATE, EXTENTS, REMAP, SIZE, TRUNCATE, HOLES, REMOVE, MOVE, DATA_CHECKSUM, CLONE = range(1, 11)


def item(kind: int, file_id: int, body: bytes, file_kind: int = 0) -> bytes:
    """One item as docs/ON_DISK_FORMAT.md lays it out."""
    padded = body + b"\0" * (-len(body) % 8)
    return struct.pack("<HHIQ", kind, file_kind, 16 + len(padded), file_id) + padded


def named(kind: int, file_id: int, name: bytes, other: int = 0, file_kind: int = 0) -> bytes:
    return item(kind, file_id, struct.pack("<qQII", 1, other, len(name), 0) + name, file_kind)


def size(kind: int, file_id: int, size_bytes: int, tail: bytes = b"") -> bytes:
    return item(kind, file_id, struct.pack("<QqII", size_bytes, 2, len(tail), 0) + tail)


def extents(kind: int, file_id: int, *pieces: tuple[int, int, int]) -> bytes:
    return item(kind, file_id, b"".join(struct.pack("<QQQ", *piece) for piece in pieces))


def payloads() -> dict[str, bytes]:
    database = (
        named(CREATE, 1, b"a.duckdb", file_kind=1)
        + extents(EXTENTS, 1, (0, 200, 3), (3, 300, 5))
        + size(SIZE, 1, 8 * 4096)
    )
    log = (
        named(CREATE, 2, b"a.duckdb.wal", file_kind=2)
        + extents(EXTENTS, 2, (0, 400, 1))
        + size(SIZE, 2, 515, b"end")
    )
    return {
        "files": database + log,
        "remap": database + extents(REMAP, 1, (1, 500, 1)) + item(HOLES, 1, struct.pack("<QQ", 4096, 512)),
        "truncate": database + size(TRUNCATE, 1, 4097, b"x"),
        "move": database + log + named(MOVE, 2, b"a.duckdb", other=1) + item(REMOVE, 2, b""),
        "data-checksum": database + item(DATA_CHECKSUM, 0, struct.pack("<QII", 200 * 4096, 512, 7)),
        "clone": database
        + named(CLONE, 3, b"a.duckdb@s", other=1, file_kind=1)
        + named(CLONE, 4, b"b.duckdb", other=3)
        + extents(REMAP, 4, (1, 500, 1))
        + size(TRUNCATE, 1, 4097, b"x")
        + item(REMOVE, 3, b""),
        "overlap": database + named(CREATE, 3, b"b", file_kind=4) + extents(EXTENTS, 3, (0, 201, 2)),
    }


#: Where the pieces of a volume begin that mount_fuzz patches: superblock, first and second area of the log,
#: the map of pages, the root pages of the trees (names, files, tails, bitmaps and summaries of space,
#: references), and pages of the trees of files.
SUPERBLOCK, FIRST_LOG, SECOND_LOG, PAGE_MAP = 0, 4096, 8192, 12288
NAMES, FILES, TAILS, MAPS, SUMMARIES, REFERENCES = range(PAGE_MAP + 16384, PAGE_MAP + 7 * 16384, 16384)
FILE_PAGES = REFERENCES + 16384


def patches() -> dict[str, bytes]:
    """Inputs of mount_fuzz: one byte says whether checksums are made right, then (u24 where, how, what)."""

    def patch(reseal: int, *changes: tuple[int, int, int]) -> bytes:
        return bytes([reseal]) + b"".join(
            struct.pack("<I", where)[:3] + struct.pack("<BB", how, what) for where, how, what in changes
        )

    return {
        "untouched": patch(0),
        "version": patch(1, (12, 0, 1)),
        "log-area": patch(1, (144, 2, 1)),
        "map-bytes": patch(1, (152, 1, 16)),
        "data-start": patch(1, (104, 1, 1)),
        "root-levels": patch(1, (232 + 24 + 16, 1, 1)),
        "root-unit": patch(1, (232 + 24, 1, 4)),
        "log": patch(1, (FIRST_LOG + 64, 1, 1), (SECOND_LOG + 80, 2, 16)),
        "log-before": patch(1, (SECOND_LOG + 48, 1, 1)),
        "torn": patch(0, (FIRST_LOG + 70, 2, 1), (SECOND_LOG + 70, 2, 1)),
        "map": patch(1, (PAGE_MAP + 8, 2, 255)),
        "pages": patch(0, (NAMES + 100, 2, 1), (TAILS + 100, 2, 1)),
        "names": patch(1, (NAMES + 16380, 1, 1)),
        "file-extents": patch(1, (FILES + 16300, 2, 255), (FILES + 16200, 2, 255)),
        "page-count": patch(1, (FILES + 50, 1, 1)),
        "page-level": patch(1, (FILES + 48, 1, 1)),
        "bitmap": patch(1, (MAPS + 16000, 2, 255)),
        "summary": patch(1, (SUMMARIES + 16000, 2, 255)),
        "references": patch(1, (REFERENCES + 16384 - 16, 0, 0), (REFERENCES + 16384 - 8, 1, 1)),
        "page-of-a-file": patch(1, (FILE_PAGES + 16384 - 16, 1, 1), (FILE_PAGES + 3 * 16384 - 16, 1, 1)),
        "next-generation": patch(1, (232 + 8 + 4, 1, 1), (NAMES + 40 + 4, 1, 1)),
    }


def parquet_footer(columns: str) -> bytes:
    """The metadata of a Parquet file of two row groups."""
    with tempfile.NamedTemporaryFile(suffix=".parquet") as file:
        rows = f"SELECT {columns} FROM range(4096) AS r(i)"
        duckdb.sql(f"COPY ({rows}) TO '{file.name}' (FORMAT parquet, ROW_GROUP_SIZE 2048)")
        data = Path(file.name).read_bytes()
    (length,) = struct.unpack_from("<I", data, len(data) - 8)
    return data[-8 - length : -8]


def ceph_inputs() -> dict[str, bytes]:
    """Inputs of ceph_fuzz; the first byte says what follows: a request's body, a reply's, a footer, a job."""
    columns = [("a", "BIGINT"), ("b", "VARCHAR")]
    requests = {
        "rows": Request(columns, ["a", "b"], "(a > 3) OR (b ~~ 'x%')", lz4=True),
        "groups": Request(columns, ["b", "sum(a)"], aggregate=True, groups=1),
        "first": Request(columns, ["a"], order=[(0, True, False)], limit=10),
    }
    text = struct.pack("<I", 6) + b"v2.0.0"
    replies = {
        "answer": struct.pack("<HI", 0, 0) + text + struct.pack("<BQQQQII", 1, 9, 40, 80, 7, 0, 3) + b"xyz",
        "refusal": struct.pack("<H", 3) + text + text + struct.pack("<BQQQQII", 0, 0, 0, 0, 0, 5, 0),
    }
    footers = {
        "numbers": parquet_footer("i, i::DOUBLE AS d, i::DECIMAL(12, 2) AS m, DATE '2000-01-01' AS t"),
        "texts": parquet_footer("'x' || i % 9 AS s, [i] AS l, {'k': i} AS r, NULL::INT AS n"),
    }
    return {
        **{f"request-{name}": b"\0" + request.encode()[FRAME_BYTES:] for name, request in requests.items()},
        **{f"reply-{name}": b"\1" + body for name, body in replies.items()},
        **{f"footer-{name}": b"\2" + footer for name, footer in footers.items()},
        # Two ranges.
        "job": b"\3" + b"\2rq" + b"abcde" + struct.pack("<QQQQ", 0, 2, 2, 3),
    }


#: Codec and kind as src/gpu/decode/task.hpp numbers them, forced compression (or mode of bit packing), and
#: the values of the rows. test/unit/gpu/stock_segments_test.cpp knows the values, too.
SEGMENTS = {
    "uncompressed": (1, 3, "uncompressed", "i * 3"),
    "uncompressed-strings": (1, 7, "uncompressed", "'s' || i % 90"),
    "bitpacking-for": (2, 2, "for", "(i * 7919 % 1000)::int"),
    "bitpacking-delta": (2, 3, "delta_for", "i * 5 + i % 3"),
    "bitpacking-constant-delta": (2, 1, "constant_delta", "i::smallint"),
    "bitpacking-wide": (2, 4, "for", "i::hugeint << 80"),
    "bitpacking-boolean": (2, 9, "bitpacking", "i % 3 = 0"),
    "rle": (3, 2, "rle", "(i // 50)::int"),
    "alp": (4, 6, "alp", "(i * 7919 % 1000) / 100"),
    "alp-float": (4, 5, "alp", "((i * 7919 % 1000) / 100)::float"),
    "alprd": (5, 6, "alprd", "sin(i)"),
    "dictionary": (6, 7, "dict_fsst", "'value ' || i % 50"),
    "dictionary-fsst": (6, 7, "dict_fsst", "'http://example.com/' || (i % 900) || '/page'"),
    "roaring-arrays": (7, 8, "roaring", "case when i % 200 = 7 then null else i end"),
    "roaring-runs": (7, 8, "roaring", "case when i // 90 % 2 = 0 then null else i end"),
    "roaring-bits": (7, 8, "roaring", "case when i * 7919 % 97 % 2 = 0 then null else i end"),
}
SEGMENT_ROWS = 1100
BITPACKING_MODES = ("for", "delta_for", "constant_delta")


def segment(codec: int, kind: int, compression: str, values: str) -> bytes:
    """What DuckDB stores of such a column, behind what decode_fuzz.cpp wants to know."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.duckdb"
        con = duckdb.connect(str(path))
        if compression in BITPACKING_MODES:
            con.execute(f"SET debug_force_bitpacking_mode = '{compression}'")
            compression = "bitpacking"
        con.execute(f"SET force_compression = '{compression}'")
        con.execute(f"CREATE TABLE t AS SELECT {values} AS x FROM range({SEGMENT_ROWS}) t(i)")
        con.execute("CHECKPOINT")
        column = "[0, 0]" if kind == 8 else "[0]"
        block, start, found = con.execute(
            "SELECT block_id, block_offset, lower(compression) FROM pragma_storage_info('t')"
            " WHERE column_path = ?",
            [column],
        ).fetchone()
        assert found == compression, f"{values}: DuckDB chose {found}"
        ends = con.execute(
            "SELECT min(block_offset) FROM pragma_storage_info('t') WHERE block_id = ? AND block_offset > ?",
            [block, start],
        ).fetchone()[0]
        con.close()
        first = 3 * 4096 + block * 262144 + 8 + start
        end = first + (ends or 262144 - 8) - start
        stored = path.read_bytes()[first:end]
    # The rest of a block is empty. Packed numbers may end with zeros, too.
    return struct.pack("<BBHH", codec, kind, SEGMENT_ROWS - 1, 300) + stored.rstrip(b"\0") + bytes(64)


def identity(snapshot: bytes) -> bytes:
    """Which snapshot it is, as docs/BACKUP.md lays it out."""
    uuid, file = b"01234567-89ab-4def-8123-456789abcdef", b"x.duckdb"
    text = struct.pack("<I", len(uuid)) + uuid + struct.pack("<q", 7)
    return text + struct.pack("<I", len(file)) + file + struct.pack("<I", len(snapshot)) + snapshot


def stream_inputs() -> dict[str, bytes]:
    """Records without their headers: type, length, payload."""

    def record(kind: int, payload: bytes) -> bytes:
        return struct.pack("<BH", kind, len(payload)) + payload

    def begin(base: bytes, data_bytes: int, from_file: int = 0, from_offset: int = 0) -> bytes:
        files = struct.pack("<I", 2) + struct.pack("<IIQ", 0, 1, 12288) + struct.pack("<IIQ", 3, 2, 100)
        none = struct.pack("<IqII", 0, 0, 0, 0)
        start = struct.pack("<IIIIQQ", 1, 0, bool(base), from_file, from_offset, data_bytes)
        return record(1, start + identity(b"tuesday") + (identity(base) if base else none) + files)

    def data(file: int, offset: int, content: bytes) -> bytes:
        return record(2, struct.pack("<IIQ", file, 0, offset) + content)

    def zeros(file: int, offset: int, length: int) -> bytes:
        return record(3, struct.pack("<IIQQ", file, 0, offset, length))

    end = record(4, b"")
    return {
        "full": begin(b"", 200) + data(0, 0, bytes(100)) + data(1, 0, bytes(100)) + end,
        "since": begin(b"monday", 8) + zeros(0, 4096, 8192) + data(1, 92, b"the rest") + end,
        "resumed": begin(b"", 50, 1, 50) + data(1, 50, bytes(50)) + end,
        "nothing": begin(b"monday", 0, 2, 0) + end,
        "order": begin(b"", 20) + data(1, 0, bytes(10)) + data(0, 0, bytes(10)) + end,
        "outside": begin(b"", 10) + data(0, 2**64 - 5, bytes(10)) + end,
        "zeros": begin(b"", 0) + zeros(0, 4096, 2**64 - 1) + end,
    }


def main() -> None:
    seeds = {
        "stream_fuzz": stream_inputs(),
        "text_fuzz": {f"{number:02}": text.encode() for number, text in enumerate(TEXTS)},
        "record_fuzz": payloads(),
        "mount_fuzz": patches(),
        "ceph_fuzz": ceph_inputs(),
        "decode_fuzz": {name: segment(*values) for name, values in SEGMENTS.items()},
    }
    for target, inputs in seeds.items():
        folder = CORPUS / target
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in inputs.items():
            (folder / name).write_bytes(content)


if __name__ == "__main__":
    main()
