# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# Virtual machines for trials, sourced by the scripts beside it. A machine runs the system of packaging/vms/image and a directory's
# script `run`; its console is a file. Nothing of it stays.
#
#   SEGUE_VM_ACCELERATOR  what QEMU's -accel and -cpu are told ("tcg max": without hardware support; "kvm host")

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
vms=${SEGUE_VMS:-$root/target/vms}
# Where machines run, such as (ip netns exec NAME).
within=()
# What starts QEMU, and what else it is told: another machine, devices that are no network cards.
qemu=(qemu-system-x86_64)
hardware=()
# Everything that is made for one trial.
work=$(mktemp -d)
machines=()
end_machines() {
    local machine
    for machine in ${machines[@]+"${machines[@]}"}; do
        kill "$machine" 2>/dev/null || true
        wait "$machine" 2>/dev/null || true
    done
    rm -rf "$work"
}
trap end_machines EXIT

say() { printf '%s\n' "==> $*"; }
fail() { printf '%s\n' "${0##*/}: $*" >&2; exit 1; }
command -v qemu-system-x86_64 >/dev/null || fail "qemu-system-x86_64 is missing: apt-get install qemu-system-x86"

# start NAME RELEASE DIRECTORY [NIC...]: starts a machine that runs DIRECTORY/run; a NIC is two words: what -netdev and -device say.
# Its console is $work/NAME.console.
start() {
    local name=$1 release=$2 directory=$3 nics=() accelerator cpu
    shift 3
    local nic number=0
    for nic in "$@"; do
        nics+=(-netdev "${nic%% *},id=nic$number" -device "${nic#* },netdev=nic$number")
        number=$((number + 1))
    done
    read -r accelerator cpu <<<"${SEGUE_VM_ACCELERATOR:-tcg max}"
    tar -C "$directory" -cf "$work/$name.tar" .
    # A disk is as long as whole sectors.
    truncate -s %1M "$work/$name.tar"
    TMPDIR=$work ${within[@]+"${within[@]}"} "${qemu[@]}" -accel "$accelerator" -cpu "$cpu" -m "${SEGUE_VM_MEMORY:-1024}" -smp 2 -display none -monitor none \
        -serial "file:$work/$name.console" -no-reboot -nic none ${hardware[@]+"${hardware[@]}"} ${nics[@]+"${nics[@]}"} \
        -drive "file=$vms/$release.ext4,format=raw,if=virtio,snapshot=on" -drive "file=$work/$name.tar,format=raw,if=virtio,readonly=on" \
        -kernel "$vms/$release.vmlinuz" -initrd "$vms/$release.initrd" \
        -append "root=/dev/vda rw console=ttyS0 quiet panic=-1 net.ifnames=0 systemd.show_status=false mitigations=off" \
        </dev/null >"$work/$name.qemu" 2>&1 &
    machines+=("$!")
}

# ended NAME SECONDS: waits until a machine has ended, whose script must have said `ok`. Prints what its script has printed.
ended() {
    local name=$1 limit=$2 console=$work/$1.console waited=0
    until grep -q '^vm: ended with' "$console" 2>/dev/null; do
        sleep 1
        waited=$((waited + 1))
        if [ "$waited" -ge "$limit" ]; then
            tail -n 60 "$console" >&2 2>/dev/null || true
            cat "$work/$name.qemu" >&2
            fail "the machine $name has not ended within $limit s"
        fi
        if ! jobs -pr | grep -q . && ! grep -q '^vm: ended with' "$console"; then
            tail -n 60 "$console" >&2 2>/dev/null || true
            cat "$work/$name.qemu" >&2
            fail "the machine $name has gone"
        fi
    done
    tr -d '\r' <"$console" | sed -n '/^trial:/,/^vm: ended/p'
    grep -q '^trial: ok' "$console" || {
        tail -n 80 "$console" >&2
        fail "the trial in $name failed"
    }
}
