#!/usr/bin/env python3
"""The files of deploy/ for clusters and for a gateway's machine: overlays, images, firewall, sysctls;
and workers with certificates of a platform.

Covers: base/net/spiffe.c gateway/config/gateway_tls.c gateway/daemon/certificates.c
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

from harness import BUILD, SOURCE, TOMBOLO, Failed, Rollout, Skipped, Trainer, Worker, expect, main, scenario
from harness import wait_for
from platform_certificates import platform_certificate

DEPLOY = SOURCE / "deploy"
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "tombolo-kubernetes"
KUBERNETES = ("1.27", "1.37")  # the schemas that deploy/setup keeps
DRAIN_S = 10  # drain_ms unless a configuration says otherwise


def run(*argv, **kwargs):
    done = subprocess.run([str(a) for a in argv], capture_output=True, text=True, check=False, **kwargs)
    expect(f"{argv[0]}: {done.stdout[-3000:]}{done.stderr[-3000:]}", done.returncode, 0)
    return done.stdout


# ---- Kubernetes ----

def rendered(overlay):
    """The output of `kubectl kustomize`: {kind: {name: object}}; each one is as the API wants it."""
    if not (CACHE / "kubectl").exists():
        raise Skipped("kubectl and the API's schemas are not here (deploy/setup --tests fetches them)")
    sys.path.insert(0, str(CACHE / "python"))
    import kubernetes_validate
    import yaml
    found = {}
    for thing in yaml.safe_load_all(run(CACHE / "kubectl", "kustomize", DEPLOY / "kubernetes" / overlay)):
        for version in KUBERNETES:
            try:
                kubernetes_validate.validate(thing, version, strict=True)
            except kubernetes_validate.ValidationError as why:
                name = f"{thing['kind']} {thing['metadata']['name']}"
                raise Failed(f"{overlay}: {name}, Kubernetes {version}: {why.message}") from None
        found.setdefault(thing["kind"], {})[thing["metadata"]["name"]] = thing
    return found


def check_pod(overlay, things, stateful):
    """An end within its grace, no right that it does not need, volumes that are there. Its configuration."""
    pod = stateful["spec"]["template"]["spec"]
    expect(f"{overlay}: grace above the drain", pod["terminationGracePeriodSeconds"] > DRAIN_S, True)
    expect(f"{overlay}: no root", pod["securityContext"]["runAsNonRoot"], True)
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    volumes.update((claim["metadata"]["name"], claim) for claim in stateful["spec"]["volumeClaimTemplates"])
    for container in pod["containers"]:
        rights = container["securityContext"]
        kept = rights["allowPrivilegeEscalation"], rights["readOnlyRootFilesystem"], rights["capabilities"]
        expect(f"{overlay}: rights of {container['name']}", kept, (False, True, {"drop": ["ALL"]}))
        for mount in container["volumeMounts"]:
            expect(f"{overlay}: volume {mount['name']} is there", mount["name"] in volumes, True)
    gateway = next(c for c in pod["containers"] if c["name"] == "gateway")
    expect(f"{overlay}: probes", {"startupProbe", "livenessProbe"} <= set(gateway), True)
    name = volumes["config"]["configMap"]["name"]
    expect(f"{overlay}: its configuration is rendered", name in things["ConfigMap"], True)
    return things["ConfigMap"][name]["data"]


def check_config(lab, overlay, files):
    """`tombolo config check` takes the configuration, with the pod's folders in ours."""
    import yaml
    config = yaml.safe_load(files["gateway.yaml"].replace("POD_IP", "127.0.0.1"))
    here = lab.dir / f"{overlay}-{config['site']}"
    for folder in ("config", "tls", "peers", "run"):
        (here / folder).mkdir(parents=True)
    for name, text in files.items():
        (here / "config" / name).write_text(text)
    pki = lab.pki_dir(config["site"])  # as cert-manager names them
    for ours, theirs in (("ca.crt", "ca.crt"), ("gw.crt", "tls.crt"), ("gw.key", "tls.key")):
        shutil.copy(pki / ours, here / "tls" / theirs)
    for peer in config["peers"]:
        shutil.copy(lab.pki_dir(peer) / "ca.crt", here / "peers" / f"{peer}.crt")
    config["arena"] = {"path": str(lab.arena_dir / "pod.arena"), "bytes": 16 << 20}
    config["store"] = {"path": str(here / "run/store.sqlite")}
    config["session"]["socket"], config["control"]["socket"] = str(here / "run/s"), str(here / "run/c")
    text = json.dumps(config).replace("/etc/tombolo/", f"{here}/").replace("/run/tombolo/", f"{here}/run/")
    (here / "gateway.yaml").write_text(text)
    run(TOMBOLO, "config", "check", here / "gateway.yaml")


@scenario
def overlays_are_as_the_api_wants_them(lab):
    """Both overlays, rendered; and each gateway's configuration in them is one that starts."""
    for overlay, sites in (("host-network", ["east", "west"]), ("load-balancer", ["east"])):
        things = rendered(overlay)
        expect(f"{overlay}: its sets", sorted(things["StatefulSet"]), [f"{site}-gateway" for site in sites])
        for stateful in things["StatefulSet"].values():
            labels = stateful["spec"]["template"]["metadata"]["labels"].items()
            own = stateful["spec"]["selector"]["matchLabels"].items()
            selectors = [policy["spec"]["podSelector"] for policy in things["NetworkPolicy"].values()]
            policies = [selector["matchLabels"].items() for selector in selectors]
            expect(f"{overlay}: its pods", own <= labels, True)
            expect(f"{overlay}: their policies", sum(wanted <= labels for wanted in policies), 1)
            check_config(lab, overlay, check_pod(overlay, things, stateful))


