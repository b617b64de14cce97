#!/usr/bin/env python3
"""netem_order.py: beside the sites of a lab by netem, hub sends to kept, free and paced; one
line says how many packets overtook others there. Of jitter that is far longer than what lies
between them nearly all do; where order is to be kept, or there is a rate, only what another
processor hands on later than its neighbours.

Covers: sim/wan/wanlab.py
"""
import json, os, pathlib, subprocess, sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))
from test_wan_lab import COUNT, FLOOD, SINK

# Nobody listens there, and that is an answer.
ANSWERED = """
import errno, socket, sys
sys.exit(0 if socket.socket().connect_ex((sys.argv[1], 9)) == errno.ECONNREFUSED else 1)
"""


def main():
    with open(os.environ["TB_WAN_LAB"], encoding="utf-8") as file:
        sites = {site["name"]: site for site in json.load(file)["sites"]}

    def enter(name, *words):
        return ["ip", "netns", "exec", sites[name]["netns"], sys.executable, "-c", *words]
    names = ("kept", "free", "paced")
    sinks = {name: subprocess.Popen(enter(name, SINK), stdout=subprocess.PIPE, text=True) for name in names}
    for sink in sinks.values():
        sink.stdout.readline()
    for name in names:  # until it is a known neighbour the kernel keeps 92 of these, and drops the others
        subprocess.run(enter("hub", ANSWERED, sites[name]["address"]), check=True)
    subprocess.run(enter("hub", FLOOD, *(sites[name]["address"] for name in names)), check=True)
    came, overtook = {}, {}
    for name, sink in sinks.items():
        came[name], _, overtook[name], _ = json.loads(sink.communicate()[0])
    print(f"of {COUNT} packets came {came}, overtook {overtook}")
    return 0 if min(came.values()) > COUNT / 2 and max(overtook["kept"], overtook["paced"]) < COUNT / 2 < overtook["free"] else 1


if __name__ == "__main__":
    sys.exit(main())
