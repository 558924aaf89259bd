#!/usr/bin/env bash
# Installs what is missing, and nothing else, for one purpose:
#   scripts/bootstrap.sh build   compiler, headers, and the Python environment .venv (the default)
#   scripts/bootstrap.sh test    the same, and what the unit, fuzz and SQL tests need
#   scripts/bootstrap.sh aarch64 the same, and what unit tests of a build for aarch64 need
# Safe to run before every build: it tries what is needed, and returns within a second when all of it is there.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/packages.sh
give_up_status=1

purpose=${1:-build}
case "$purpose" in
build | test | aarch64) ;;
*)
    echo "bootstrap: unknown purpose '$purpose'; use 'build', 'test' or 'aarch64'" >&2
    exit 2
    ;;
esac

python=${PYTHON:-python3}
venv=.venv
stamp=$venv/.requirements.sha256

needs_of_build() {
    local compiler
    compiler=$(cxx)
    need g++ links 'filesystem thread' "$compiler" -pthread
    need cmake program cmake
    need ninja-build program ninja
    need pkg-config program pkg-config
    need liburing-dev links liburing.h "$compiler" -luring
    need libblkid-dev links blkid/blkid.h "$compiler" -lblkid
    need python3 program "$python"
    [ -x "$venv/bin/python" ] || need python3-venv "$python" -c 'import ensurepip, venv'
}

needs_of_test() {
    needs_of_build
    local compiler
    compiler=$(cxx)
    need libgtest-dev links gtest/gtest.h "$compiler" -lgtest -lgtest_main -pthread
    need "$(sanitizer_package "$compiler")" links sanitizer/asan_interface.h "$compiler" -fsanitize=address,undefined
    need "$(sanitizer_package "$compiler")" links sanitizer/tsan_interface.h "$compiler" -fsanitize=thread
    need clang links filesystem clang++ -pthread
    ! program clang++ >/dev/null ||
        need "$(sanitizer_package clang++)" links '' clang++ -fsanitize=fuzzer,address,undefined
    need_libpython "$python"
    need e2fsprogs program mkfs.ext4
    need mount program losetup mount umount
    need util-linux program mkswap setarch unshare
    need fdisk program sfdisk
}

# Its C library and libstdc++ are those of wheels (scripts/make_sysroot.sh).
needs_of_aarch64() {
    needs_of_test
    need qemu-user program qemu-aarch64
    need googletest test -e /usr/src/googletest/CMakeLists.txt
}

check_python() {
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        give_up "$python is older than 3.11; set PYTHON to a newer one"
}

make_environment() {
    local wanted
    wanted=$(sha256sum requirements.txt requirements-gpu.txt)
    [ -x "$venv/bin/python" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ] && return 0
    check_python
    say "installing Python packages into $venv"
    make_venv "$venv" --requirement requirements.txt
    # Kernels for GPUs are left out of the build without it.
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --requirement requirements-gpu.txt ||
        say "could not install requirements-gpu.txt: rawduck will be built without kernels for GPUs"
    printf '%s\n' "$wanted" >"$stamp"
}

install_missing "needs_of_$purpose"
make_environment
