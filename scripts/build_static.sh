#!/usr/bin/env bash
# Builds the extension in its static form, by DuckDB's own build (extension_config.cmake), and tests it in several hosts.
# Compiling DuckDB takes most of the time, the first time; a build can be interrupted and goes on where it was. The result:
# build/static/extension/extension/rawduck/rawduck.duckdb_extension
set -euo pipefail
cd "$(dirname "$0")/.."

duckdb_build=build/static/duckdb
extension_build=build/static/extension
mkdir -p build/static

say() { printf 'static: %s\n' "$*"; }

# Runs a build and shows ninja's "[done/total]" as it grows; everything is in the log, and on the terminal when it fails.
build() {
    local log=build/static/$1.log
    shift
    if ! "$@" 2>&1 | tee "$log" | progress; then
        tail -n 40 "$log" >&2
        say "failed; the whole output is in $log" >&2
        exit 1
    fi
}

progress() {
    if [ -t 1 ]; then
        sed -un 's/^\(\[[0-9]*\/[0-9]*\]\).*/\r\x1b[Kstatic: \1/p' | tr -d '\n'
        printf '\r\033[K'
    else
        # One line in fifty.
        sed -un 's/^\(\[[0-9]*\/[0-9]*\]\).*/static: \1/p' | sed -un '1~50p'
    fi
}

source_dir=$(.venv/bin/python python/rawduck/duckdb_source.py build)
case $(uname -m) in
x86_64) platform=linux_amd64 ;;
aarch64) platform=linux_arm64 ;;
*)
    say "DuckDB has no extensions for $(uname -m)" >&2
    exit 1
    ;;
esac
# DuckDB's code in here runs SQL functions' arguments and file systems' calls, not queries: it is compiled quickly instead
# of for speed, with each function in a section of its own, so that those that nobody calls are left out.
quick='-O1 -DNDEBUG -ffunction-sections -fdata-sections'
settings=(-G Ninja -DBUILD_SHELL=0 -DBUILD_UNITTESTS=0 -DENABLE_SANITIZER=0 -DENABLE_UBSAN=0 -DBUILD_EXTENSIONS=
    -DDUCKDB_EXPLICIT_VERSION=v2.0.0 "-DDUCKDB_EXPLICIT_PLATFORM=$platform" -DCMAKE_POSITION_INDEPENDENT_CODE=ON)

say "compiling DuckDB"
build duckdb-configure cmake -S "$source_dir" -B "$duckdb_build" "${settings[@]}" -DCMAKE_BUILD_TYPE=MinSizeRel \
    "-DCMAKE_CXX_FLAGS_MINSIZEREL=$quick" "-DCMAKE_C_FLAGS_MINSIZEREL=$quick"
build duckdb ninja -C "$duckdb_build" duckdb_static

say "building the extension"
# A symbol that nothing defines is an error here, not when a program loads the extension.
build extension-configure cmake -S "$source_dir" -B "$extension_build" "${settings[@]}" -DCMAKE_BUILD_TYPE=Release \
    -DEXTENSION_STATIC_BUILD=1 -DDUCKDB_OPTIMIZATION_PROFILE=EXTENSION \
    -DPREBUILT_BINARY="$PWD/$duckdb_build/src/libduckdb_static.a" -DPython_EXECUTABLE="$PWD/.venv/bin/python" \
    -DDUCKDB_EXTENSION_CONFIGS="$PWD/extension_config.cmake" \
    "-DCMAKE_SHARED_LINKER_FLAGS=-Wl,-z,defs -s"
build extension ninja -C "$extension_build" rawduck_loadable_extension
say "built $extension_build/extension/rawduck/rawduck.duckdb_extension"

say "testing it in its hosts"
.venv/bin/python -m pytest -rs test/static
