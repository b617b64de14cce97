#!/usr/bin/env bash
# guest_tests.sh: the tests labelled vm, inside the VM, in the order in which they are asked for:
# one_boot.py writes a name to $OUT/ask, and what came of it stands in $OUT/NAME,
# `passed|failed|skipped: what`, and in $OUT/NAME.err what the test said besides. Ends when `end` is
# asked for. Programs are taken from TB_BUILD_DIR.
set -uo pipefail
here=$(dirname "$0")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# bandwidth ON ADDRESS PORT: what ib_read_bw reads of ADDRESS, where `ON ib_read_bw` serves (ON:
# words, or nothing).
bandwidth() {
    command -v ib_read_bw >/dev/null || { echo "ib_read_bw is not here (package perftest)"; return 77; }
    local words=(ib_read_bw -d rxe0 -F -s 65536 -n 100 -p "$3") tries
    # shellcheck disable=SC2086
    timeout 40 $1 timeout 40 "${words[@]}" >"$scratch/server" 2>&1 &
    for ((tries = 0; tries < 20; tries++)); do # until the server listens
        if timeout 20 "${words[@]}" "$2" >"$scratch/bw" 2>&1; then break; fi
        sleep 0.3
    done
    awk '$1 == 65536 && $4 > 0 { print "65536-byte READs at " $4 " MB/s"; found = 1 } END { exit !found }' \
        "$scratch/bw"
}

ib_read_bw_reads_from_the_other_host() { bandwidth "tb-vm-on 2" "$TB_VM_PEER" 18515; }

# Through the device to itself, as processes of one host do in the lab.
ib_read_bw_reads_on_one_host() { bandwidth "" "$TB_VM_ADDRESS" 18516; }

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

a_program_of_the_build_tree_finds_the_device() {
    if [ ! -x "$TB_BUILD_DIR/tests/vm/tombolo-verbs-here" ]; then
        echo "tombolo-verbs-here is not built (packages libibverbs-dev, librdmacm-dev)"
        return 77
    fi
    timeout 30 "$TB_BUILD_DIR/tests/vm/tombolo-verbs-here" "$TB_VM_ADDRESS"
}

openssl_sends_by_kernel_tls() { timeout 60 "$TB_BUILD_DIR/tests/vm/tombolo-ktls-send"; }

our_channels_send_by_kernel_tls() {
    TB_WANT_KERNEL_TLS=1 timeout 60 "$TB_BUILD_DIR/tests/unit/net/test_net_kernel_tls" >"$scratch/kernel_tls" 2>&1
    outcome kernel_tls
}

# Over the second of the veth pairs asked for.
netem_delays() {
    ip netns add tbfar && ip link set veth1p netns tbfar && ip address add 10.78.0.1/24 dev veth1 &&
        ip link set veth1 up && ip -n tbfar address add 10.78.0.2/24 dev veth1p &&
        ip -n tbfar link set veth1p up && tc qdisc add dev veth1 root netem delay 200ms || return 1
    local ms
    ms=$(/run/tb-vm/busybox ping -c 3 -W 5 10.78.0.2 | sed -n 's|.*min/avg/max = \([0-9]*\).*|\1|p')
    ip -n tbfar link set veth1p netns 1 && tc qdisc del dev veth1 root && ip address flush dev veth1 && ip netns del tbfar || return 1
    [ -n "$ms" ] && [ "$ms" -ge 200 ] && echo "a round trip takes at least $ms ms where netem adds 200"
}

