"""The metadata of a simulated volume, read from its LBAs without the volume's own code. What they hold is in
docs/ON_DISK_FORMAT.md."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import duckdb
from disk import Disk, Geometry

ALLOCATION_UNIT_BYTES = 4096
#: Magic, checksum, UUID, generation, start of area 0 and 1 and their length, epoch, active area, bytes of the
#: snapshot.
SUPERBLOCK = struct.Struct("<8sI28x16sQ16x3Q16xQI4xQ")
CRC_OFFSET = 8
#: Magic, checksum, epoch, sequence, bytes of the payload.
RECORD = struct.Struct("<4sIQQI36x")


def _crc_table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return tuple(table)


_TABLE = _crc_table()


def crc32c(*parts: bytes) -> int:
    crc = 0xFFFFFFFF
    for part in parts:
        for byte in part:
            crc = (crc >> 8) ^ _TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


@dataclass(frozen=True)
class Superblock:
    """A copy that is whole. The log lies between two bytes of the device."""

    content: bytes
    uuid: bytes
    generation: int
    epoch: int
    log_start: int
    log_end: int

    @classmethod
    def parse(cls, block: bytes) -> Superblock | None:
        magic, crc, uuid, generation, *starts, units, epoch, area, snapshot = SUPERBLOCK.unpack_from(block)
        if magic != b"RAWDUCK\0" or crc != crc32c(block[:CRC_OFFSET], bytes(4), block[CRC_OFFSET + 4 :]):
            return None
        log_start = (starts[area] + -(-snapshot // ALLOCATION_UNIT_BYTES)) * ALLOCATION_UNIT_BYTES
        return cls(block, uuid, generation, epoch, log_start, (starts[area] + units) * ALLOCATION_UNIT_BYTES)


@dataclass(frozen=True)
class Record:
    """Of the log: its first LBA, how many it takes, and how many bytes of them count."""

    lba: int
    lbas: int
    length: int


class Metadata:
    """Reads, with a hand on the device, what a mount would read."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, disk: Disk, geometry: Geometry) -> None:
        self._connection, self._disk, self._geometry = connection, disk, geometry
        self.lba_size = geometry.lba_size

    def _read(self, start: int, length: int) -> bytes:
        return self._disk.read(self._connection, start // self.lba_size, length // self.lba_size)

    def copy_lbas(self, number: int) -> range:
        """Of superblock 0 or 1."""
        lbas = ALLOCATION_UNIT_BYTES // self.lba_size
        first = 0 if number == 0 else self._geometry.lbas - lbas
        return range(first, first + lbas)

    def superblocks(self) -> list[Superblock | None]:
        copies = []
        for number in (0, 1):
            lbas = self.copy_lbas(number)
            try:
                block = self._disk.read(self._connection, lbas.start, len(lbas))
            except duckdb.IOException:
                block = bytes(ALLOCATION_UNIT_BYTES)
            copies.append(Superblock.parse(block))
        return copies

    def newest(self) -> Superblock:
        return max((copy for copy in self.superblocks() if copy), key=lambda copy: copy.generation)

    def records(self) -> list[Record]:
        """The whole records of the current log, in order."""
        superblock = self.newest()
        log = self._read(superblock.log_start, superblock.log_end - superblock.log_start)
        found, at = [], 0
        while at + RECORD.size <= len(log):
            magic, crc, epoch, sequence, payload = RECORD.unpack_from(log, at)
            end = at + RECORD.size + payload
            expected = (b"RDLG", superblock.epoch, len(found) + 1)
            if (magic, epoch, sequence) != expected or crc != crc32c(
                superblock.uuid, magic, bytes(4), log[at + CRC_OFFSET : end]
            ):
                break
            lbas = -(-(end - at) // self.lba_size)
            found.append(Record((superblock.log_start + at) // self.lba_size, lbas, end - at))
            at += lbas * self.lba_size
        return found
