#!/usr/bin/env bash
# Installs what the rados:// tests and `rawduck ceph up` need and this machine lacks: Ceph's monitor, OSD and command,
# and librados' headers, all from Debian itself. Exits with 77, and says why on its last line, where that cannot be done.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/packages.sh
give_up_status=77

needs() {
    local compiler
    compiler=$(cxx)
    need ceph-mon program ceph-mon monmaptool
    need ceph-osd program ceph-osd
    need ceph-common program ceph ceph-authtool rados
    need librados-dev links rados/librados.h "$compiler" -lrados
    # Has librados.hpp, and buffer.h, which rados/objclass.h includes.
    need libradospp-dev links rados/librados.hpp "$compiler" -lrados
    need rados-objclass-dev links rados/objclass.h "$compiler"
    need_libpython
    # For the tests on a slow link.
    need iproute2 program ip tc
    need util-linux program unshare nsenter
}

install_missing needs