# The commands that sim/wan prints, and what a schedule changes in its first turns, without its
# waits.
netem_takes_every_shipped_scenario() {
    local scenario count=0 netns
    for scenario in "$here"/../../sim/wan/scenarios/*.yaml; do
        scenario=$(basename "$scenario" .yaml)
        "$here/../../sim/wan/run" --netem --print "$scenario" >"$scratch/netem" || return 1
        echo 'set -e; sleep() { :; }' >"$scratch/netem.sh"
        awk '/^sleep/ && ++turns > 5 { exit } { print }' "$scratch/netem" >>"$scratch/netem.sh"
        sh "$scratch/netem.sh" >&2 || { echo "$scenario is refused"; return 1; }
        count=$((count + $(grep -c '^tc' "$scratch/netem.sh")))
        while read -r netns _; do ip netns delete "$netns"; done < <(ip netns list)
    done
    [ "$count" -gt 0 ] && echo "$count tc commands"
}

# A lab by netem, with a path that is cut after some seconds, for some seconds: a schedule is
# followed while the sites are up.
netem_follows_its_schedule() {
    cat >"$scratch/cut.yaml" <<'YAML'
sites: [east, west]
paths:
  - {between: [east, west], rate: 10Mbit, delay: 1ms}
schedule:
  - {at: 10s, between: [east, west], cut: yes}
  - {at: 20s, between: [east, west], cut: no}
YAML
    cat >"$scratch/pings" <<'PINGS'
netns=$(grep -o '"netns": "[^"]*east"' "$TB_WAN_LAB" | cut -d'"' -f4)
address=$(grep -o '"address": "[^"]*"' "$TB_WAN_LAB" | tail -n 1 | cut -d'"' -f4)
for want in 0 1 0; do # it answers, does not, and answers again
    tries=0
    until timeout 60 ip netns exec "$netns" /run/tb-vm/busybox ping -c 1 -W 1 "$address" >/dev/null; [ $? = $want ]; do
        tries=$((tries + 1))
        [ $tries -lt 60 ] || { echo "a ping never ended with $want"; exit 1; }
    done
done
echo "it is cut and comes back"
PINGS
    timeout 120 "$here/../../sim/wan/run" --netem "$scratch/cut.yaml" -- bash "$scratch/pings"
}

# The base of sim/wan's `--netem`: which packets overtake others where jitter is far
# longer than what lies between them.
netem_keeps_order_where_it_has_a_rate() {
    cat >"$scratch/order.yaml" <<'YAML'
sites: [hub, kept, free, paced]
paths:
  - {from: hub, to: kept, jitter: 200ms, keep_order: yes}
  - {from: hub, to: free, jitter: 200ms}
  - {from: hub, to: paced, jitter: 200ms, rate: 10Mbit, queue: 1MiB}
YAML
    timeout 200 "$here/../../sim/wan/run" --netem "$scratch/order.yaml" -- python3 -B "$here/netem_order.py" 2>"$scratch/order"
    local code=$?
    cat "$scratch/order" >&2
    [ $code = 0 ] && [ "$(grep -c 'not as the scenario says: from hub to paced jitter overtakes nothing' "$scratch/order")" = 1 ]
}

# Only what netem lets through; wan_agreement.py, which asks for it, holds it against what the
# emulator does.
iperf3_over_netem() {
    command -v iperf3 >/dev/null || { echo "iperf3 is not here (package iperf3)"; return 77; }
    timeout 600 python3 -B "$here/wan_agreement.py" measure netem
}

# outcome NAME: what a cmocka program printed to $scratch/NAME came to; fails when a test failed or
# none ran, and shows its end.
outcome() {
    if grep -qaE 'FAILED|assert.failed' "$scratch/$1"; then tail -n 40 "$scratch/$1" >&2; fi
    sed -n 's/^link /&/p' "$scratch/$1" | tr '\n' ';'
    sed -n 's/^\[  PASSED  \] \([0-9]* test\).*/\1s passed/p' "$scratch/$1"
    grep -q '^\[  PASSED  \] [1-9]' "$scratch/$1" && ! grep -q 'FAILED' "$scratch/$1"
}

unit() { # NAME ARGUMENTS...: a test program of the build tree
    local program=$TB_BUILD_DIR/tests/unit/intra/test_intra_$1
    if [ ! -x "$program" ]; then echo "$program is not built (packages libibverbs-dev, librdmacm-dev)"; return 77; fi
    timeout 600 "$program" "${@:2}" >"$scratch/$1" 2>&1
    outcome "$1"
}

# The one suite over RDMA: both ends on this host, through the device to itself.
conformance_over_verbs_on_one_host() { unit conformance verbs-; }

# The same tests, in clear, with the owners on the other host, each in a process of its own.
conformance_over_verbs_between_two_hosts() {
    local program=$TB_BUILD_DIR/tests/unit/intra/test_intra_conformance
    if [ ! -x "$program" ]; then echo "$program is not built"; return 77; fi
    timeout 640 tb-vm-on 2 timeout 630 "$program" --serve 7100 >"$scratch/owners" 2>&1 & # tests wait until it listens
    TB_TEST_OWNER_AT=$TB_VM_PEER:7100 unit conformance verbs-clear
}

faults_that_rdma_alone_can_have() { unit verbs; }

# with_two_nics TEST: of unit verbs, with a second NIC of its own subnet, over the first of the veth
# pairs asked for.
with_two_nics() {
    ip address add 10.79.0.1/24 dev veth0 && ip link set veth0p up && ip link set veth0 up &&
        rdma link add rxe1 type rxe netdev veth0 || return 1
    unit verbs "$1"
    local code=$?
    rdma link delete rxe1 && ip link set veth0 down && ip address flush dev veth0 || return 1
    return $code
}
two_nics_share_the_load() { TB_TEST_TWO_NICS=1 with_two_nics 'P6_two_nics_*'; }
a_link_that_goes_down_is_left() { TB_TEST_LINK=veth0 with_two_nics 'P6_a_link_*'; }

