#!/usr/bin/env bash
# Tests the engines, the queue strategies and SQL on NVMe namespaces that QEMU emulates in a guest, on any machine:
# no NVMe hardware and no KVM is needed. With NVME_EVERYTHING=1 every combination is tried, in a guest that has an IOMMU, so
# that controllers can be handed to vfio-pci. `run.sh vfio` tests only what drives those, `run.sh kills` only kills
# NVME_KILLS writers, and `run.sh instructions` measures instead. Installs what is missing (scripts/bootstrap_nvme.sh).
# The last line says `N passed, N failed, N skipped`; where there can be no guest everything is skipped, with the reason.
# The emulated CPU is about ten times slower than the real one: this is for correctness, never for speed.
set -euo pipefail
cd "$(dirname "$0")/../.."

readonly repository=$PWD
readonly work=$PWD/build/nvme
readonly out=$work/out
readonly binary=$PWD/build/host/rawduck_nvme_tests
readonly pull_after=300 # transactions
readonly guest_seconds=${NVME_GUEST_SECONDS:-1200}
readonly boot_seconds=180 # about one boot in ten of a guest with an IOMMU stalls on a busy machine
readonly only=${1:-}
# Before the devices that it serves. eim: so that processors write to their interrupt controllers by instructions
# (x2APIC). Until version 10.0.4, QEMU with a thread for each processor may carry out a write to registers in memory on
# another device while addresses are mapped anew, which vfio-pci and an IOMMU make it do all the time. Of an interrupt
# controller, that is the end of an interrupt: the processor then waits for ever for its timer.
readonly iommu_device='-device intel-iommu,intremap=on'
readonly iommu=${NVME_EVERYTHING:-$only}

status=0
kernel=$(scripts/bootstrap_nvme.sh) || status=$?
if [ "$status" = 77 ]; then
    echo "test_nvme: skipped: no guest can be run here, see above"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
[ "$status" = 0 ] || exit "$status"

launcher=()
command -v ccache >/dev/null && launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)

build() {
    # As scripts/run_tests.py configures it, so that nothing is compiled twice.
    cmake -S . -B build/host -G Ninja "${launcher[@]}" -DRAWDUCK_EXTENSION=ON -DRAWDUCK_TESTS=ON \
        -DPython_EXECUTABLE="$PWD/.venv/bin/python" >/dev/null
    cmake --build build/host --target rawduck_nvme_tests | tail -n 1
}

# Images, and the TPC-H data that the guest loads.
prepare() {
    rm -rf "$out"
    mkdir -p "$out/data" "$work/images"
    local image
    for image in fdp small1 small2 cacheless bad slow kills link odd1 odd2 odd3 odd4; do
        rm -f "$work/images/$image.img"
        truncate -s 192M "$work/images/$image.img"
    done
    # Reads that touch the sector at 8 MiB fail, and writes that touch the one at 24 MiB.
    printf '[inject-error]\nevent = "%s"\nerrno = "5"\nsector = "%s"\nimmediately = "off"\n\n' \
        read_aio 16384 write_aio 49152 >"$work/images/blkdebug.conf"
    .venv/bin/python -c 'import sys; from pathlib import Path; from rawduck import tpch
tpch.generate(Path(sys.argv[1]), 0.01)
for table in "customer", "lineitem":
    tpch.generate(Path(sys.argv[2], f"{table}-sf0.01"), 0.01, (table,))' "$out/data" "$out/bench"
    # Which fonts there are, for plots of reports: to find out takes a minute in the guest.
    export MPLCONFIGDIR=$out/matplotlib
    .venv/bin/python -c 'import matplotlib.font_manager'
    printf 'export PYTHONPATH=%q MPLCONFIGDIR=%q\n' "${PYTHONPATH:-}" "$MPLCONFIGDIR" >"$out/environment"
    printf 'export NVME_EVERYTHING=%q NVME_IOMMU=%q NVME_ONLY=%q NVME_KILLS=%q\n' "${NVME_EVERYTHING:-}" "$iommu" \
        "$only" "${NVME_KILLS:-}" >>"$out/environment"
}

# drive FILE ID [CACHING]
drive() { printf -- '-drive file=%s,if=none,id=%s,format=raw,%s ' "$1" "$2" "${3:-cache=none,aio=io_uring}"; }

# So slow that writers have commands in flight when they are killed: 1 MiB in a second.
slow_writer() {
    drive "$work/images/kills.img" d11 cache=none,throttling.bps-write=1048576
    printf -- '-device nvme,id=n7,serial=kills,mdts=7 -device nvme-ns,bus=n7,drive=d11,nsid=1 '
}

