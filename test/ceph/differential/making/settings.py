"""Settings of DuckDB that change what a query means or how it is planned."""

from __future__ import annotations

import random

#: Values besides the default, in the order of duckdb_settings().
SETTINGS: dict[str, tuple[str, ...]] = {
    "Calendar": ("'japanese'",),
    "TimeZone": ("'America/New_York'", "'Asia/Kolkata'", "'Pacific/Apia'"),
    "binary_as_string": ("true",),
    "default_collation": ("'nocase'", "'noaccent'", "'de'"),
    "default_null_order": ("'nulls_first'", "'nulls_first_on_asc_last_on_desc'"),
    "default_order": ("'desc'",),
    "disable_timestamptz_casts": ("true",),
    "disabled_optimizers": (
        "'compressed_materialization'",
        "'filter_pushdown'",
        "'statistics_propagation'",
        "'join_filter_pushdown,late_materialization'",
        "'expression_rewriter'",
    ),
    "enable_external_file_cache": ("false",),
    "error_on_division_by_zero": ("false",),
    "ieee_floating_point_ops": ("false",),
    "integer_division": ("true",),
    "parquet_metadata_cache": ("true",),
    "perfect_ht_threshold": ("0",),
    "regex_match_operator_semantics": ("'full'",),
    "rados_offload_in_flight": ("1",),
    "rados_offload_lz4": ("true",),
}

#: Under a collation, which of several equal strings represents a group is not determined.
COLLATION = "default_collation"


def random_settings(rng: random.Random) -> dict[str, str]:
    """Few at a time, so that a difference tells which one matters."""
    names = rng.sample(list(SETTINGS), rng.choice((0, 0, 1, 1, 2, 4)))
    return {name: rng.choice(SETTINGS[name]) for name in names}


def change(old: dict[str, str], new: dict[str, str]) -> list[str]:
    """Statements that replace the settings `old` by `new`."""
    return [f"RESET {name}" for name in old if name not in new] + set_all(new)


def set_all(settings: dict[str, str]) -> list[str]:
    return [f"SET {name} = {value}" for name, value in settings.items()]