# counters DEVICE: name value of what it has counted.
counters() {
    local file
    for file in /sys/class/infiniband/"$1"/ports/1/hw_counters/* /sys/class/infiniband/"$1"/ports/1/counters/*; do
        [ -e "$file" ] && [ "${file##*/}" != lifespan ] && echo "${file##*/} $(cat "$file" 2>/dev/null)"
    done
}

# docs/operations.md says which of a NIC's counters to look at. Those that this device has, and
# those that rose with one version over it; sysfs and `rdma statistic` have to agree.
a_version_over_rdma_is_counted_by_the_nic() {
    local said
    counters rxe0 | sort >"$scratch/before"
    unit verbs '*killed_in_mid_read' >/dev/null || return 1
    counters rxe0 | sort >"$scratch/after"
    [ -s "$scratch/after" ] || { echo "rxe0 has no counters"; return 1; }
    said=$(rdma -j statistic show link rxe0/1)
    join "$scratch/before" "$scratch/after" >"$scratch/both"
    while read -r name _ now; do
        [ ! -e "/sys/class/infiniband/rxe0/ports/1/hw_counters/$name" ] || grep -q "\"$name\":$now\b" <<<"$said" ||
            echo "$name is $now by sysfs and not by rdma statistic" >&2
    done <"$scratch/both"
    awk '$3 > $2 { rose = rose " " $1 "+" $3 - $2 } { all = all " " $1 } END { print "rose:" rose "; of:" all; exit rose == "" }' "$scratch/both"
}

# rose FILE NAME: by how much a counter rose since FILE.
rose() { echo $(($(counters rxe0 | awk -v name="$2" '$1 == name { print $2 }') - $(awk -v name="$2" '$1 == name { print $2 }' "$1"))); }

# docs/operations.md says which counters tell of a receiver that was not ready.
a_send_to_nobody_is_counted_by_the_nic() {
    local name said=
    counters rxe0 >"$scratch/rnr"
    unit verbs '*sends_to_nobody*' >/dev/null || return 1
    for name in rcvd_rnr_err send_rnr_err retry_rnr_exceeded_err; do
        said="$said $name+$(rose "$scratch/rnr" "$name")"
    done
    echo "$said"
    ! grep -q '+0' <<<"$said"
}

a_change_between_read_and_digest_over_verbs_is_found() { unit between verbs-; }

# scenario FILE NAME [BYTES]: one of tests/system, whose workers' hosts have names of their own:
# what goes between them goes by RDMA.
scenario() {
    if [ ! -x "$TB_BUILD_DIR/gateway/daemon/tombolod" ]; then echo "tombolod is not built"; return 77; fi
    TB_TEST_RDMA=1 TB_WEIGHTS_DIR='' TB_TEST_WEIGHTS_BYTES=${3:-12M} TB_PATIENCE_S=240 \
        timeout 400 python3 -B "$here/../system/$1.py" "$2" >"$scratch/$2" 2>&1
    local code=$?
    [ $code = 0 ] || tail -n 20 "$scratch/$2" >&2
    tail -n 1 "$scratch/$2"
    return $code
}

# A source that dies or stands still while it is read: of enough bytes that it is in the middle of
# them.
worker_killed_in_mid_chain_over_verbs() { scenario test_faults worker_killed_in_mid_chain 48M; }
a_stopped_worker_holds_up_nobody_over_verbs() { scenario test_faults a_stopped_worker_holds_up_nobody 48M; }

one() { # NAME: a function of this script, or a scenario of test_memory.py
    if declare -F "$1" >/dev/null; then "$1"; else scenario test_memory "${1%_over_verbs}"; fi
}

run() { # NAME
    local what kind=passed
    what=$(one "$1" 2>"$OUT/$1.err")
    case $? in
    0) ;;
    77) kind=skipped ;;
    *) kind=failed ;;
    esac
    echo "$kind $1: $what"
    echo "$kind: $what" >"$OUT/$1.new"
    mv "$OUT/$1.new" "$OUT/$1"
}

# Looks without starting a program: an emulated processor that waits is to take none of the real
# one's time.
mkfifo "$scratch/nothing"
exec 5<>"$scratch/nothing"
touch "$OUT/up"
while :; do
    until [ -e "$OUT/ask" ]; do read -rt 0.3 -u 5; done
    read -r name <"$OUT/ask"
    rm "$OUT/ask"
    [ "$name" != end ] || break
    run "$name"
done

# The asserts of one_boot.py on the lab itself: streams apart, a share that stays, a root that does
# not, an exit code of the command's.
echo "the command's own stderr" >&2
echo kept >"$OUT/from_the_guest"
touch /from_the_guest
exit 7
