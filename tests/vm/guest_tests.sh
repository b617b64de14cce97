#!/usr/bin/env bash
# guest_tests.sh: all tests labelled vm, in the one boot that vm.boot makes. For each a line `passed|failed|skipped NAME: what`.
set -uo pipefail
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

told() { printf '%s %s: %s\n' "$1" "$2" "$3"; }
lines() { tail -n 3 "$1" | tr '\n' ' '; }

ib_read_bw_reads_from_the_other_host() {
    command -v ib_read_bw >/dev/null || { echo "ib_read_bw is not here (package perftest)"; return 77; }
    timeout 40 tb-vm-on 2 timeout 40 ib_read_bw -d rxe0 -F -s 65536 -n 100 >"$scratch/server" 2>&1 &
    local tries
    for ((tries = 0; tries < 20; tries++)); do # until the server listens
        if timeout 20 ib_read_bw -d rxe0 -F -s 65536 -n 100 "$TB_VM_PEER" >"$scratch/bw" 2>&1; then break; fi
        sleep 0.3
    done
    awk '$1 == 65536 && $4 > 0 { print "65536-byte READs at " $4 " MB/s"; found = 1 } END { exit !found }' "$scratch/bw"
}

rping_connects_by_rdma_cm() {
    command -v rping >/dev/null || { echo "rping is not here (package rdmacm-utils)"; return 77; }
    timeout 30 tb-vm-on 2 timeout 30 rping -s -p 7174 -C 3 >"$scratch/rping_server" 2>&1 &
    local tries
    for ((tries = 0; tries < 20; tries++)); do # until the server listens
        if timeout 10 rping -c -v -V -a "$TB_VM_PEER" -p 7174 -C 3 >"$scratch/rping" 2>&1; then break; fi
        sleep 0.3
    done
    [ "$(grep -c 'ping data: rdma-ping' "$scratch/rping")" = 3 ] && echo "3 pings came back with their data"
}

# Through the device to itself, as processes of one host do in the lab.
ib_read_bw_reads_on_one_host() {
    command -v ib_read_bw >/dev/null || { echo "ib_read_bw is not here (package perftest)"; return 77; }
    timeout 40 ib_read_bw -d rxe0 -F -s 65536 -n 100 -p 18516 >"$scratch/server_here" 2>&1 &
    local tries
    for ((tries = 0; tries < 20; tries++)); do # until the server listens
        if timeout 20 ib_read_bw -d rxe0 -F -s 65536 -n 100 -p 18516 "$TB_VM_ADDRESS" >"$scratch/bw_here" 2>&1; then break; fi
        sleep 0.3
    done
    awk '$1 == 65536 && $4 > 0 { print "65536-byte READs at " $4 " MB/s"; found = 1 } END { exit !found }' "$scratch/bw_here"
}

netem_delays() {
    ip netns add tbfar && ip link set veth0p netns tbfar && ip address add 10.78.0.1/24 dev veth0 && ip link set veth0 up &&
        ip -n tbfar address add 10.78.0.2/24 dev veth0p && ip -n tbfar link set veth0p up &&
        tc qdisc add dev veth0 root netem delay 200ms || return 1
    local ms
    ms=$(/run/tb-vm/busybox ping -c 3 -W 5 10.78.0.2 | sed -n 's|.*min/avg/max = \([0-9]*\).*|\1|p')
    ip netns del tbfar
    [ -n "$ms" ] && [ "$ms" -ge 200 ] && echo "a round trip takes at least $ms ms where netem adds 200"
}

openssl_uses_kernel_tls_to_send() { timeout 60 python3 -B "$(dirname "$0")/kernel_tls.py"; }

for name in ib_read_bw_reads_from_the_other_host ib_read_bw_reads_on_one_host rping_connects_by_rdma_cm netem_delays openssl_uses_kernel_tls_to_send; do
    what=$($name 2>"$scratch/err")
    case $? in
    0) told passed $name "$what" ;;
    77) told skipped $name "$what" ;;
    *) told failed $name "$what $(lines "$scratch/err")" ;;
    esac
done
