#!/usr/bin/env bash
# Builds the extension in build/wheel and installs the Python package, extension inside, into .venv. Shows the
# compiler's progress; the whole output is in build/wheel.log, and on the terminal when something fails.
set -euo pipefail
cd "$(dirname "$0")/.."

log=build/wheel.log
mkdir -p build/wheel
command -v ccache >/dev/null && export CMAKE_CXX_COMPILER_LAUNCHER=ccache

install() {
    .venv/bin/python -m pip install --verbose --disable-pip-version-check --no-deps --no-build-isolation \
        --force-reinstall .
}

# One line that overwrites itself on a terminal, nothing elsewhere.
show_progress() {
    if [ -t 1 ]; then
        sed -un 's/^ *\(\[[0-9]*\/[0-9]*\] [^ ]* [^ ]* object\).*\/\([^/]*\)\.o$/\r\x1b[Kbuild: \1 \2/p' | tr -d '\n'
        printf '\r\033[K'
    else
        cat >/dev/null
    fi
}

printf 'build: compiling the extension\n'
if ! install 2>&1 | tee "$log" | show_progress; then
    tail -n 60 "$log" >&2
    printf 'build: failed; the whole output is in %s\n' "$log" >&2
    exit 1
fi
printf 'build: installed %s\n' "$(.venv/bin/rawduck extension-path)"
