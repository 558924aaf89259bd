#!/usr/bin/env bash
# Builds the extension in its static form and tests it. The first run builds DuckDB itself, which takes 30 minutes
# on 4 cores and an hour on 2; it can be interrupted and goes on where it was. Later runs take a minute.
# The result: build/static/rawduck/static/rawduck.duckdb_extension
set -euo pipefail
cd "$(dirname "$0")/.."

python=python3
[ -x .venv/bin/python ] && python=.venv/bin/python
duckdb_build=build/static/duckdb
rawduck_build=build/static/rawduck
mkdir -p build/static
command -v ccache >/dev/null && export CMAKE_CXX_COMPILER_LAUNCHER=ccache

say() { printf 'static: %s\n' "$*"; }

# Runs a build and shows ninja's "[done/total]" as it grows; everything is in the log, and on the terminal when it fails.
build() {
    local log=$1
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

source_dir=$("$python" python/rawduck/duckdb_source.py build)

if [ ! -f "$duckdb_build/build.ninja" ]; then
    say "configuring DuckDB"
    build build/static/duckdb-configure.log cmake -S "$source_dir" -B "$duckdb_build" -G Ninja \
        -DCMAKE_BUILD_TYPE=Release -DCMAKE_POSITION_INDEPENDENT_CODE=ON -DBUILD_SHELL=0 -DBUILD_UNITTESTS=0 \
        -DENABLE_SANITIZER=0 -DENABLE_UBSAN=0 -DDUCKDB_EXPLICIT_VERSION=v2.0.0 \
        "-DBUILD_EXTENSIONS=core_functions;parquet"
fi
say "building libduckdb_static.a"
build build/static/duckdb.log ninja -C "$duckdb_build" duckdb_static duckdb_loadable_extensions

say "building the extension"
build build/static/rawduck-configure.log cmake -S . -B "$rawduck_build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DRAWDUCK_STATIC=ON -DRAWDUCK_TESTS=OFF -DRAWDUCK_DUCKDB_SOURCE="$source_dir"
build build/static/rawduck.log ninja -C "$rawduck_build" rawduck_static rawduck_loader rawduck_static_host

say "built $rawduck_build/static/rawduck.duckdb_extension"
say "testing it in a program that exports no symbols"
scratch=$(mktemp -d build/static/test-XXXXXX)
trap 'rm -rf "$scratch"' EXIT
"$rawduck_build/rawduck_static_host" "$PWD/$rawduck_build/static/rawduck.duckdb_extension" \
    "$PWD/$rawduck_build/extension/rawduck.duckdb_extension" "$PWD/$scratch"
