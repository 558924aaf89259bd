#!/usr/bin/env bash
# Runs inside a guest with one NVMe drive whose clock counts instructions: bench/command_bench.cpp with every engine.
#   instructions_in_guest.sh COMMAND_BENCH OUT
set -uo pipefail
bench=$1 out=$2
export PATH=$PATH:/usr/sbin:/sbin LANG=C.UTF-8 HOME=/tmp
cd /tmp
touch "$out/booted"
mountpoint -q /sys/kernel/tracing || mount -t tracefs none /sys/kernel/tracing # system calls are counted there
modprobe nvme
udevadm settle 2>/dev/null || sleep 2
generic=$(ls -d /dev/ng*n1) block=$(ls -d /dev/nvme*n1)
# The guest's files are slow.
cp "$bench" /tmp/command_bench
module=$(dirname "$bench")/librawduck_xnvme.so
[ ! -e "$module" ] || cp "$module" /tmp

measure() { timeout 300 /tmp/command_bench "$@" >>"$out/instructions.tsv"; }
measure "$generic" fixed
measure "$generic" fixed polling
measure "$generic" io_uring_cmd
measure "$generic" io_uring_cmd polling
measure "$generic" nvme_ioctl
measure "$block" io_uring
measure "$block" posix

function=$(basename "$(readlink -f /sys/class/nvme/nvme0/device)")
modprobe vfio-pci
echo vfio-pci >"/sys/bus/pci/devices/$function/driver_override"
echo "$function" >"/sys/bus/pci/devices/$function/driver/unbind"
echo "$function" >/sys/bus/pci/drivers_probe
measure "vfio:${function}n1" vfio
measure "vfio:${function}n1" vfio polling
mkdir -p /dev/hugepages
mount -t hugetlbfs none /dev/hugepages
echo 128 >/proc/sys/vm/nr_hugepages
measure "vfio:${function}n1" xnvme:spdk # says so where there is none
measure "vfio:${function}n1" xnvme:spdk polling
touch "$out/finished"
