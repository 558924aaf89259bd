"""Which features of queries were pushed, and why others were not."""

from __future__ import annotations

import re
from collections import Counter

import duckdb

COLUMNS = ("comparisons", "pushed", "objects answered", "objects read instead")


class Coverage:
    """Attributes the rows of rados_scans() to the features of the query that ran last."""

    def __init__(self, con: duckdb.DuckDBPyConnection) -> None:
        self._con = con
        self._last = 0
        self.features: dict[str, list[int]] = {}
        self.reasons: Counter[str] = Counter()

    def _scans(self) -> list[tuple]:
        columns = "scan, offloaded, answered, fell_back, fallback_reasons, why"
        query = f"SELECT {columns} FROM rados_scans() WHERE scan > ?"
        rows = self._con.execute(query, [self._last]).fetchall()
        self._last = max((row[0] for row in rows), default=self._last)
        return rows

    def skip(self) -> None:
        """What ran so far counts for nothing."""
        self._scans()

    def count(self, features: set[str], mode: str) -> bool:
        """Returns whether OSDs answered for at least one object."""
        scans = self._scans()
        answered = sum(row[2] for row in scans if row[1])
        fell_back = sum(row[3] for row in scans if row[1])
        for feature in (*features, f"mode {mode}"):
            row = self.features.setdefault(feature, [0] * len(COLUMNS))
            for place, more in enumerate((1, answered > 0, answered, fell_back)):
                row[place] += int(more)
        for _, offloaded, _, _, fallback, why in scans:
            text = fallback if offloaded else why
            if text:
                self.reasons[("fallback: " if offloaded else "read: ") + general(text)] += 1
        return answered > 0

    def clear(self) -> None:
        self.features.clear()
        self.reasons.clear()

    def as_dict(self) -> dict:
        return {"features": self.features, "reasons": self.reasons}


def general(text: str) -> str:
    """A reason without what differs from query to query."""
    text = re.sub(r"'[^']*'|\"[^\"]*\"|rados://\S+", "…", text.split("\n")[0])
    return re.sub(r"\d[\d.e+-]*", "N", text)[:90]


class Sum:
    """The coverage of all batches."""

    def __init__(self) -> None:
        self.features: dict[str, list[int]] = {}
        self.reasons: Counter[str] = Counter()

    def add(self, other: dict) -> None:
        for feature, row in other["features"].items():
            mine = self.features.setdefault(feature, [0] * len(COLUMNS))
            self.features[feature] = [one + two for one, two in zip(mine, row, strict=True)]
        self.reasons.update(other["reasons"])

    def never_pushed(self, features: tuple[str, ...]) -> list[str]:
        return [feature for feature in features if not self.features.get(feature, (0, 0))[1]]

    def table(self, reasons: int = 12) -> str:
        lines = [f"{'feature':24}" + "".join(f"{name:>22}" for name in COLUMNS)]
        for feature in sorted(self.features):
            lines.append(f"{feature:24}" + "".join(f"{value:22}" for value in self.features[feature]))
        lines += [f"{count:8} x {reason}" for reason, count in self.reasons.most_common(reasons)]
        return "\n".join(lines)
