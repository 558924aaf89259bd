#!/usr/bin/env bash
# Runs inside the guest that test/nvme/run.sh boots: the engine tests and the SQL tests on every namespace.
#   guest.sh REPOSITORY TEST_BINARY OUT
# Leaves gtest reports and the list of other results, results.txt, in OUT, and OUT/finished when it came to its end.
# With NVME_ONLY=vfio nothing but what the vfio engine drives; with NVME_EVERYTHING each engine on each namespace.
# The devices are told apart by their serial numbers, because the kernel numbers them in the order in which they answer.
set -uo pipefail
repository=$1 test_binary=$2 out=$3
export PATH=$PATH:/usr/sbin:/sbin LANG=C.UTF-8 HOME=/tmp
[ ! -e "$out/environment" ] || . "$out/environment"
cd /tmp
touch "$out/booted"

modprobe nvme
udevadm settle 2>/dev/null || sleep 2

# node SERIAL NAMESPACE: the kernel's name of the block device, such as nvme0n1.
node() {
    local directory name
    for directory in /sys/block/nvme*; do
        name=${directory##*/}
        [[ $name =~ ^nvme[0-9]+n[0-9]+$ ]] || continue
        [ "$(tr -d ' ' <"$directory/device/serial") $(cat "$directory/nsid")" = "$1 $2" ] && echo "$name" && return
    done
    echo "guest.sh: no namespace $2 on a controller with serial $1" >&2
}

# thin_namespace SERIAL: a namespace of 256 MiB of the kernel's own NVMe target, in a memory file system of 64 MiB.
thin_namespace() {
    local target=/sys/kernel/config/nvmet subsystem
    subsystem=$target/subsystems/$1
    modprobe nvme-loop
    mountpoint -q /sys/kernel/config || mount -t configfs none /sys/kernel/config
    mkdir -p /tmp/thin
    mount -t tmpfs -o size=64M none /tmp/thin
    truncate -s 256M /tmp/thin/image
    mkdir "$subsystem"
    echo 1 >"$subsystem/attr_allow_any_host"
    echo "$1" >"$subsystem/attr_serial"
    mkdir "$subsystem/namespaces/1" "$target/ports/1"
    echo -n /tmp/thin/image >"$subsystem/namespaces/1/device_path"
    echo 1 >"$subsystem/namespaces/1/enable"
    echo loop >"$target/ports/1/addr_trtype"
    ln -s "$subsystem" "$target/ports/1/subsystems/$1"
    # Few commands at a time, so that some find the queue full: the least that the kernel takes.
    nvme connect -t loop -n "$1" --queue-size=16
    udevadm settle 2>/dev/null || sleep 2
}

# function_of SERIAL: the PCI function of the controller, such as 0000:00:04.0.
function_of() {
    local directory
    for directory in /sys/class/nvme/nvme*; do
        [ "$(tr -d ' ' <"$directory/serial")" = "$1" ] && basename "$(readlink -f "$directory/device")" && return
    done
    echo "guest.sh: no controller with serial $1" >&2
}

# drive_by DRIVER FUNCTION...: vfio-pci, or nvme.
drive_by() {
    local driver=$1 function
    shift
    for function in "$@"; do
        echo "$driver" >"/sys/bus/pci/devices/$function/driver_override"
        echo "$function" >"/sys/bus/pci/devices/$function/driver/unbind"
        echo "$function" >/sys/bus/pci/drivers_probe
    done
    udevadm settle 2>/dev/null || sleep 2
}

generic() { ls "/sys/block/$1/.." | grep -x "ng[0-9]*n${1##*n}"; }

# gtest NAME FILTER: what the variables RAWDUCK_TEST_... name.
gtest() {
    local start=$SECONDS
    "$test_binary" --gtest_brief=1 --gtest_filter="$2" --gtest_output="json:$out/engines-$1.json" 2>&1 |
        grep -v '^Running main'
    [ -s "$out/engines-$1.json" ] || echo "FAIL $1 ended early" >>"$out/results.txt"
    echo "guest: $1: $((SECONDS - start)) s"
}

# engines NAME DEVICE MODES TESTS...: the C++ tests with the engines of that kind of device; MODES is a pattern.
engines() {
    local name=$1 device=$2 modes=$3 filter=${4:-} engine
    # Tests with xnvme_ are there where its engine is built.
    local engines=(io_uring_cmd nvme_ioctl xnvme_io_uring_cmd xnvme_nvme xnvme_thrpool xnvme_emu)
    [ -c "$device" ] || engines+=(io_uring posix xnvme_io_uring xnvme_libaio xnvme_posix xnvme_psync)
    for engine in "${engines[@]}"; do
        filter+=":All/NvmeEngineTest.*/${engine}_$modes"
    done
    RAWDUCK_TEST_NVME=$device gtest "$name" "$filter"
}

# vfio_tests NAME NAMESPACE MODES: the same tests with a driver of our own.
vfio_tests() { RAWDUCK_TEST_NVME=vfio:$2 gtest "vfio-$1" "All/NvmeEngineTest.*/vfio_$3"; }

# spdk_tests NAME NAMESPACE MODES: with SPDK, where the installed libxnvme has it.
spdk_tests() { RAWDUCK_TEST_NVME=vfio:$2 gtest "spdk-$1" "All/NvmeEngineTest.*/xnvme_spdk_$3"; }

# take_huge_pages COUNT: of 2 MiB, for that.
take_huge_pages() {
    mkdir -p /dev/hugepages
    mountpoint -q /dev/hugepages || mount -t hugetlbfs none /dev/hugepages
    echo "$1" >/proc/sys/vm/nr_hugepages
}

# That driver on the same devices, and on one whose link is lost.
vfio_engine() {
    local fdp small cacheless bad link slow every=${NVME_EVERYTHING:+*}
    fdp=$(function_of fdp) small=$(function_of small) cacheless=$(function_of cacheless)
    bad=$(function_of bad) link=$(function_of link) slow=$(function_of kills)
    # Otherwise the guest may stand still at any time: see iommu_device in run.sh.
    if [[ $(dmesg) = *'IRQ remapping in x2apic mode'* ]]; then
        echo "PASS the processors have x2APICs" >>"$out/results.txt"
    else
        echo "FAIL the processors have no x2APICs, but old interrupt controllers" >>"$out/results.txt"
    fi
    modprobe vfio-pci
    drive_by vfio-pci "$fdp" "$small" "$cacheless" "$bad" "$link" "$slow"
    vfio_tests fdp-4096 "${fdp}n1" "${every:-thread}"
    vfio_tests few-queues-512 "${link}n1" pool
    if [ -n "$every" ]; then
        vfio_tests small-512 "${small}n1" thread
        vfio_tests second-4096 "${small}n2" thread
        vfio_tests cacheless-512 "${cacheless}n1" single
    fi
    take_huge_pages 128
    spdk_tests fdp-4096 "${fdp}n1" "${every:-thread}"
    [ -z "$every" ] || spdk_tests small-512 "${small}n1" thread
    RAWDUCK_TEST_NVME=vfio:${bad}n1 gtest vfio-bad 'NvmeErrorTest.*'
    take_huge_pages 0
    RAWDUCK_TEST_VFIO=vfio:${fdp}n1 RAWDUCK_TEST_VFIO_LINK=vfio:${link}n1 RAWDUCK_TEST_VFIO_SLOW=vfio:${slow}n1 \
        gtest vfio-function 'Vfio*'
    drive_by nvme "$fdp" "$small" "$cacheless" "$bad" "$link" "$slow"
}

# The engines of the kernel's driver.
kernel_engines() {
    local fdp small second cacheless bad
    fdp=$(node fdp 1) small=$(node small 1) second=$(node small 2) cacheless=$(node cacheless 1) bad=$(node bad 1)
    engines fdp-4096-passthrough "/dev/$(generic "$fdp")" '*' 'NvmeTest.*:NvmeXnvmeTest.*'
    engines fdp-4096-block "/dev/$fdp" '*' 'NvmeTest.*'
    engines small-512-passthrough "/dev/$(generic "$small")" thread 'NvmeTest.*'
    engines small-512-block "/dev/$small" thread 'NvmeTest.*'
    engines second-4096-passthrough "/dev/$(generic "$second")" thread 'NvmeTest.*'
    engines cacheless-512-passthrough "/dev/$(generic "$cacheless")" thread 'NvmeTest.*'
    engines cacheless-512-block "/dev/$cacheless" thread 'NvmeTest.*'
    # The kernel's own target honours FUA, unlike QEMU's controllers.
    engines thin-4096-passthrough "/dev/$(generic "$(node full 1)")" thread
    engines bad-passthrough "/dev/$(generic "$bad")" none 'NvmeErrorTest.*'
    engines bad-block "/dev/$bad" none 'NvmeErrorTest.*'
}

export RAWDUCK_TEST_NVME_BAD_READ=$((8 * 1024 * 1024)) RAWDUCK_TEST_NVME_BAD_WRITE=$((24 * 1024 * 1024))
thin_namespace full
[ -n "${NVME_ONLY:-}" ] || kernel_engines
[ -z "$NVME_IOMMU" ] || vfio_engine
# The kernel numbers devices anew that it gets back.
fdp=$(node fdp 1) small=$(node small 1) second=$(node small 2) cacheless=$(node cacheless 1) bad=$(node bad 1)
slow=$(node slow 1) full=$(node full 1)

# Each start of a database costs seconds here, so by default every strategy is tried with one engine, and every engine
# with one strategy.
every='["sync", "single", "pool", "thread"]'
some='["thread"]' everything=false
[ -z "${NVME_EVERYTHING:-}" ] || some=$every everything=true
# What the benchmarks measure takes minutes here.
bench_plan=
[ -z "${NVME_EVERYTHING:-}" ] || bench_plan="\"bench\": [\"/dev/$fdp\", \"/dev/$cacheless\", \"$out/bench\", 0.01],"

# The same with xNVMe, where the package carries its engine.
xnvme_plan=
if ls "$repository"/.venv/lib/python3*/site-packages/rawduck/librawduck_xnvme.so >/dev/null 2>&1; then
    xnvme_plan="[\"/dev/$(generic "$fdp")\", [\"xnvme:io_uring_cmd\", \"xnvme:nvme\"], $some],
    [\"/dev/$fdp\", [\"xnvme:io_uring\"], $some], [\"/dev/$fdp\", [\"xnvme:thrpool\"], [\"thread\"]],"
fi

vfio_plan=
[ -z "$NVME_IOMMU" ] || vfio_plan="\"vfio\": {\"data\": \"$out/data\", \"fdp\": \"$(function_of fdp)\",
    \"plain\": \"$(function_of link)\", \"bad\": \"$(function_of bad)\", \"slow\": \"$(function_of kills)\",
    \"other\": \"/dev/$(generic "$second")\", \"modes\": $some, \"everything\": $everything,
    \"bench\": \"$out/bench\", \"stock\": \"/dev/$second\", \"kills\": ${NVME_KILLS:-5}},"

# In one process: to start Python over the guest's file system takes half a minute.
start=$SECONDS
cat >/tmp/plan.json <<END
{"data": "$out/data", "only": "${NVME_ONLY:-}",
 $vfio_plan
 "tpch": [ $xnvme_plan
    ["/dev/$(generic "$fdp")", ["io_uring_cmd"], $every],
    ["/dev/$(generic "$fdp")", ["nvme_ioctl"], $some],
    ["/dev/$fdp", ["io_uring", "posix"], $some],
    ["/dev/$fdp", ["io_uring_cmd", "nvme_ioctl"], ["thread"]],
    ["/dev/$(generic "$small")", ["io_uring_cmd", "nvme_ioctl"], ["thread"]],
    ["/dev/$second", ["io_uring", "io_uring_cmd"], ["thread"]],
    ["/dev/$(generic "$cacheless")", ["auto"], ["thread"]]],
 "fdp": [["/dev/$(generic "$fdp")", "io_uring_cmd", "auto"],
         ["/dev/$(generic "$fdp")", "nvme_ioctl", "database=2,wal=1,temporary=0,metadata=2"],
         ["/dev/$fdp", "auto", "auto"]],
 "fdp_settings": ["/dev/$(generic "$fdp")", "/dev/$fdp", "/dev/$(generic "$small")"],
 $bench_plan
 "refusals": [["/dev/$(generic "$(node odd 1)")", "protection information"],
              ["/dev/$(node odd 1)", "protection information"],
              ["/dev/$(generic "$(node odd 2)")", "zoned"],
              ["/dev/$(node odd 2)", "zoned"],
              ["/dev/$(node odd 3)", "8 bytes of metadata per LBA"],
              ["/dev/$(generic "$(node odd 3)")", "8 bytes of metadata per LBA"],
              ["/dev/$(generic "$(node odd 4)")", "LBA size is 8192 bytes"],
              ["/dev/${small%n*}", "controller, not a namespace"]],
 "faults": [["passthrough on a partition", "refused_partition", ["/dev/$cacheless"]],
            ["freed space is forgotten", "deallocation", ["/dev/$(generic "$small")", "/dev/$small", "io_uring_cmd"]],
            ["freed space is forgotten", "deallocation", ["/dev/$small", "/dev/$small", "io_uring"]],
            ["media errors", "media_errors", ["/dev/$(generic "$bad")", "auto", "/dev/$(generic "$second")",
             {"read": "unrecovered read error: media error", "write": "write fault"}]],
            ["media errors", "media_errors", ["/dev/$bad", "auto", "/dev/$(generic "$second")",
             {"read": "media error", "write": "media error"}]],
            ["the namespace is full", "namespace_full", ["/dev/$(generic "$full")", "auto",
             "/dev/$(generic "$second")", "capacity exceeded: the namespace is full"]],
            ["the namespace is full", "namespace_full", ["/dev/$full", "io_uring",
             "/dev/$second", "pool that the device is made of"]],
            ["a writer is killed", "killed_writer",
             ["/dev/$(generic "$slow")", "io_uring_cmd", "/dev/$slow", "io_uring"]],
            ["a command times out", "command_timeout", ["/dev/$(generic "$slow")", "${slow%n*}",
             "/dev/$(generic "$second")"]],
            ["the device goes away", "device_gone", ["/dev/$(generic "$bad")", "auto", "/dev/$(generic "$second")",
             "${bad%n*}"]],
            ["the device goes away", "device_gone", ["/dev/$cacheless", "auto", "/dev/$(generic "$second")",
             "${cacheless%n*}"]]]}
END
"$repository/.venv/bin/python" "$repository/test/nvme/sql_on_nvme.py" "$out/results.txt" /tmp/plan.json ||
    echo "FAIL sql_on_nvme.py ended early" >>"$out/results.txt"
echo "guest: SQL: $((SECONDS - start)) s"
touch "$out/finished"
