"""The rates of the machine itself, each held against a memcpy of the same minute: no goals, but what the other keys are to be read by."""

import contextlib
import re
import subprocess

import harness
import lab as sites
from between_sites import pump_gb_per_s
from measuring import Skip, measurement
from veth import die_with_parent
from vm_lab import in_the_vm
from wan_wire import judged, received_bits

MIB = 1 << 20
ADDRESS, PORT = "127.77.7.7", "5399"
IN_THE_VM = """ib_read_bw -d rxe0 -F -s 65536 -n 200 -p 18516 >/tmp/server 2>&1 &
for i in 1 2 3 4 5 6 7 8 9 10; do
  sleep 1
  if ib_read_bw -d rxe0 -F -s 65536 -n 200 -p 18516 "$TB_VM_ADDRESS" >/tmp/bw 2>&1; then cat /tmp/bw; exit 0; fi
done
cat /tmp/bw; exit 1"""


def memcpy_gb_per_s(bench):
    return sites.tool([bench.memory_copy, "--bytes", 1024 * MIB])["gb_per_s"]


class ThisMachine:
    """The facts of a wire that judged() wants: there is no emulator that could fall behind."""

    def verdict(self):
        return None


def against_memcpy(bench, key, measure):
    yield from judged(bench, ThisMachine(), lambda: {key: (measure(), memcpy_gb_per_s(bench))})


@contextlib.contextmanager
def iperf_server():
    server = subprocess.Popen(["iperf3", "-s", "-B", ADDRESS, "-p", PORT], stdout=subprocess.DEVNULL, preexec_fn=die_with_parent)
    try:
        harness.wait_for("iperf3 listens", lambda: f"{ADDRESS}:{PORT}" in subprocess.run(
            ["ss", "-Hltn"], capture_output=True, text=True, check=False).stdout, timeout_s=20)
        yield
    finally:
        server.kill()
        server.wait()


@measurement("floor.iperf3")
def iperf3(bench):
    def one():
        return received_bits(sites.tool(["iperf3", "-J", "-c", ADDRESS, "-p", PORT, "-P", "2", "-n", "512M"])) / 8e9
    with iperf_server():
        yield from against_memcpy(bench, "floor.iperf3", one)


@measurement("floor.aes")
def aes(bench):
    def one():
        done = subprocess.run(["openssl", "speed", "-mr", "-seconds", "1", "-bytes", "16384", "-evp", "aes-128-gcm"],
                              capture_output=True, text=True, check=True, timeout=60)
        rate = re.search(r"^\+F:\d+:[^:]+:([\d.]+)", done.stdout, re.M)
        if rate is None:
            raise harness.Failed(f"openssl speed said {done.stdout[-200:]!r}")
        return float(rate.group(1)) / 1e9
    yield from against_memcpy(bench, "floor.aes", one)


@measurement("floor.pump")
def pump(bench):
    yield from against_memcpy(bench, "floor.pump", lambda: pump_gb_per_s(bench, 1024 * MIB))


@measurement("floor.ib_read_bw", quick=False)
def ib_read_bw(bench):
    """Over rdma_rxe in an emulated processor: for the ratios of its own boot alone."""
    def one():
        answer = in_the_vm(240, "bash", "-c", IN_THE_VM)
        said = answer["stdout"]
        rows = [line.split() for line in said.splitlines() if re.match(r"^\s*65536\s+\d+", line)]
        if not rows:
            raise Skip(f"ib_read_bw in the VM gave no rate: {(said or answer['stderr']).strip()[-150:]}")
        return float(rows[-1][3]) / 1000  # MB/s
    yield from against_memcpy(bench, "floor.ib_read_bw", one)
