"""The protocol of the object class in Python, for tests without rawduck's client."""

from __future__ import annotations

import ctypes
import struct
import time
from dataclasses import dataclass, field
from pathlib import Path

PROTOCOL_VERSION = 4
FRAME_BYTES = 16  #: before the body of a request or a reply
DUCKDB_VERSION = "v2.0.0"
STATUS = (
    "ok",
    "version",
    "bad request",
    "too large",
    "too slow",
    "busy",
    "corrupt",
    "failed",
    "cannot read",
    "working",
    "unavailable",
    "an expression failed",
)
NO_LIMIT = 2**64 - 1


def _crc32c_table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_TABLE = _crc32c_table()


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def _text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<I", len(data)) + data


@dataclass
class Request:
    columns: list[tuple[str, str]]
    outputs: list[str]
    filter: str = ""
    aggregate: bool = False
    groups: int = 0
    order: list[tuple[int, bool, bool]] = field(default_factory=list)
    limit: int = NO_LIMIT
    lz4: bool = False
    reply_bytes_max: int = 64 << 20
    time_ms_max: int = 10000
    use_cache: bool = False
    duckdb_version: str = DUCKDB_VERSION
    version: int = PROTOCOL_VERSION

    def encode(self) -> bytes:
        body = _text(self.duckdb_version) + struct.pack("<I", len(self.columns))
        body += b"".join(_text(name) + _text(type_name) for name, type_name in self.columns)
        body += _text(self.filter) + struct.pack("<I", len(self.outputs))
        body += b"".join(_text(output) for output in self.outputs)
        body += struct.pack("<BII", self.aggregate, self.groups, len(self.order))
        body += b"".join(struct.pack("<IBB", *key) for key in self.order)
        body += struct.pack("<QBQI", self.limit, self.lz4, self.reply_bytes_max, self.time_ms_max)
        body += struct.pack("<B", self.use_cache)
        return seal(body, self.version)


def seal(body: bytes, version: int = PROTOCOL_VERSION) -> bytes:
    """Adds the frame of a request to a body."""
    head = struct.pack("<4sHHI", b"RDQR", version, 0, len(body))
    return head + struct.pack("<I", crc32c(head + bytes(4) + body)) + body


@dataclass
class Reply:
    status: str
    text: str
    duckdb_version: str
    lz4: bool
    rows: int
    raw_bytes: int
    read_bytes: int
    cpu_us: int
    retry_ms: int
    cached: bool
    payload: bytes

    @staticmethod
    def decode(data: bytes) -> Reply:
        magic, version, _, length, crc = struct.unpack_from("<4sHHII", data)
        assert (magic, version, length) == (b"RDQA", PROTOCOL_VERSION, len(data) - FRAME_BYTES)
        # Python is too slow for the checksum of a long reply.
        assert len(data) > 1 << 16 or crc == crc32c(data[:12] + bytes(4) + data[FRAME_BYTES:])
        position = FRAME_BYTES

        def take(form: str) -> int:
            nonlocal position
            (value,) = struct.unpack_from("<" + form, data, position)
            position += struct.calcsize("<" + form)
            return value

        def take_bytes() -> bytes:
            nonlocal position
            size = take("I")
            position += size
            return data[position - size : position]

        status = STATUS[take("H")]
        text, duckdb_version = take_bytes().decode(), take_bytes().decode()
        reply = Reply(
            status,
            text,
            duckdb_version,
            bool(take("B")),
            *(take("Q") for _ in range(4)),
            take("I"),
            bool(take("B")),
            take_bytes(),
        )
        assert position == len(data)
        return reply


class Pool:
    """Objects of a pool, accessed through librados directly."""

    def __init__(self, conf: Path, keyring: Path, pool: str, user: str = "admin") -> None:
        self._lib = ctypes.CDLL("librados.so.2")
        self._cluster, self._io = ctypes.c_void_p(), ctypes.c_void_p()
        self._check(
            self._lib.rados_create2(ctypes.byref(self._cluster), b"ceph", f"client.{user}".encode(), 0)
        )
        self._check(self._lib.rados_conf_read_file(self._cluster, str(conf).encode()))
        self._check(self._lib.rados_conf_set(self._cluster, b"keyring", str(keyring).encode()))
        self._check(self._lib.rados_connect(self._cluster))
        self._check(self._lib.rados_ioctx_create(self._cluster, pool.encode(), ctypes.byref(self._io)))

    def close(self) -> None:
        self._lib.rados_ioctx_destroy(self._io)
        self._lib.rados_shutdown(self._cluster)

    def write(self, name: str, data: bytes) -> None:
        self._check(self._lib.rados_write_full(self._io, name.encode(), data, ctypes.c_size_t(len(data))))

    def read(self, name: str, length_max: int) -> bytes:
        out = ctypes.create_string_buffer(length_max)
        sizes = ctypes.c_size_t(length_max), ctypes.c_uint64(0)
        length = self._check(self._lib.rados_read(self._io, name.encode(), out, *sizes))
        return ctypes.string_at(out, length)

    def set_attribute(self, name: str, attribute: str, value: bytes) -> None:
        size = ctypes.c_size_t(len(value))
        self._check(self._lib.rados_setxattr(self._io, name.encode(), attribute.encode(), value, size))

    def call(self, name: str, method: str, data: bytes = b"", reply_bytes: int = 1 << 16) -> bytes:
        """Calls a method of the class; raises OSError when there is no reply."""
        out = ctypes.create_string_buffer(reply_bytes)
        sizes = ctypes.c_size_t(len(data)), ctypes.c_size_t(len(out))
        arguments = (name.encode(), b"rawduck", method.encode(), data, sizes[0], out, sizes[1])
        length = self._check(self._lib.rados_exec(self._io, *arguments))
        return ctypes.string_at(out, length)

    def query(self, name: str, request: Request, reply_bytes: int = 1 << 16, seconds: float = 60.0) -> Reply:
        """Sends the request again while the helper works on it, is busy, or does not run for a moment."""
        limit = time.monotonic() + seconds
        while True:
            reply = self.query_once(name, request, reply_bytes)
            if reply.status not in ("working", "busy", "unavailable") or time.monotonic() > limit:
                return reply
            time.sleep(max(reply.retry_ms, 2) / 1000)

    def query_once(self, name: str, request: Request, reply_bytes: int = 1 << 16) -> Reply:
        return Reply.decode(self.call(name, "query", request.encode(), reply_bytes))

    def remove(self, name: str) -> None:
        self._check(self._lib.rados_remove(self._io, name.encode()))

    @staticmethod
    def _check(result: int) -> int:
        if result < 0:
            raise OSError(-result, f"librados: error {-result}")
        return result
