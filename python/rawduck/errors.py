"""The error of this package; everything else is DuckDB's own."""


class RawduckError(RuntimeError):
    """Something that a person can put right; the message says how."""
