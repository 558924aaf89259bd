#!/usr/bin/env bash
# Installs what test/nvme/run.sh needs and this machine lacks: QEMU 10 and a guest kernel from Debian backports,
# and virtme-ng, which boots that kernel on this machine's own root. Exits with 77, and says why on its last line,
# where that cannot be done. Prints the path of the guest kernel when everything is there.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/packages.sh
give_up_status=77

readonly VIRTME_VERSION=1.40
readonly venv=build/nvme/venv
readonly suite=bookworm-backports
readonly sources=/etc/apt/sources.list.d/rawduck-backports.sources

# FDP came with QEMU 8; bookworm itself has 7.2.
has_qemu() {
    local options
    options=$(qemu-system-x86_64 -device nvme-subsys,help 2>/dev/null) && [[ $options = *fdp=* ]]
}

# The newest kernel that has an NVMe driver as a module.
find_kernel() {
    local kernel module
    for kernel in $(ls -vr /boot/vmlinuz-* 2>/dev/null); do
        for module in "/lib/modules/${kernel#/boot/vmlinuz-}/kernel/drivers/nvme/host"/nvme.ko*; do
            [ -e "$module" ] || continue
            printf '%s\n' "$kernel"
            return
        done
    done
    return 1
}

needs() {
    need nvme-cli program nvme
    need kmod program modprobe
    need zstd program zstd
    need busybox-static program busybox
    need udev program udevadm
    need bsdutils program script
    need mount program mount
    need util-linux program addpart delpart mountpoint
    need e2fsprogs program mkfs.ext4
    # Of virtme-ng: on this side, and inside the guest.
    need file program file
    need iproute2 program ip
    need python3-venv "${PYTHON:-python3}" -c 'import ensurepip, venv'
}

# One by one: with apt's option -t everything that they need would come from backports too, libelf1 for one, and what
# needs bookworm's, such as Ceph, could not be installed any more.
needs_of_backports() {
    local package
    for package in qemu-system-{x86,common,data} seabios; do
        need "$package/$suite" has_qemu
    done
    need "linux-image-amd64/$suite" find_kernel
}

# Of a mirror that this machine gets bookworm from, however its owner has written that down.
add_backports() {
    local uri why="no QEMU with FDP here, and this is not Debian 12, whose backports have it"
    command -v apt-get >/dev/null || give_up "$why"
    apt_get scripts/bootstrap_nvme.sh update
    [ -z "$(apt-get indextargets --format '$(URI)' "Codename: $suite" 'Created-By: Packages')" ] || return 0
    uri=$(apt-get indextargets --format '$(REPO_URI)' 'Codename: bookworm' 'Label: Debian' 'Component: main' \
        'Created-By: Packages')
    [ -n "$uri" ] || give_up "$why"
    say "adding $suite to apt's sources ($sources)"
    printf '%s\n' 'Types: deb' "URIs: ${uri%%$'\n'*}" "Suites: $suite" 'Components: main' \
        'Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg' | as_root tee "$sources" >/dev/null ||
        give_up "cannot write $sources; run as root once: scripts/bootstrap_nvme.sh"
}

install_virtme() {
    [ "$("$venv/bin/python" -c 'import importlib.metadata as m; print(m.version("virtme-ng"))' 2>/dev/null)" \
        != "$VIRTME_VERSION" ] || return 0
    say "installing virtme-ng $VIRTME_VERSION into $venv"
    make_venv "$venv" "virtme-ng==$VIRTME_VERSION" ||
        give_up "could not install virtme-ng $VIRTME_VERSION from PyPI, see above"
}

[ "$(uname -m)" = x86_64 ] || give_up "the guest shares this machine's programs, and QEMU is set up for x86-64 only"
[[ $PWD != *[[:space:]]* ]] || give_up "QEMU's options cannot name files below $PWD: it contains a space"
has_qemu && find_kernel >/dev/null || add_backports
install_missing needs_of_backports
install_missing needs
install_virtme
find_kernel
