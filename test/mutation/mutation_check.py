"""Breaks one rule of the volume at a time and expects the crash tests to notice: `make test-mutation`.

Each mutation is a small edit of a copy of the source in build/mutation. The copy is built, and power cuts are
made until one of them fails: of workloads of DuckDB (test/crash) or, for what only a rare combination of two
cuts or of two damages shows, of small workloads without it (test/unit/volume/power_cut_test.cpp,
superblock_states_test.cpp and others). Exits with 0 when every mutation was found in time.

    mutation_check.py                 all of them
    mutation_check.py move-order      some of them; an unknown name lists all
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
WORK = ROOT / "build" / "mutation"
SOURCE = WORK / "source"
SITE = WORK / "site"
SECONDS = 60
CUTS = 20000


@dataclass(frozen=True)
class Mutation:
    """Replaces one text that occurs once in a file below src/volume. Says what is switched off."""

    name: str
    what: str
    file: str
    old: str
    new: str
    options: tuple[str, ...] = ()  #: of test/crash/run.py: the workloads that can show it
    without_duckdb: bool = False
    #: That can show it, of those without DuckDB.
    unit_tests: str = "PowerCutTest.*:SuperblockStatesTest.*:UnreadableTest.*"
    #: Within which it must be found.
    seconds: int = SECONDS


MUTATIONS = (
    Mutation(
        "data-flush",
        "the flush of the data before the record that publishes it",
        "journal/journal.cpp",
        "if (record.cached == JournalRecord::Cached::NOT_CHECKSUMMED) {",
        "if (false) {",
    ),
    Mutation(
        "commit-flush",
        "FUA or the flush that makes a commit durable",
        "journal/journal.cpp",
        "    io_.Execute({Opcode::WRITE, fua, std::move(segments)});\n    if (!fua) {",
        "    io_.Execute({Opcode::WRITE, false, std::move(segments)});\n    if (false) {",
    ),
    Mutation(
        "found-flush",
        "the flush of what a killed process left, before the next mount writes",
        "journal/journal.cpp",
        "        Flush();\n        TreeSuperblock next",
        "        TreeSuperblock next",
        without_duckdb=True,
        unit_tests="JournalCutTest.*",
    ),
    Mutation(
        "record-checksum",
        "the checksum of the log's records",
        "format/record.cpp",
        "return header.crc == RecordCrc(uuid, header, data + sizeof(header));",
        "return true;",
        without_duckdb=True,
    ),
    Mutation(
        "data-checksum",
        "the checksum of the data that a record vouches for",
        "format/salvage_read.cpp",
        "if (readable && Crc32c(0, buffer.Data(), range.length) != range.crc) {",
        "if (false) {",
    ),
    Mutation(
        "second-superblock",
        "the second superblock",
        "journal/journal.cpp",
        "    WriteSuperblockDurably(next, spare_superblock_);\n"
        "    WriteSuperblockDurably(next, 1 - spare_superblock_);",
        "    WriteSuperblockDurably(next, 0);",
    ),
    Mutation(
        "superblock-order",
        "the order of the superblocks",
        "journal/journal.cpp",
        "spare_superblock_(1 - image.superblock_copy)",
        "spare_superblock_(image.superblock_copy)",
        without_duckdb=True,
    ),
    Mutation(
        "second-superblock-durable",
        "making the second superblock durable before anything is given up",
        "journal/journal.cpp",
        "    WriteSuperblockDurably(next, 1 - spare_superblock_);\n    superblock_ = next;",
        "    const uint64_t last = next.capacity_units - 1;\n"
        "    io_.Write((spare_superblock_ == 1 ? 0 : last) * ALLOCATION_UNIT_BYTES, &next,\n"
        "              ALLOCATION_UNIT_BYTES);\n    superblock_ = next;",
        without_duckdb=True,
        unit_tests="SuperblockStatesTest.*",
    ),
    Mutation(
        "copy-at-end",
        "the superblock at the end of a target that is larger than its volume",
        "journal/journal.cpp",
        "    WriteCopyAtEnd(next);\n",
        "",
        without_duckdb=True,
    ),
    Mutation(
        "growth-order",
        "the superblock at the new end before the one that tells of it",
        "journal/journal.cpp",
        "    WriteSuperblockDurably(next, 1);\n    WriteSuperblockDurably(next, 0);",
        "    WriteSuperblockDurably(next, 0);\n    WriteSuperblockDurably(next, 1);",
        without_duckdb=True,
        unit_tests="GrowTest.*",
    ),
    Mutation(
        "skipped-mount",
        "leaving out the number of a mount that a damaged superblock may have counted",
        "journal/load_metadata.cpp",
        "image.copies[1].valid ? 1 : 2)",
        "image.copies[1].valid ? 1 : 1)",
        without_duckdb=True,
    ),
    Mutation(
        "later-epoch",
        "the search for records of a later epoch beside a damaged superblock",
        "journal/read_journal.cpp",
        "both ? log.EpochAt(0) : log.LaterEpoch(epoch_, LogBytes(sb_))",
        "both ? log.EpochAt(0) : epoch_",
        without_duckdb=True,
    ),
    Mutation(
        "repair-of-damage",
        "leaving alone what nobody can repair",
        "check.cpp",
        "    if (!image.damage.empty()) {\n        return done;",
        "    if (false) {\n        return done;",
        without_duckdb=True,
        unit_tests="*Repair*:*Damage*",
    ),
    Mutation(
        "unreadable-data",
        "the verdict on a last record whose data cannot be read",
        "journal/read_journal.cpp",
        "if (state == DataState::UNREADABLE && image_.damage.empty()) {",
        "if (false) {",
    ),
    Mutation(
        "unreadable-record",
        "the verdict on a log that cannot be read at its end",
        "journal/read_journal.cpp",
        "        if (!error.empty()) {\n            image_.damage",
        "        if (false) {\n            image_.damage",
    ),
    Mutation(
        "page-flush",
        "the flush of metadata pages before a superblock names them",
        "journal/journal.cpp",
        "still in the device's cache.\n    Flush();",
        "still in the device's cache.",
        without_duckdb=True,
        unit_tests="JournalCutTest.*",
    ),
    Mutation(
        "checkpoint-first",
        "a checkpoint before the log comes back to an area that is in use",
        "journal/journal.cpp",
        "    if (found_parts_ > 1) {",
        "    if (false) {",
        without_duckdb=True,
        unit_tests="JournalCutTest.*",
    ),
    Mutation(
        "torn-record-elsewhere",
        "leaving out a record that was found torn by whoever went on in the other area",
        "journal/read_journal.cpp",
        "if (has_last_ && header.before.bytes == position_ - last_bytes_) {",
        "if (false) {",
        without_duckdb=True,
        unit_tests="JournalCutTest.*",
    ),
    Mutation(
        "record-elsewhere",
        "the search for records behind a damaged one that began the other area",
        "journal/read_journal.cpp",
        "        if (later != 0) {",
        "        if (false) {",
        without_duckdb=True,
        unit_tests="DamagedRecordTest.*",
    ),
    Mutation(
        "removed-behind-damage",
        "what records behind a damaged one tell of removed files",
        "damage/overwritten.cpp",
        "        if (item.type == ItemType::REMOVE) {",
        "        if (false) {",
        without_duckdb=True,
        unit_tests="DamagedRecordTest.*",
    ),
    Mutation(
        "damaged-page",
        "the verdict on a volume with a damaged metadata page",
        "damage/load_volume.cpp",
        "if (image.damage.empty() && !volume.metadata.problems.empty()) {",
        "if (false) {",
        without_duckdb=True,
        unit_tests="DamagedPagesTest.*",
    ),
    Mutation(
        "move-order",
        "replacing the target of a move in one step",
        "mount/volume_state.cpp",
        "            item.replaced_id = replaced && published ? replaced->Id() : 0;",
        "            if (replaced && published) {\n"
        "                log.Commit(log.Queue({Item(ItemType::REMOVE, replaced->Id())}));\n"
        "            }",
    ),
    Mutation(
        "delayed-reuse",
        "the rest of freed space until the record that frees it is durable",
        "log/metadata_log.cpp",
        "    pending_.freed.insert(pending_.freed.end(), freed.begin(), freed.end());",
        "    free_extents_(freed);",
        ("--threaded",),
        seconds=600,  # it needs other threads that write into what was freed: five minutes on two processors
    ),
    Mutation(
        "replace-elsewhere",
        "writing elsewhere what replaces durable blocks",
        "file/file_write.cpp",
        "const uint64_t end = IsTemp() ? 0 :",
        "const uint64_t end = IsTemp() || offset >= HEAD_BYTES ? 0 :",
        ("--wal-autocheckpoint", "20KB"),
    ),
    Mutation(
        "create-first",
        "queueing the creation of a file before anything else about it",
        "file/file_publish.cpp",
        "    if (AlignDown(tail_.Size(), context_.lba_size) > CHECKSUMMED_BYTES_MAX) {\n"
        "        DrainTail(); // too much to vouch for: flushed before the record\n"
        "    }\n",
        "    const bool known = published_.exchange(true);\n"
        "    if (AlignDown(tail_.Size(), context_.lba_size) > CHECKSUMMED_BYTES_MAX) {\n"
        "        DrainTail();\n"
        "    }\n"
        "    published_ = known;\n",
        without_duckdb=True,
        unit_tests="VolumeRaceTest.*:VolumeThreadsTest.*",
    ),
    Mutation(
        "compared-tail",
        "comparing the bytes behind the last whole LBA with those in the log",
        "file/file_publish.cpp",
        "if (size == durable_size_ && tail == durable_tail_) {",
        "if (size == durable_size_) {",
        without_duckdb=True,
    ),
    Mutation(
        "temporary-by-opening",
        "taking a file for temporary only when it was opened so",
        "volume.cpp",
        "mode.kind == FileKind::TEMP ? FileKind::TEMP",
        'name.rfind("duckdb_temp_", 0) == 0 ? FileKind::TEMP',
        without_duckdb=True,
        unit_tests="LbaSizes/VolumeTest.*",
    ),
    Mutation(
        "room-for-metadata",
        "taking room for metadata before it is needed",
        "log/metadata_room.cpp",
        "if (bytes == 0 || taken_ + bytes <= Limit(use, zones_)) {",
        "if (true) {",
        without_duckdb=True,
        unit_tests="LbaSizes/LimitsTest.*",
    ),
    Mutation(
        "room-for-commits",
        "leaving to commits the room that logs to be made may not take",
        "log/file_metadata.cpp",
        "    const bool taken = room_.TryTake(more, MetadataUse::CREATE);",
        "    const bool taken = room_.TryTake(more, MetadataUse::LOG);",
        without_duckdb=True,
        unit_tests="LbaSizes/SmallestVolumeTest.*",
    ),
    Mutation(
        "headers-kept",
        "deallocating no headers",
        "file/file_publish.cpp",
        "IsTemp() ? 0 : HEAD_BYTES",
        "uint64_t{0}",
        without_duckdb=True,
    ),
    Mutation(
        "removed-in-place",
        "overwriting in place what was removed",
        "file/file_write.cpp",
        "    FinishRemoval();\n",
        "",
        without_duckdb=True,
        unit_tests="RemovedFileTest.*",
    ),
    Mutation(
        "removal-first",
        "the removal's record before what was removed is overwritten in place",
        "file/file_write.cpp",
        "    context_.log.Commit(ticket);\n    durable_size_ = 0;",
        "    durable_size_ = 0;",
        without_duckdb=True,
        unit_tests="RemovedFileTest.*",
    ),
    Mutation(
        "memory-out",
        "going on after a commit for which there was no memory",
        "log/metadata_log.cpp",
        "        return Outcome::OUT_OF_MEMORY;",
        '        failure = "out of memory";\n        return Outcome::FAILED;',
        without_duckdb=True,
        unit_tests="LimitStepsTest.*",
    ),
    Mutation(
        "commit-first",
        "finishing a commit for which there was no memory before its data changes",
        "file/file_write.cpp",
        "    FinishCommit();\n",
        "",
        without_duckdb=True,
        unit_tests="LimitStepsTest.*",
    ),
    Mutation(
        "taking-back",
        "taking back what files reserved when space is scarce",
        "file/file_space.cpp",
        "    context_.space.ReclaimReservations();\n",
        "",
        without_duckdb=True,
        unit_tests="LbaSizes/LimitsTest.*",
    ),
    Mutation(
        "end-of-its-own",
        "moving the unit in which a file goes on where others have it, too",
        "file/file_write.cpp",
        "        OwnEnd(growth);\n",
        "",
        without_duckdb=True,
        unit_tests="VolumeModelTest.*:PowerCutTest.*",
    ),
    Mutation(
        "removed-but-shared",
        "leaving alone what a removed file has in common with others",
        "file/file_write.cpp",
        "durable_size_ == 0 || sharing_) {",
        "durable_size_ == 0) {",
        without_duckdb=True,
        unit_tests="SnapshotTest.*",
    ),
    Mutation(
        "deallocate-shared",
        "deallocating only what nobody else has",
        "file/file_sharing.cpp",
        "context_.space.NotShared(extent)) {\n        ranges",
        "std::vector<Extent>{extent}) {\n        ranges",
        without_duckdb=True,
        unit_tests="SnapshotTest.*",
    ),
    Mutation(
        "children-of-a-copy",
        "counting what the copy of a shared page refers to",
        "catalog/catalog_sharing.cpp",
        "    if (page.Level() > 0) {\n        for",
        "    if (page.Level() > 1) {\n        for",
        without_duckdb=True,
        unit_tests="CatalogTreeTest.*:SnapshotTest.*",
    ),
    Mutation(
        "short-list",
        "giving up the page of a list of extents that has become short",
        "catalog/file_lists.cpp",
        "        MoveExtentsToEntry();\n        return;",
        "        return;",
        without_duckdb=True,
        unit_tests="CatalogTreeTest.*",
    ),
    Mutation(
        "feature-bit",
        "telling older code of shared space before there is any",
        "journal/journal.cpp",
        "    RequireFeatures(record.items);\n",
        "",
        without_duckdb=True,
        unit_tests="SnapshotTest.*",
    ),
)


def run(command: list[str], **options) -> None:
    result = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    if result.returncode != 0:
        raise SystemExit(f"mutation_check.py: {' '.join(command)} failed:\n{result.stdout}{result.stderr}")


def copy_source() -> None:
    names = ("src", "cmake", "scripts", "ceph", "test")
    folders = [path for name in names for path in (ROOT / name).rglob("*")]
    for path in [*folders, ROOT / "CMakeLists.txt"]:
        copy = SOURCE / path.relative_to(ROOT)
        if path.is_file() and (not copy.exists() or copy.read_bytes() != path.read_bytes()):
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)


def compile_source(folder: Path, target: str, *definitions: str) -> None:
    launcher = ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
    release = ["-DCMAKE_BUILD_TYPE=Release", *launcher]
    run(["cmake", "-S", str(SOURCE), "-B", str(folder), "-G", "Ninja", *release, *definitions])
    run(["cmake", "--build", str(folder), "--target", target])


def build_package() -> None:
    duckdb = ROOT / "build" / "duckdb-2.0.0" / "external" / "duckdb"
    compile_source(WORK / "build", "rawduck_loader", f"-DRAWDUCK_DUCKDB_SOURCE={duckdb}")
    package = SITE / "rawduck"
    shutil.copytree(ROOT / "python" / "rawduck", package, dirs_exist_ok=True)
    for file in (WORK / "build" / "extension").glob("*rawduck*"):
        shutil.copy(file, package)


def crash_command(mutation: Mutation) -> list[str]:
    """Builds the mutated source, and says what makes power cuts of it."""
    if mutation.without_duckdb:
        definitions = ("-DRAWDUCK_EXTENSION=OFF", "-DRAWDUCK_TESTS=ON")
        compile_source(WORK / "core", "rawduck_unit_tests", *definitions)
        return [str(WORK / "core" / "rawduck_unit_tests"), f"--gtest_filter={mutation.unit_tests}"]
    build_package()
    command = [sys.executable, "test/crash/run.py", "--seed", mutation.name, "--cuts", str(CUTS)]
    return [*command, "--stop-at-failure", *mutation.options]


def crash_test(command: list[str], seconds: int) -> tuple[float, str]:
    """After how many seconds, and how, a crash test failed; an empty text when none did in time."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    environment = {**os.environ, "PYTHONPATH": str(SITE)}
    process = subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True, **pipes)
    begin = time.monotonic()
    timer = threading.Timer(seconds, os.killpg, (process.pid, signal.SIGKILL))
    timer.start()
    try:
        failures = (line.strip() for line in process.stdout if "FAILED" in line or "invariant broken" in line)
        how = next(failures, "")
        return time.monotonic() - begin, how
    finally:
        timer.cancel()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def check(mutation: Mutation) -> bool:
    copy_source()
    path = SOURCE / "src" / "volume" / mutation.file
    text = path.read_text()
    if text.count(mutation.old) != 1:
        print(f"FAIL {mutation.name}: its text occurs {text.count(mutation.old)} times in {mutation.file}")
        return False
    path.write_text(text.replace(mutation.old, mutation.new))
    seconds, how = crash_test(crash_command(mutation), mutation.seconds)
    word = "found" if how else "MISSED"
    print(f"{word} {mutation.name}, {mutation.what}: {seconds:.0f} s: {how[:200]}", flush=True)
    return bool(how)


def main() -> int:
    known = {mutation.name: mutation for mutation in MUTATIONS}
    names = sys.argv[1:] or list(known)
    if unknown := [name for name in names if name not in known]:
        print(f"mutation_check.py: no mutation {unknown[0]}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    results = [check(known[name]) for name in names]
    print(f"{sum(results)} of {len(results)} mutations found")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