qemu_options() {
    local images=$work/images
    [ -z "$iommu" ] || printf -- '%s,eim=on ' "$iommu_device"
    # Flexible data placement with three handles, LBAs of 4096 bytes, commands of up to 512 KiB.
    drive "$images/fdp.img" d0
    printf -- '-device nvme-subsys,id=s0,fdp=on,fdp.runs=512M,fdp.nrg=1,fdp.nruh=4 '
    printf -- '-device nvme,id=n0,serial=fdp,subsys=s0,mdts=7 '
    printf -- '-device nvme-ns,bus=n0,drive=d0,nsid=1,fdp.ruhs=1\\;2\\;3,logical_block_size=4096,physical_block_size=4096 '
    # Commands of up to 16 KiB, two namespaces, LBAs of 512 and of 4096 bytes. The first forgets what it is told to.
    drive "$images/small1.img" d1 cache=none,aio=io_uring,discard=unmap
    drive "$images/small2.img" d2
    printf -- '-device nvme,id=n1,serial=small,mdts=2 -device nvme-ns,bus=n1,drive=d1,nsid=1 '
    printf -- '-device nvme-ns,bus=n1,drive=d2,nsid=2,logical_block_size=4096,physical_block_size=4096 '
    # No volatile write cache.
    drive "$images/cacheless.img" d3
    printf -- '-device nvme,id=n2,serial=cacheless,mdts=7 -device nvme-ns,bus=n2,drive=d3,nsid=1,write-cache=off '
    # Media errors at 8 MiB.
    drive "blkdebug:$images/blkdebug.conf:$images/bad.img" d4 cache=none
    printf -- '-device nvme,id=n3,serial=bad,mdts=7 -device nvme-ns,bus=n3,drive=d4,nsid=1 '
    # Slow to write: 16 KiB in a second, once 8 MiB were written.
    drive "$images/slow.img" d9 cache=none,throttling.bps-write=16384,throttling.bps-write-max=8388608
    printf -- '-device nvme,id=n5,serial=slow,mdts=7 -device nvme-ns,bus=n5,drive=d9,nsid=1 '
    slow_writer
    # Behind a bridge of its own, with few and short queues and no doorbells in memory.
    drive "$images/link.img" d10
    printf -- '-device pcie-root-port,id=rp0,chassis=1,slot=1 -device nvme,id=n6,serial=link,mdts=7,bus=rp0,dbcs=off,max_ioqpairs=2,mqes=31 '
    printf -- '-device nvme-ns,bus=n6,drive=d10,nsid=1 '
    # What cannot carry a volume: protection information, zones, metadata, LBAs of 8192 bytes.
    drive "$images/odd1.img" d5
    drive "$images/odd2.img" d6
    drive "$images/odd3.img" d7
    drive "$images/odd4.img" d8
    printf -- '-device nvme,id=n4,serial=odd -device nvme-ns,bus=n4,drive=d5,nsid=1,ms=8,pi=1 '
    printf -- '-device nvme-ns,bus=n4,drive=d6,nsid=2,zoned=true,zoned.zone_size=16M '
    printf -- '-device nvme-ns,bus=n4,drive=d7,nsid=3,ms=8 '
    printf -- '-device nvme-ns,bus=n4,drive=d8,nsid=4,logical_block_size=8192,physical_block_size=8192 '
}

# boot OPTIONS COMMAND: a guest with those options of QEMU, which carries out that command.
# iommu=pt: the kernel's own driver is not slowed down. no_timer_check: on a busy machine the timer may look broken.
boot() {
    local parameters=nvme.poll_queues=1
    [ -z "$iommu" ] || parameters+=' intel_iommu=on iommu=pt no_timer_check'
    PATH=$work/venv/bin:$PATH timeout --foreground "$guest_seconds" script -qec "vng -r '$kernel' --disable-kvm \
--disable-microvm --force-9p --append '$parameters' --cpus $processors \
--memory 3G --user root --rwdir='$out=$out' --qemu-opts=\"-cpu max -accel tcg,thread=$threads $1\" -- '$2'" \
        /dev/null </dev/null
}
processors=2 threads=multi

# The same for a guest that makes $out/booted when it is up: once more if it does not come up.
boot_surely() {
    local pid=$work/guest.pid attempt deadline
    for attempt in 1 2; do
        rm -f "$out/booted" "$pid"
        boot "-pidfile $pid $1" "$2" | stdbuf -oL tr -d '\r' &
        deadline=$((SECONDS + boot_seconds))
        while [ ! -e "$out/booted" ] && [ $SECONDS -lt $deadline ] && kill -0 $! 2>/dev/null; do
            sleep 0.5
        done
        if [ ! -e "$out/booted" ]; then
            echo "test_nvme: the guest did not come up (attempt $attempt)"
            kill -KILL "$(cat "$pid")" || true
        fi
        wait $! || true
        [ ! -e "$out/booted" ] || return 0
    done
}

