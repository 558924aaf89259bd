"""The ways to run DuckDB on a database: on a volume, through direct://, and every way of stock DuckDB."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rawduck.bench.core.case import Kind, Mode
from rawduck.measuring import warm_memory

VOLUME, VOLUME_ALLOCATOR, DIRECT = "volume", "volume_allocator", "direct"
STOCK = "stock"

#: Where a mode's database lies.
ON_VOLUME, ON_FILE_DIRECTLY, ON_FILE = "volume", "direct", "file"

_READ_ONLY = "READ_ONLY"


@dataclass(frozen=True)
class DuckMode(Mode):
    """A way to open DuckDB; `settings`, which is hashed, is made of the other fields."""

    place: str = ON_FILE
    config: tuple[tuple[str, Any], ...] = ()
    #: Settings of the extension, by name.
    extension_settings: tuple[tuple[str, Any], ...] = ()
    attach_options: str = _READ_ONLY

    @property
    def extension(self) -> bool:
        return self.place != ON_FILE


def make(
    name: str,
    title: str,
    place: str = ON_FILE,
    *,
    config: dict[str, Any] | None = None,
    extension_settings: dict[str, Any] | None = None,
    attach_options: str = _READ_ONLY,
    optional: bool = False,
) -> DuckMode:
    kind = Kind.STOCK if place == ON_FILE else Kind.OURS
    config, extension_settings = config or {}, extension_settings or {}
    settings = {
        "place": place,
        "config": config,
        "extension_settings": extension_settings,
        "attach": attach_options,
    }
    fixed = {
        "config": tuple(config.items()),
        "extension_settings": tuple(extension_settings.items()),
        "attach_options": attach_options,
    }
    return DuckMode(name, title, kind, settings, optional, place=place, **fixed)


def with_config(modes: list[DuckMode], **config: Any) -> list[DuckMode]:
    """The same modes with more of DuckDB's configuration, such as memory_limit; None is no setting."""
    more = {name: value for name, value in config.items() if value is not None}
    return [
        make(
            mode.name,
            mode.title,
            mode.place,
            config=dict(mode.config) | more,
            extension_settings=dict(mode.extension_settings),
            attach_options=mode.attach_options,
            optional=mode.optional,
        )
        for mode in modes
    ]


def allocator_memory(memory_limit: str | None = None) -> str:
    """block_allocator_memory: the memory limit, or a quarter of what this process may have, or 256 MiB where
    that is more, but at most half: with more than its memory limit, DuckDB ends the process."""
    if memory_limit:
        return memory_limit
    half_mib = warm_memory.most_mib()
    return f"{min(half_mib, max(256, half_mib // 2))}MiB"


def ours(memory_limit: str | None = None) -> list[DuckMode]:
    allocator = {"block_allocator_memory": allocator_memory(memory_limit)}
    return [
        make(VOLUME, "rawduck, volume", ON_VOLUME),
        make(VOLUME_ALLOCATOR, "rawduck, volume + block allocator", ON_VOLUME, config=allocator),
        make(DIRECT, "rawduck, direct://", ON_FILE_DIRECTLY),
    ]


def stock(memory_limit: str | None = None) -> list[DuckMode]:
    """Every way that "best stock" is the best of."""
    prefetch = {"storage_block_prefetch": "ALWAYS_PREFETCH"}
    allocator = {"block_allocator_memory": allocator_memory(memory_limit)}
    direct_io = f"{_READ_ONLY}, IO_MODE 'DIRECT_IO'"
    return [
        make(STOCK, "stock, default"),
        make("stock_prefetch", "stock, ALWAYS_PREFETCH", config=prefetch),
        make("stock_allocator", "stock, block allocator", config=allocator),
        make("stock_tuned", "stock, ALWAYS_PREFETCH + block allocator", config=prefetch | allocator),
        make("stock_mmap", "stock, MMAP", attach_options=f"{_READ_ONLY}, IO_MODE 'MMAP'"),
        # Fails where the disk wants its buffers better aligned than DuckDB's are.
        make("stock_direct_io", "stock, DIRECT_IO", attach_options=direct_io, optional=True),
    ]
