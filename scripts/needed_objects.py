"""The objects of DuckDB of which something is left in the extension: needed_objects.py MAP OBJECT...

MAP is what the linker says with -Map: first what it discards, then what it keeps. Prints one object a line.
"""

import os
import re
import sys

KEPT = "\nLinker script and memory map\n"
#: A section with an address and a size, of a member of the archive. Long names have a line of their own.
MEMBER = re.compile(r"0x[0-9a-f]+ +0x(?!0\s)[0-9a-f]+ \S*libduckdb_static\.a\(([^)]+)\)")


def main() -> None:
    map_file, *objects = sys.argv[1:]
    with open(map_file, encoding="utf-8", errors="replace") as file:
        kept = file.read().partition(KEPT)[2]
    members = {match[1] for match in MEMBER.finditer(kept)}
    print(*(path for path in objects if os.path.basename(path) in members), sep="\n")


if __name__ == "__main__":
    main()
