#!/usr/bin/env bash
# Installs what is missing, and nothing else, for one purpose:
#   scripts/bootstrap.sh build   compiler, headers, and the Python environment .venv (the default)
#   scripts/bootstrap.sh test    the same, and what the unit, fuzz and SQL tests need
# Safe to run before every build: it looks for files and returns at once when all of them are there.
set -euo pipefail
cd "$(dirname "$0")/.."

purpose=${1:-build}
case "$purpose" in
build | test) ;;
*)
    echo "bootstrap: unknown purpose '$purpose'; use 'build' or 'test'" >&2
    exit 2
    ;;
esac

python=${PYTHON:-python3}
venv=.venv
stamp=$venv/.requirements.sha256

say() { printf 'bootstrap: %s\n' "$*"; }
fail() {
    printf 'bootstrap: %s\n' "$*" >&2
    exit 1
}

# Fills missing_packages with the Debian package of everything that is not there. Looks at the commands and
# headers themselves, so that a compiler from elsewhere counts too.
find_missing_packages() {
    missing_packages=()
    command -v g++ >/dev/null || command -v clang++ >/dev/null || missing_packages+=(g++)
    command -v cmake >/dev/null || missing_packages+=(cmake)
    command -v ninja >/dev/null || missing_packages+=(ninja-build)
    command -v pkg-config >/dev/null || missing_packages+=(pkg-config)
    [ -e /usr/include/liburing.h ] || missing_packages+=(liburing-dev)
    [ -e /usr/include/blkid/blkid.h ] || missing_packages+=(libblkid-dev)
    command -v "$python" >/dev/null || missing_packages+=(python3)
    [ -x "$venv/bin/python" ] || "$python" -c 'import ensurepip, venv' 2>/dev/null || missing_packages+=(python3-venv)
    [ "$purpose" = test ] || return 0
    [ -e /usr/include/gtest/gtest.h ] || missing_packages+=(libgtest-dev)
    command -v clang++ >/dev/null || missing_packages+=(clang)
    # DuckDB's Python module, when a program other than Python has it inside.
    local libpython
    libpython=libpython$("$python" -c 'import sys; print(*sys.version_info[:2], sep=".")')
    /sbin/ldconfig -p | grep -q "$libpython.so.1.0" || missing_packages+=("$libpython")
    PATH=$PATH:/usr/sbin:/sbin command -v mkfs.ext4 >/dev/null || missing_packages+=(e2fsprogs)
    PATH=$PATH:/usr/sbin:/sbin command -v losetup >/dev/null || missing_packages+=(mount)
    PATH=$PATH:/usr/sbin:/sbin command -v mkswap >/dev/null || missing_packages+=(util-linux)
    PATH=$PATH:/usr/sbin:/sbin command -v sfdisk >/dev/null || missing_packages+=(fdisk)
}

# Runs a command as root: directly, or through sudo where it may ask or need not.
as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null && { [ -t 0 ] || sudo -n true 2>/dev/null; }; then
        sudo "$@"
    else
        return 77
    fi
}

install_packages() {
    [ ${#missing_packages[@]} -gt 0 ] || return 0
    local wanted="apt-get install --no-install-recommends ${missing_packages[*]}"
    command -v apt-get >/dev/null ||
        fail "these are missing, and this is not a Debian system; install their equivalents: ${missing_packages[*]}"
    say "installing ${missing_packages[*]}"
    local status=0
    as_root env DEBIAN_FRONTEND=noninteractive sh -c "apt-get -qq update && $wanted -qq -y >/dev/null" || status=$?
    [ "$status" != 77 ] || fail "packages are missing and this user cannot install them; run as root: $wanted"
    [ "$status" = 0 ] || fail "could not install packages; run as root and look at its output: $wanted"
}

check_python() {
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        fail "$python is older than 3.11; set PYTHON to a newer one"
}

make_environment() {
    local wanted
    wanted=$(sha256sum requirements.txt)
    [ -x "$venv/bin/python" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ] && return 0
    check_python
    say "installing Python packages into $venv"
    [ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --requirement requirements.txt
    printf '%s\n' "$wanted" >"$stamp"
}

find_missing_packages
install_packages
make_environment
