#!/usr/bin/env bash
# Builds a wheel as a package index takes it, into dist/:
#   scripts/build_wheel.sh             for x86-64
#   scripts/build_wheel.sh aarch64     the same, by a cross compiler
# One wheel is for every CPython: the extension is loaded by DuckDB, and has no symbol of Python. It is compiled against
# what scripts/make_sysroot.sh makes, with liburing and libblkid inside; auditwheel names it by the symbols that it needs.
# What is for Ceph needs the Ceph libraries of the system, so it is in builds from source alone.
set -euo pipefail
cd "$(dirname "$0")/.."

architecture=${1:-x86_64}
scripts/make_sysroot.sh "$architecture"
folder=$PWD/build/wheels/$architecture
log=$folder.log
mkdir -p "$folder/plain" dist
rm -f "$folder"/plain/*.whl
command -v ccache >/dev/null && export CMAKE_CXX_COMPILER_LAUNCHER=ccache

settings=(build-dir="$folder/tree" cmake.define.CMAKE_TOOLCHAIN_FILE="$PWD/cmake/sysroot.cmake"
    cmake.define.RAWDUCK_SYSROOT="$PWD/build/sysroot/$architecture"
    cmake.define.RAWDUCK_ARCHITECTURE="$architecture" cmake.define.RAWDUCK_CEPH=OFF)
printf 'wheel: compiling the extension for %s\n' "$architecture"
# The variable tells Python's build tools which platform they build for.
if ! _PYTHON_HOST_PLATFORM=linux-$architecture .venv/bin/python -m pip wheel --verbose --disable-pip-version-check \
    --no-deps --no-build-isolation --wheel-dir "$folder/plain" "${settings[@]/#/--config-settings=}" . >"$log" 2>&1; then
    tail -n 60 "$log" >&2
    printf 'wheel: failed; the whole output is in %s\n' "$log" >&2
    exit 1
fi
PATH=$PWD/.venv/bin:$PATH .venv/bin/auditwheel repair --wheel-dir dist "$folder"/plain/*.whl 2>&1 | tee -a "$log" |
    sed -n 's/^Fixed-up wheel written to /wheel: /p'
