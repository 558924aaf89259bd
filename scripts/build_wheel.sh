#!/usr/bin/env bash
# Builds the wheels as a package index takes them, into dist/: rawduck, and rawduck-ceph, which needs the system's librados.
#   scripts/build_wheel.sh             for x86-64
#   scripts/build_wheel.sh aarch64     the same, by a cross compiler
# One wheel is for every CPython: the extension is loaded by DuckDB, and has no symbol of Python. It is compiled against
# what scripts/make_sysroot.sh makes, with liburing and libblkid inside; auditwheel names it by the symbols that it needs.
# Ceph's object class belongs to the Ceph of the OSDs' hosts, so it is in builds from source alone.
set -euo pipefail
cd "$(dirname "$0")/.."

architecture=${1:-x86_64}
scripts/make_sysroot.sh "$architecture"
command -v ccache >/dev/null && export CMAKE_CXX_COMPILER_LAUNCHER=ccache

# build NAME PROJECT CEPH [OPTION OF AUDITWHEEL]...
build() {
    local name=$1 project=$2 ceph=$3 folder=$PWD/build/wheels/$architecture/$1 log settings
    shift 3
    log=$folder.log
    mkdir -p "$folder/plain" dist
    rm -f "$folder"/plain/*.whl
    settings=(build-dir="$folder/tree" cmake.define.CMAKE_TOOLCHAIN_FILE="$PWD/cmake/sysroot.cmake"
        cmake.define.RAWDUCK_SYSROOT="$PWD/build/sysroot/$architecture"
        cmake.define.RAWDUCK_ARCHITECTURE="$architecture" cmake.define.RAWDUCK_CEPH="$ceph")
    printf 'wheel: compiling %s for %s\n' "$name" "$architecture"
    # The variable tells Python's build tools which platform they build for.
    if ! _PYTHON_HOST_PLATFORM=linux-$architecture .venv/bin/python -m pip wheel --verbose \
        --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir "$folder/plain" \
        "${settings[@]/#/--config-settings=}" "$project" >"$log" 2>&1; then
        tail -n 60 "$log" >&2
        printf 'wheel: failed; the whole output is in %s\n' "$log" >&2
        exit 1
    fi
    PATH=$PWD/.venv/bin:$PATH .venv/bin/auditwheel repair "$@" --wheel-dir dist "$folder"/plain/*.whl 2>&1 |
        tee -a "$log" | sed -n 's/^Fixed-up wheel written to /wheel: /p'
}

build rawduck . OFF
build rawduck-ceph python/ceph_package ON --exclude librados.so.2
