"""The databases that experiments read: made once as stock DuckDB's file, copied onto the volume as it is."""

from __future__ import annotations

import fcntl
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import duckdb

import rawduck
from rawduck import consent, disks, paths, render, tpch, volumes
from rawduck.bench.core.options import Options
from rawduck.measuring import cold

#: Of volumes in files of the benchmark's own. What lies there without it is somebody else's.
_LABEL = "rawduck bench"


@dataclass(frozen=True)
class Database:
    """TPC-H tables at a scale factor, in stock's file and on the volume, byte for byte the same."""

    tables: tuple[str, ...]
    scale: float
    options: Options

    @property
    def name(self) -> str:
        kind = "tpch" if self.tables == tpch.TABLES else "-".join(self.tables)
        return f"{kind}-sf{self.scale:g}"

    @property
    def stock_path(self) -> Path:
        return self.options.stock_dir / f"{self.name}.duckdb"

    @property
    def volume_name(self) -> str:
        return f"bench-{self.name}.duckdb"

    @property
    def volume_path(self) -> str:
        return paths.volume_path(self.options.target, self.volume_name)

    @property
    def parquet(self) -> Path:
        return self.options.work_dir / self.name

    def generate(self) -> None:
        """The Parquet files."""
        with render.error_console.status(f"Generating {self.name} …"):
            tpch.generate(self.parquet, self.scale, self.tables)

    def prepare_stock(self) -> None:
        """Stock's file; one that was made before is used again."""
        if self.stock_path.exists():
            if _made_for(self.stock_path) == self._mark:
                return
            self._remove_foreign()
        self.generate()
        # Under its name only when it is complete: an interrupted load is made again.
        beside = self.stock_path.with_suffix(".loading")
        beside.unlink(missing_ok=True)
        with (
            render.error_console.status(f"Loading {self.stock_path} …"),
            duckdb.connect(str(beside)) as connection,
        ):
            connection.execute("SET enable_progress_bar = false")
            for table in self.tables:
                connection.execute(tpch.load_statement(self.parquet, table))
            connection.execute("CREATE TABLE rawduck_bench AS SELECT ? AS made_for", [self._mark])
            connection.execute("CHECKPOINT")
        beside.rename(self.stock_path)

    def _remove_foreign(self) -> None:
        """What somebody else has made. Nobody is asked: by now the benchmarks may have run for hours."""
        if not (self.options.force and self.options.yes):
            raise rawduck.RawduckError(
                f"{self.stock_path} exists and was not made by this benchmark; name another folder with "
                "--stock-dir, or replace it with --force --yes"
            )
        with self.stock_path.open("r+b") as file:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise rawduck.RawduckError(f"{self.stock_path}: in use ({error}); close it there") from error
            render.print_note(f"Replaced: {self.stock_path}, which this benchmark did not make")
            self.stock_path.unlink()
            self.stock_path.with_name(self.stock_path.name + ".wal").unlink(missing_ok=True)

    def prepare_volume(self, volume: Volume) -> None:
        """Both files. The copy is made anew, so that what is measured is what this version writes."""
        self.prepare_stock()
        volume.copy(self.stock_path, self.volume_path)

    def make_cold(self) -> None:
        """Nothing of stock's file stays in memory. A volume is read directly and never cached."""
        make_cold(self.stock_path)

    @property
    def _mark(self) -> str:
        return f"{self.name} {duckdb.__version__}"


def make_cold(path: Path) -> None:
    """Nothing of a file stays in the page cache. Raises RawduckError where the kernel keeps some."""
    left = cold.evict(path)
    if left:
        raise rawduck.RawduckError(
            f"the kernel keeps {render.size(left)} of {path} in memory, so it cannot be measured cold; run "
            "as root, or see that no other process uses the file"
        )


def _made_for(stock: Path) -> str | None:
    """What an earlier run made a file for; None for anything else."""
    try:
        with duckdb.connect(str(stock), read_only=True) as connection:
            return connection.execute("SELECT made_for FROM rawduck_bench").fetchone()[0]
    except duckdb.Error:
        return None


class Volume:
    """A volume that is measured. What experiments put on it goes away at the end."""

    def __init__(self, target: str, options: Options, gib: int) -> None:
        self.target = target
        #: Of a regular file that is formatted here; all of it is reserved on the disk.
        self._gib = gib
        self._options = options
        self._own = options.is_own(target)
        self._ready = False
        self._agreed: list[str] | None = None
        self._made: set[str] = set()

    def path(self, name: str) -> str:
        return paths.volume_path(self.target, name)

    def ask(self) -> None:
        """What --format --force destroys is asked about at the beginning, and not after hours. Until it is
        formatted, nothing else may have come there. Of the benchmark's own file only whether it is that."""
        options = self._options
        if self._own:
            with rawduck.connect() as connection:
                consent.to_replace_own(connection, self.target, _LABEL)
        if options.format and options.force and not self._own:
            with rawduck.connect() as connection:
                self._agreed = consent.to_format(connection, [self.target], options.yes)

    def prepare(self) -> None:
        """Formats the benchmark's own file or what --format names; otherwise there must be a volume."""
        if self._ready:
            return
        with rawduck.connect() as connection:
            if self._own or self._options.format:
                settings: dict = {"force": self._options.force or self._own}
                if self._own:
                    settings["label"] = _LABEL
                    settings["agreed"] = consent.to_replace_own(connection, self.target, _LABEL)
                if self._agreed is not None:
                    settings["agreed"] = self._agreed
                if not disks.is_device(self.target):
                    settings["size"] = f"{self._gib}G"
                volumes.format_volume(connection, self.target, **settings)
            self._ready = True  # before that it may be somebody else's, which stays
            volumes.volume_info(connection, self.target)

    def copy(self, source: Path, destination: str) -> None:
        self.prepare()
        with rawduck.connect() as connection, render.error_console.status(f"Copying to {destination} …"):
            copy = "SELECT * FROM nvme_copy(?, ?, overwrite := true)"
            connection.execute(copy, [str(source), destination]).fetchall()
        self.will_make(destination)

    def will_make(self, path: str) -> None:
        """Says that a file of this name may come to be."""
        self._made.add(path)

    def remove(self, path: str) -> None:
        """Removes a database and its log, if they are there."""
        with rawduck.connect() as connection:
            there = {row["name"] for row in volumes.volume_files(connection, self.target)}
            for suffix in ("", ".wal"):
                if PurePosixPath(path).name + suffix in there:
                    connection.execute("SELECT * FROM nvme_remove(?)", [path + suffix]).fetchall()
        self._made.discard(path)

    def file_ranges(self, name: str) -> list[tuple[int, int]]:
        """Where a file lies on the target: (offset, length) in bytes."""
        with rawduck.connect() as connection:
            info = volumes.volume_info(connection, self.target)
        return volumes.byte_ranges(self._file(name), info["lba_size"])

    def file_size(self, name: str) -> int:
        return self._file(name)["size"]

    def _file(self, name: str) -> render.Row:
        with rawduck.connect() as connection:
            files = volumes.volume_files(connection, self.target)
        return next(file for file in files if file["name"] == name)

    def clean_up(self) -> None:
        if not self._ready or self._options.keep:
            return
        if self._own:
            Path(self.target).unlink(missing_ok=True)
            return
        for path in sorted(self._made):
            self.remove(path)
