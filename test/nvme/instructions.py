"""`instructions.py TSV` prints what test/nvme/instructions_in_guest.sh has measured: engines by cases."""

from __future__ import annotations

import sys
from pathlib import Path

COUNTS = ("instructions", "system calls", "interrupts")


def main() -> int:
    cells: dict[str, dict[str, list[str]]] = {}
    for line in Path(sys.argv[1]).read_text().splitlines():
        engine, case, instructions, *events = line.split("\t")
        cells.setdefault(engine, {})[case] = [f"{int(instructions):,}", *events]
    cases = list(dict.fromkeys(case for row in cells.values() for case in row))
    for number, what in enumerate(COUNTS):
        print(f"| {what} for each command | " + " | ".join(cases) + " |")
        print("|---" * (len(cases) + 1) + "|")
        for engine, row in cells.items():
            print(
                f"| `{engine}` | "
                + " | ".join(row[case][number] if case in row else "" for case in cases)
                + " |"
            )
        print()
    return 0 if cells else 1


if __name__ == "__main__":
    sys.exit(main())
