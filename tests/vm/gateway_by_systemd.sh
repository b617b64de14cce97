#!/usr/bin/env bash
# gateway_by_systemd.sh OLD NEW: inside the VM, where systemd is process 1: installs the package
# OLD, has the unit started, reloaded, upgraded to the package NEW, killed and stopped, and looks at
# each what systemd was told and what a reader saw. A line says what is waited for, as the lab's
# time bounds it.
set -euo pipefail
export SYSTEMD_BUS_TIMEOUT=10min # of systemctl: process 1 may wait for a processor longer than 25 s
old=$1 new=$2
unit=tombolod@east
work=$(mktemp -d)
arena=/dev/shm/tombolo.arena
trap 'code=$?; [ $code = 0 ] || { cat "$work"/*.log || true; journalctl --sync; journalctl -p info --no-pager -n 60 -o short-monotonic -u "$unit"; }' EXIT

show() { systemctl show --value -p "$1" "$unit"; }
journal() { journalctl --sync && journalctl --no-pager -o cat -u "$unit"; }
told() { journal | grep -c "Got notification message from PID $1 .*$2" || true; } # PID WORD: how often systemd heard it

until_() { # WHAT COMMAND...
    echo "waits: $1"
    shift
    until "$@"; do sleep 0.3; done
}

is() { # WHAT HAVE WANT
    if [ "$2" != "$3" ]; then
        echo "$1: $2, not $3" >&2
        exit 1
    fi
    echo "$1: $2"
}

install_package() { # by dpkg, with a database of its own: this machine's is not to be read through an emulated CPU
    local database=/var/lib/dpkg-of-test
    mkdir -p $database/info $database/updates
    touch $database/status
    dpkg --admindir $database --force-depends -i "$1"
}

publish() { # NUMBER: and the reader, which was connected all the time, has it
    mkdir -p "$work/$1"
    head -c 300000 /dev/urandom >"$work/$1/weights.bin"
    tombolo publish policy --version "$1" --timeout 120s "$work/$1" >>"$work/publish.log" 2>&1
    until_ "version $1 at the reader" has "$1"
}
has() { compgen -G "$work/into/*-*$1/STABLE" >/dev/null && cmp "$work/$1/weights.bin" "$work"/into/*-*"$1"/weights.bin; }

other_process() { # PID: another one is ready. Asked once, as it may change between two questions
    local state
    state=$(systemctl show -p SubState,MainPID "$unit")
    grep -qx SubState=running <<<"$state" && ! grep -qx "MainPID=$1" <<<"$state"
}
is_ready_again() { [ "$(told "$first" READY=1)" = 2 ] && [ "$(show SubState)" = running ]; }
was_fed() { [ "$(show WatchdogTimestampMonotonic)" != "$1" ]; }

is "process 1" "$(cat /proc/1/comm)" systemd
systemctl log-level debug # what units tell it comes into the journal
install_package "$old"
is "the configuration's folder" "$(stat -c '%U:%G %a' /etc/tombolo)" "root:tombolo 750"
tombolo init --quiet east --peer west --listen 127.0.0.1:7400 --arena 64MiB
sed -i '/^peers:/,/west-ca/c peers: {}' /etc/tombolo/east.yaml # west is never there

# A key that root alone may read, which systemd hands over, as docs/install.md has it.
key=/etc/tombolo/east/gw.key
chown root:root $key
mkdir -p "/run/systemd/system/$unit.service.d"
printf '[Service]\nLoadCredential=gw.key:%s\n' $key >"/run/systemd/system/$unit.service.d/key.conf"
sed -i "s,key: $key,key: /run/credentials/$unit.service/gw.key," /etc/tombolo/east.yaml
systemctl daemon-reload

mistyped=0
systemctl start tombolod@eats 2>"$work/mistyped" || mistyped=$?
is "a name without a configuration is refused" "$((mistyped > 0))" 1

systemctl start "$unit" # returns once it is ready
is "the key is root's alone" "$(stat -c '%U:%G %a' $key)" "root:root 600"
is "the gateway has systemd's copy of it" "$(grep -c /run/credentials /etc/tombolo/east.yaml)" 1
first=$(show MainPID)
is "started" "$(show ActiveState) $(show StatusText)" "active serves"
is "READY" "$(told "$first" READY=1)" 1
kept=$(show NFileDescriptorStore)
is "control, session, the link and readers have their listeners in the descriptor store" "$((kept >= 3))" 1
memory=$(stat -c %i $arena)
mkdir "$work/into"
tombolo subscribe policy --follow --into "$work/into" >"$work/reader.log" 2>&1 &
reader=$!
publish 1

systemctl reload "$unit"
until_ "READY again" is_ready_again
is "RELOADING" "$(told "$first" RELOADING=1)" 1
is "the same process after a reload" "$(show MainPID)" "$first"

fed=$(show WatchdogTimestampMonotonic)
until_ "a sign of life" was_fed "$fed"
is "it was of the main loop" "$(($(told "$first" WATCHDOG=1) > 0))" 1

# A client that connects during an upgrade is served by the next process.
(
    while [ ! -e "$work/upgraded" ]; do
        if (exec 3<>/dev/tcp/127.0.0.1/7400) 2>>"$work/refused"; then echo >>"$work/connected"; fi
        sleep 0.1
    done
) &
clients=$!
install_package "$new"
touch "$work/upgraded"
wait $clients
second=$(show MainPID)
is "upgraded: another process" "$(show ActiveState) $((second != first))" "active 1"
is "STOPPING" "$(told "$first" STOPPING=1)" 1
is "it was no failure" "$(show NRestarts)" 0
is "refused in the meantime" "$(cat "$work/refused")" ""
is "connected in the meantime" "$(($(wc -l <"$work/connected") > 0))" 1
is "as many listeners are kept" "$(show NFileDescriptorStore)" "$kept"
is "the arena" "$(stat -c %i $arena)" "$memory"
is "version 1 was kept" "$(journal | grep -o 'arena.open .*regions=1 dropped=0' | wc -l)" 1
publish 2

systemctl kill --kill-whom=main -s KILL "$unit"
until_ "another process after kill -9" other_process "$second"
third=$(show MainPID)
is "restarts" "$(show NRestarts)" 1
is "as many listeners are kept" "$(show NFileDescriptorStore)" "$kept"
is "the arena" "$(stat -c %i $arena)" "$memory"
publish 3

kill -STOP "$third"
until_ "another process, as nobody fed the watchdog" other_process "$third"
is "restarts" "$(show NRestarts)" 2
is "by the watchdog" "$(journal | grep -c "Watchdog timeout")" 1
publish 4
is "the reader is the same process" "$(kill -0 $reader && echo yes)" yes

kill $reader
wait $reader || true
systemctl stop "$unit"
is "stopped" "$(show ActiveState) $(show Result)" "inactive success"
echo ALL DONE