# ---- a gateway's machine ----

@scenario
def the_firewall_is_one(lab):
    """nft takes the sample, and takes it again over itself: in a network of its own."""
    if shutil.which("nft") is None:
        raise Skipped("no nft here (deploy/setup --tests installs it)")
    if subprocess.run(["unshare", "-n", "true"], capture_output=True, check=False).returncode != 0:
        raise Skipped("no network namespace may be made here")
    rules = DEPLOY / "network/gateway.nft"
    run("unshare", "-n", "nft", "-c", "-f", rules)
    table = run("unshare", "-n", "sh", "-ec", f"nft -f {rules}; nft -f {rules}; nft list table inet tombolo")
    closed = re.search(r"dport \{([^}]*)\} counter.* drop", table).group(1)
    expect("ports that are closed to the rest", sorted(map(int, closed.split(","))), [7400, 7401, 7402, 9464])
    expect("rules are there once", table.count("accept") - table.count("policy accept"), 6)


@scenario
def each_sysctl_has_a_reason_and_is_one(lab):
    """A comment stands above each line, and the kernel takes each value, in a network of its own."""
    lines = (DEPLOY / "network/gateway-sysctl.conf").read_text().splitlines()
    settings = [(lines[i - 1], *map(str.strip, line.split("=", 1)))
                for i, line in enumerate(lines) if line and not line.startswith("#")]
    expect("settings", len(settings) >= 5, True)
    for reason, key, _ in settings:
        expect(f"{key} has a reason", reason.startswith("# "), True)
    if subprocess.run(["unshare", "-n", "true"], capture_output=True, check=False).returncode != 0:
        raise Skipped("no network namespace may be made here; each line has its reason")
    for _, key, value in settings:
        path = "/proc/sys/" + key.replace(".", "/")
        expect(f"{key} is there", pathlib.Path(path).exists(), True)
        if key == "net.ipv4.tcp_allowed_congestion_control":  # the whole machine's, and needs modules
            continue
        took = run("unshare", "-n", "sh", "-ec", f"echo '{value}' >{path}; cat {path}")
        expect(key, took.split(), value.split())


# ---- images ----

@scenario
def images_are_made_and_run(lab):
    """The images of deploy/containers: as another user than root, with what the packages have inside."""
    for program in ("buildah", "mmdebstrap", "cpack"):
        if shutil.which(program) is None:
            raise Skipped(f"no {program} here")
    (lab.dir / "packages").mkdir()
    run(DEPLOY / "pack", BUILD, lab.dir / "packages")
    run(DEPLOY / "containers/build", lab.dir / "packages")
    imports = ["/usr/bin/python3", "-c", "import tombolo; print(tombolo.publish)"]
    for name, said, *argv in (("gateway", "tombolod", "tombolod", "--version"),
                              ("gateway", "7400", "id", "-u"),
                              ("worker", "publish", *imports)):
        container = run("buildah", "from", f"localhost/tombolo-{name}").strip()
        try:
            output = run("buildah", "run", "--isolation", "chroot", container, "--", *argv)
            expect(f"{name}: {output}", said in output, True)
        finally:
            run("buildah", "rm", container)


# ---- certificates of a platform ----

@scenario
def a_worker_with_a_spiffe_certificate_follows(lab):
    """P8: it has the identity of its line in tls.spiffe, with the rights of that. Without a line it gets in
    no more, and no restart is needed for that."""
    site, platform = lab.site("east", arena_mib=64), lab.dir / "platform"
    platform_certificate(platform, "spiffe://cluster.example/ns/rl/sa/rollout-3")
    trusted, spiffe = lab.pki_dir("east") / "ca.crt", lab.dir / "spiffe"
    trusted.write_bytes(trusted.read_bytes() + (platform / "ca.crt").read_bytes())
    spiffe.write_text("spiffe://cluster.example/ns/rl/sa/rollout-*  tombolo://east/worker/rollout-*\n")
    address = f"{lab.address}:{site.worker_port}"
    site.extra.update(session={"listen": address}, tls={"spiffe": spiffe})
    site.models["policy"] = dict(home="east", read=["tombolo://east/worker/rollout-*"])
    site.start()
    path = lab.weights(1)[0]
    uid = Trainer(lab, site, path).publish(1)
    tls = dict(gateway=address, ca=str(trusted), cert=str(platform / "w.crt"), key=str(platform / "w.key"))
    reader = Rollout(lab, site, "rollout", path, host="elsewhere", **tls)
    reader.stage(uid)
    reader.activate(uid)
    reader.check(path)
    identities = [s["identity"] for s in site.control("status")["sessions"]]
    expect("its identity", "tombolo://east/worker/rollout-3" in identities, True)
    spiffe.write_text("spiffe://cluster.example/ns/rl/sa/other  tombolo://east/worker/other\n")
    wait_for("the list is read again", lambda: site.counters()["certificates_loaded"] > 0)
    reply = Worker(lab, "again").call("open", name="again", timeout_ms=3000, **tls)
    expect("another start of it", reply["status"] == "ok", False)
    why = "no identity is listed for the SPIFFE URI"
    wait_for("the gateway says why", lambda: why in site.daemon.log_path.read_text())


if __name__ == "__main__":
    sys.exit(main())
