#!/usr/bin/env bash
# Installs what scripts/test_nvme.sh needs and this machine lacks: QEMU 10 and a guest kernel from Debian backports,
# and virtme-ng, which boots that kernel on this machine's own root. Exits with 77, and says why on its last line,
# where that cannot be done. Prints the path of the guest kernel when everything is there.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly VIRTME_VERSION=1.40
readonly venv=build/nvme/venv
readonly backports=/etc/apt/sources.list.d/rawduck-backports.sources

say() { printf 'bootstrap_nvme: %s\n' "$*" >&2; }
skip() {
    say "$*"
    exit 77
}

# FDP came with QEMU 8; bookworm itself has 7.2.
has_qemu() {
    command -v qemu-system-x86_64 >/dev/null &&
        qemu-system-x86_64 -device nvme-subsys,help 2>/dev/null | grep -q 'fdp='
}

# The newest kernel that has an NVMe driver as a module or built in.
find_kernel() {
    local kernel release
    for kernel in $(ls -v /boot/vmlinuz-* 2>/dev/null | tac); do
        release=${kernel#/boot/vmlinuz-}
        if ls "/lib/modules/$release/kernel/drivers/nvme/host/" 2>/dev/null | grep -q '^nvme\.ko'; then
            printf '%s\n' "$kernel"
            return
        fi
    done
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
        sudo -n "$@"
    else
        skip "packages are missing and this user cannot install them; run as root once: scripts/bootstrap_nvme.sh"
    fi
}

# The machine's own source, with the suite exchanged: the mirror stays what the machine's owner chose.
add_backports() {
    local own=/etc/apt/sources.list.d/debian.sources
    [ ! -e "$backports" ] || return 0
    grep -q bookworm "$own" 2>/dev/null || skip "no QEMU with FDP here, and this is not Debian 12, whose backports have it"
    sed '/^$/,$d; s/^Suites:.*/Suites: bookworm-backports/' "$own" | as_root tee "$backports" >/dev/null
}

install_packages() {
    local wanted=() new=()
    has_qemu || new+=(qemu-system-x86)
    [ -n "$(find_kernel)" ] || new+=(linux-image-amd64)
    command -v nvme >/dev/null || wanted+=(nvme-cli)
    command -v modprobe >/dev/null || wanted+=(kmod)
    command -v zstd >/dev/null || wanted+=(zstd)
    command -v busybox >/dev/null || wanted+=(busybox-static)
    command -v udevadm >/dev/null || wanted+=(udev)
    command -v script >/dev/null || wanted+=(bsdutils)
    [ $((${#wanted[@]} + ${#new[@]})) -gt 0 ] || return 0
    say "installing ${new[*]} ${wanted[*]}"
    local apt=(env DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends)
    [ ${#new[@]} = 0 ] || add_backports
    as_root apt-get -qq update >&2 || skip "apt-get update failed, see above"
    if [ ${#new[@]} -gt 0 ]; then
        as_root "${apt[@]}" install -t bookworm-backports "${new[@]}" >&2 || skip "could not install ${new[*]}, see above"
    fi
    if [ ${#wanted[@]} -gt 0 ]; then
        as_root "${apt[@]}" install "${wanted[@]}" >&2 || skip "could not install ${wanted[*]}, see above"
    fi
}

install_virtme() {
    [ "$("$venv/bin/python" -c 'import importlib.metadata as m; print(m.version("virtme-ng"))' 2>/dev/null)" \
        != "$VIRTME_VERSION" ] || return 0
    say "installing virtme-ng $VIRTME_VERSION into $venv"
    "${PYTHON:-python3}" -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "virtme-ng==$VIRTME_VERSION" >&2 ||
        skip "could not install virtme-ng $VIRTME_VERSION from PyPI, see above"
}

[ "$(uname -m)" = x86_64 ] || skip "the guest shares this machine's programs, and QEMU is set up for x86-64 only"
install_packages
install_virtme
has_qemu || skip "the installed QEMU has no FDP"
kernel=$(find_kernel)
[ -n "$kernel" ] || skip "there is no kernel in /boot with an NVMe driver"
printf '%s\n' "$kernel"
