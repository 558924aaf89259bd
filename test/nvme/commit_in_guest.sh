#!/usr/bin/env bash
# Runs inside a guest with one NVMe namespace: commits until the guest is killed.
#   commit_in_guest.sh REPOSITORY ACKNOWLEDGED ENGINE    (vfio, or what the kernel's driver does)
set -uo pipefail
repository=$1 acknowledged=$2 engine=$3
export LANG=C.UTF-8 HOME=/tmp
cd /tmp
modprobe nvme
udevadm settle 2>/dev/null || sleep 2
target=$(ls -d /dev/ng*n1)
if [ "$engine" = vfio ]; then
    function=$(basename "$(readlink -f /sys/class/nvme/nvme0/device)")
    modprobe vfio-pci
    echo vfio-pci >"/sys/bus/pci/devices/$function/driver_override"
    echo "$function" >"/sys/bus/pci/devices/$function/driver/unbind"
    echo "$function" >/sys/bus/pci/drivers_probe
    target=vfio:${function}n1
fi
exec "$repository/.venv/bin/python" "$repository/test/nvme/commit_on_nvme.py" "$target" "$acknowledged"
