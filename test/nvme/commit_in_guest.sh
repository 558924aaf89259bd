#!/usr/bin/env bash
# Runs inside a guest with one NVMe namespace: commits until the guest is killed.
#   commit_in_guest.sh REPOSITORY ACKNOWLEDGED
set -uo pipefail
repository=$1 acknowledged=$2
export LANG=C.UTF-8 HOME=/tmp
cd /tmp
modprobe nvme
udevadm settle 2>/dev/null || sleep 2
generic=$(ls -d /dev/ng*n1)
exec "$repository/.venv/bin/python" "$repository/test/nvme/commit_on_nvme.py" "$generic" "$acknowledged"
