#!/usr/bin/env bash
# Installs what the rados:// tests and `rawduck ceph up` need and this machine lacks: Ceph's monitor, OSD and command,
# and librados' headers, all from Debian itself. Exits with 77, and says why on its last line, where that cannot be done.
set -euo pipefail

say() { printf 'bootstrap_ceph: %s\n' "$*" >&2; }
skip() {
    say "$*"
    exit 77
}

find_missing_packages() {
    missing_packages=()
    command -v ceph-mon >/dev/null || missing_packages+=(ceph-mon)
    command -v ceph-osd >/dev/null || missing_packages+=(ceph-osd)
    command -v ceph >/dev/null && command -v rados >/dev/null || missing_packages+=(ceph-common)
    [ -e /usr/include/rados/librados.h ] || missing_packages+=(librados-dev)
    # Has buffer.h, which rados/objclass.h includes.
    [ -e /usr/include/rados/librados.hpp ] || missing_packages+=(libradospp-dev)
    [ -e /usr/include/rados/objclass.h ] || missing_packages+=(rados-objclass-dev)
    # What DuckDB's Python module needs inside an OSD: the library of the Python that it was installed for.
    local python=.venv/bin/python libpython
    [ -x "$python" ] || python=python3
    libpython=libpython$("$python" -c 'import sys; print(*sys.version_info[:2], sep=".")')
    /sbin/ldconfig -p | grep -q "$libpython.so.1.0" || missing_packages+=("$libpython")
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
        sudo -n "$@"
    else
        skip "packages are missing and this user cannot install them; run as root once: scripts/bootstrap_ceph.sh"
    fi
}

find_missing_packages
[ ${#missing_packages[@]} -gt 0 ] || exit 0
command -v apt-get >/dev/null ||
    skip "these are missing, and this is not a Debian system; install their equivalents: ${missing_packages[*]}"
say "installing ${missing_packages[*]}"
apt=(env DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends)
as_root apt-get -qq update >&2 || skip "apt-get update failed, see above"
as_root "${apt[@]}" install "${missing_packages[@]}" >&2 || skip "could not install ${missing_packages[*]}, see above"
