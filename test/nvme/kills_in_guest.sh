#!/usr/bin/env bash
# Runs inside a guest with one slow NVMe drive behind an IOMMU: writers through the vfio engine that are killed.
#   kills_in_guest.sh REPOSITORY OUT COUNT
set -uo pipefail
repository=$1 out=$2 count=$3
export PATH=$PATH:/usr/sbin:/sbin LANG=C.UTF-8 HOME=/tmp
. "$out/environment"
cd /tmp
touch "$out/booted"
modprobe nvme
udevadm settle 2>/dev/null || sleep 2
function=$(basename "$(readlink -f /sys/class/nvme/nvme0/device)")
modprobe vfio-pci
echo vfio-pci >"/sys/bus/pci/devices/$function/driver_override"
echo "$function" >"/sys/bus/pci/devices/$function/driver/unbind"
echo "$function" >/sys/bus/pci/drivers_probe
"$repository/.venv/bin/python" "$repository/test/nvme/kills_on_nvme.py" "$out/results.txt" "vfio:${function}n1" "$count" ||
    echo "FAIL kills_on_nvme.py ended early" >>"$out/results.txt"
touch "$out/finished"
