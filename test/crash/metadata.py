"""The metadata of a simulated volume, read from its LBAs without the volume's own code. What they hold is in
docs/ON_DISK_FORMAT.md and docs/FORMAT_2.md."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import duckdb
from disk import Disk, Geometry

ALLOCATION_UNIT_BYTES = 4096
#: Magic, checksum, UUID, sequence, allocation units of the volume, start of area 0 and 1 of the log and their
#: length, mounts, epoch, area, bytes of the map of pages.
SUPERBLOCK = struct.Struct("<8sI28x16sQQ8x3Q16xQ8xQI4xQ")
CRC_OFFSET = 8
MAP_UNITS = struct.Struct("<200Q")
MAP_UNITS_OFFSET = 376
#: Of the map: the first allocation unit of a zone, and a bit for each of its pages.
ZONE = struct.Struct("<QQ")
ZONE_PAGES, PAGE_UNITS = 64, 4
#: Magic, checksum, epoch, sequence, bytes of the payload; epoch and bytes of the log that this one continues.
RECORD = struct.Struct("<4sIQQI12xQQ8x")


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
    """A copy that is whole. The areas of the log lie from these bytes of the device on; the epoch is that of
    the checkpoint, and its records lie in one of them."""

    content: bytes
    uuid: bytes
    sequence: int
    capacity_units: int
    mounts: int
    epoch: int
    log_area: int
    log_starts: tuple[int, int]
    log_bytes: int
    map_bytes: int
    map_units: tuple[int, ...]

    @classmethod
    def parse(cls, block: bytes) -> Superblock | None:
        fields = SUPERBLOCK.unpack_from(block)
        magic, crc, uuid, sequence, capacity, *starts, units, mounts, epoch, area, map_bytes = fields
        if magic != b"RAWDUCK\0" or crc != crc32c(block[:CRC_OFFSET], bytes(4), block[CRC_OFFSET + 4 :]):
            return None
        log_starts = tuple(start * ALLOCATION_UNIT_BYTES for start in starts)
        map_units = tuple(unit for unit in MAP_UNITS.unpack_from(block, MAP_UNITS_OFFSET) if unit)
        log_bytes = units * ALLOCATION_UNIT_BYTES
        return cls(
            *(block, uuid, sequence, capacity, mounts, epoch),
            *(area, log_starts, log_bytes, map_bytes, map_units),
        )


@dataclass(frozen=True)
class Record:
    """Of the log: its first LBA, how many it takes, how many bytes of them count, and where it ends in its
    area."""

    lba: int
    lbas: int
    length: int
    end: int


class Metadata:
    """Reads, with a hand on the device, what a mount would read."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, disk: Disk, geometry: Geometry) -> None:
        self._connection, self._disk = connection, disk
        self.lba_size = geometry.lba_size

    def _read(self, start: int, length: int) -> bytes:
        return self._disk.read(self._connection, start // self.lba_size, length // self.lba_size)

    def _lbas_of(self, unit: int) -> range:
        lbas = ALLOCATION_UNIT_BYTES // self.lba_size
        return range(unit * lbas, (unit + 1) * lbas)

    def _superblock(self, lbas: range) -> Superblock | None:
        try:
            block = self._disk.read(self._connection, lbas.start, len(lbas))
        except duckdb.IOException:
            block = bytes(ALLOCATION_UNIT_BYTES)
        return Superblock.parse(block)

    def is_superblock(self, lbas: range) -> bool:
        return self._superblock(lbas) is not None

    def end_lbas(self) -> range:
        """Where superblock 1 is looked for when superblock 0 is damaged."""
        return self._lbas_of(self._disk.capacity(self._connection) // ALLOCATION_UNIT_BYTES - 1)

    def at_end(self) -> Superblock | None:
        return self._superblock(self.end_lbas())

    def copy_lbas(self, number: int) -> range:
        """Of superblock 0 or 1. Where the latter is, the former says; otherwise it is at the end, or the copy
        there says where."""
        if number == 0:
            return self._lbas_of(0)
        known = self._superblock(self._lbas_of(0)) or self.at_end()
        return self._lbas_of(known.capacity_units - 1) if known else self.end_lbas()

    def superblocks(self) -> list[Superblock | None]:
        return [self._superblock(self.copy_lbas(number)) for number in (0, 1)]

    def newest(self) -> Superblock:
        return max((copy for copy in self.superblocks() if copy), key=lambda copy: copy.sequence)

    def records(self) -> list[Record]:
        """The whole records since the checkpoint, in order: of one area, and of the other where the log goes
        on."""
        return [record for part in self.parts() for record in part]

    def parts(self) -> list[list[Record]]:
        superblock = self.newest()
        first = self._part(superblock, superblock.log_area, superblock.epoch)
        other = 1 - superblock.log_area
        header = RECORD.unpack_from(self._read(superblock.log_starts[other], self.lba_size))
        ends = {0, *(record.end for record in first)}  # the last record may be one whose data is torn
        goes_on = header[0] == b"RDLG" and header[5] == superblock.epoch and header[6] in ends
        second = self._part(superblock, other, header[2]) if goes_on else []
        return [first, second] if second else [first]

    def _part(self, superblock: Superblock, area: int, epoch: int) -> list[Record]:
        start = superblock.log_starts[area]
        log = self._read(start, superblock.log_bytes)
        found, at = [], 0
        while at + RECORD.size <= len(log):
            magic, crc, found_epoch, sequence, payload, _, _ = RECORD.unpack_from(log, at)
            end = at + RECORD.size + payload
            expected = (b"RDLG", epoch, len(found) + 1)
            if (magic, found_epoch, sequence) != expected or crc != crc32c(
                superblock.uuid, magic, bytes(4), log[at + CRC_OFFSET : end]
            ):
                break
            lbas = -(-(end - at) // self.lba_size)
            found.append(Record((start + at) // self.lba_size, lbas, end - at, at + lbas * self.lba_size))
            at += lbas * self.lba_size
        return found

    def pages(self) -> list[range]:
        """The LBAs of each page of the metadata trees. (Those of the map of pages hold more than the map.)"""
        superblock = self.newest()
        page_bytes = PAGE_UNITS * ALLOCATION_UNIT_BYTES
        content = b"".join(
            self._read(unit * ALLOCATION_UNIT_BYTES, page_bytes) for unit in superblock.map_units
        )
        used = {
            start + PAGE_UNITS * page
            for start, bits in ZONE.iter_unpack(content[: superblock.map_bytes])
            for page in range(ZONE_PAGES)
            if bits >> page & 1
        }
        firsts = [
            unit * ALLOCATION_UNIT_BYTES // self.lba_size for unit in sorted(used - {*superblock.map_units})
        ]
        return [range(first, first + page_bytes // self.lba_size) for first in firsts]
