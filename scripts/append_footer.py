"""Appends the footer that makes a shared object a DuckDB extension.

The layout is DuckDB's (scripts/append_metadata.cmake in its source): a WebAssembly custom section named
"duckdb_signature" that holds eight 32-byte metadata fields, last field first, and 256 bytes of signature. The
signature stays zero: the extension is unsigned.
"""

import argparse
import os
import tempfile

FIELD_BYTES = 32
SIGNATURE_BYTES = 256
PLATFORMS = {"x86_64": "linux_amd64", "aarch64": "linux_arm64"}


def footer(duckdb_version: str, duckdb_platform: str, extension_version: str) -> bytes:
    fields = ["4", duckdb_platform, duckdb_version, extension_version, "CPP", "", "", ""]
    for field in fields:
        if len(field.encode()) > FIELD_BYTES:
            raise SystemExit(f"metadata field {field!r} is longer than {FIELD_BYTES} bytes")
    # 0: custom section; 0x93 0x04: LEB128 of the 531 bytes that follow; 16: length of the name.
    section = bytes([0, 0x93, 0x04, 16]) + b"duckdb_signature"
    # 0x80 0x04: LEB128 of the 512 bytes of metadata and signature.
    section += bytes([0x80, 0x04])
    section += b"".join(field.encode().ljust(FIELD_BYTES, b"\0") for field in reversed(fields))
    return section + bytes(SIGNATURE_BYTES)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("object", help="shared object to copy")
    parser.add_argument("extension", help="extension file to write")
    parser.add_argument("--duckdb-version", required=True, help="such as v2.0.0")
    parser.add_argument("--extension-version", required=True)
    parser.add_argument("--architecture", required=True, choices=sorted(PLATFORMS), help="of the object")
    arguments = parser.parse_args()

    with open(arguments.object, "rb") as source:
        content = source.read()
    content += footer(
        arguments.duckdb_version, PLATFORMS[arguments.architecture], arguments.extension_version
    )
    # Written aside and moved into place, because a process may have the old file mapped.
    directory = os.path.dirname(os.path.abspath(arguments.extension))
    with tempfile.NamedTemporaryFile(dir=directory, delete=False) as target:
        target.write(content)
    os.chmod(target.name, 0o755)
    os.replace(target.name, arguments.extension)


if __name__ == "__main__":
    main()