# pull_power ENGINE: a guest of its own commits until it is killed, once enough transactions were acknowledged. What
# the drive was told is in a log; from that test/nvme/power_pull.py makes what a power cut leaves.
pull_power() {
    local image=$work/images/pulled.img log=$work/images/pulled.log acknowledged=$out/acknowledged attempt
    for attempt in 1 2; do
        rm -f "$image" "$log"
        truncate -s 64M "$image"
        : >"$log"
        : >"$acknowledged"
        commit_until_killed "$1"
        [ ! -s "$acknowledged" ] || break
        echo "test_nvme: the guest that commits with $1 did not begin (attempt $attempt)"
    done
    .venv/bin/python test/nvme/power_pull.py "$log" "$(stat -c %s "$image")" "$acknowledged" "$out/results.txt" "$1" ||
        echo "FAIL power_pull.py ended early with $1" >>"$out/results.txt"
}

# For pull_power, whose variables it sees. A guest that has ended by itself acknowledged too little, which is reported.
commit_until_killed() {
    local pid=$work/pulled.pid start=$SECONDS iommu_options=
    rm -f "$pid"
    [ "$1" != vfio ] || iommu_options="$iommu_device,eim=on"
    boot "-pidfile $pid $iommu_options -device nvme,id=n0,serial=pulled,drive=d0 -drive if=none,id=d0,driver=blklogwrites,\
file.driver=file,file.filename=$image,log.driver=file,log.filename=$log,log-sector-size=512" \
        "$repository/test/nvme/commit_in_guest.sh $repository $acknowledged $1" &
    while [ "$(wc -l <"$acknowledged")" -lt "$pull_after" ] && kill -0 $! 2>/dev/null; do
        [ $((SECONDS - start)) -lt "$guest_seconds" ] || break
        [ -s "$acknowledged" ] || [ $((SECONDS - start)) -lt $((2 * boot_seconds)) ] || break
        sleep 0.2
    done
    kill -KILL "$(cat "$pid")" || true
    wait $! || true
}

# What was refused has not been written to.
check_refused_images() {
    local image
    for image in "$work"/images/odd*.img; do
        if cmp -s -n "$(stat -c %s "$image")" "$image" /dev/zero; then
            echo "PASS nothing was written to the refused ${image##*/}"
        else
            echo "FAIL something was written to the refused ${image##*/}"
        fi
    done >>"$out/results.txt"
}

# A guest whose clock advances by a nanosecond with each instruction, with a drive that answers at once: what the
# processor does for a command, whatever else this machine is doing. With one thread, which does without x2APIC: QEMU cannot
# count with it.
count_instructions() {
    cmake -S . -B build/bench -G Ninja "${launcher[@]}" -DRAWDUCK_EXTENSION=OFF -DRAWDUCK_BENCH=ON >/dev/null
    cmake --build build/bench --target command_bench | tail -n 1
    rm -rf "$out"
    mkdir -p "$out"
    processors=1 threads=single
    boot_surely "-icount shift=0 $iommu_device -drive if=none,id=d0,driver=null-co,size=1G,read-zeroes=on \
-device nvme,serial=null,drive=d0,mdts=7" "$repository/test/nvme/instructions_in_guest.sh $PWD/build/bench/command_bench $out"
    [ -e "$out/finished" ] || echo "test_nvme: the guest did not come to its end"
    exec .venv/bin/python test/nvme/instructions.py "$out/instructions.tsv"
}

# A guest of its own, with nothing but the slow drive, for as many writers as are asked for.
kill_writers() {
    prepare
    boot_surely "$iommu_device,eim=on $(slow_writer)" \
        "$repository/test/nvme/kills_in_guest.sh $repository $out ${NVME_KILLS:-200}"
    exec .venv/bin/python test/nvme/summarize.py "$out"
}

[ "$only" != instructions ] || count_instructions
[ "$only" != kills ] || kill_writers
build
prepare
echo "test_nvme: booting $kernel"
boot_surely "$(qemu_options)" "$repository/test/nvme/guest.sh $repository $binary $out"
if [ -z "$only" ]; then
    check_refused_images
    pull_power io_uring_cmd
fi
[ -z "$iommu" ] || pull_power vfio
exec .venv/bin/python test/nvme/summarize.py "$out"
