"""Real vLLM on the CPU, behind a real gateway: versions get into its live weights.

Covers: python/tombolo/integrations/__init__.py python/tombolo/integrations/replica.py python/tombolo/integrations/vllm.py
Covers: python/tombolo/integrations/vllm_classes.py python/tombolo/integrations/vllm_trainer.py python/tombolo/layouts/ways.py
Covers: python/tombolo/integrations/vllm_loader.py
"""

import contextlib
import json
import os
import re
import sys
import threading
import urllib.error
import urllib.request

import engines
import tiny
from engines import install, one_site, ours, outputs_of, raised, says, staged, update, workers
from harness import PATIENCE_S, Process, expect, main, scenario, wait_for

import tombolo


@scenario
def an_engine_in_this_process_changes_over(lab):
    """P1 P2: each version serves as an engine that loaded it from disk does. A version that does not come,
    or that the loader fails on, leaves the one before in place, also the first one."""
    fail = lab.dir / "fail"
    install(lab, VLLM_ENABLE_V1_MULTIPROCESSING=0, TB_FAIL_FILE=fail)
    a, b, c = (lab.dir / name for name in "abc")
    weights = {folder: tiny.save(folder, seed) for seed, folder in enumerate((a, b, c), 1)}
    one_site(lab)
    llm = ours(a)
    of_a = says(llm)
    tombolo.publish("policy", 1, weights[b], run="key").wait_held()
    llm.init_weight_transfer_engine({"init_info": {"model": "policy", "timeout_s": PATIENCE_S, "unknown": 1}})
    replica = workers(llm).weight_transfer_engine.tombolo
    expect("ways", {replica.ways.of["model.norm"], replica.ways.of["model.layers.0.mlp.down_proj"]}, {"boxes", "layerwise"})
    replica.timeout_s = 0.2 # of the version that does not come
    raised(lambda: update(llm, 9), "cannot stage version 9")
    replica.timeout_s = PATIENCE_S
    expect("nothing was touched", says(llm), of_a)
    fail.touch()
    raised(lambda: update(llm, 1), "cannot load version 1", "a fault of the test")
    expect("the weights of the start serve", says(llm), of_a)
    update(llm, 1)
    of_b = says(llm)
    tombolo.publish("policy", 2, weights[c], run="key")
    staged(llm, 2)
    expect("before the pause", says(llm), of_b)
    fail.touch()
    raised(lambda: update(llm, 2), "cannot load version 2", "a fault of the test")
    expect("the version before serves", (says(llm), llm.collective_rpc("tombolo_version")), (of_b, [1]))
    update(llm, 2)
    of_c = says(llm)
    expect("version", (llm.get_weight_version(), llm.collective_rpc("tombolo_version")), ("2", [2]))
    name = "model.layers.0.mlp.up_proj.weight"
    tombolo.publish("policy", 3, {**weights[b], name: weights[b][name][:64].clone()}, run="key")
    raised(lambda: update(llm, 3), f"{name}: this engine's is BF16[128, 64], and version 3 has BF16[64, 64]")
    expect("another model's is refused", says(llm), of_c)
    tombolo.publish("policy", 4, weights[b], run="key")
    llm.collective_rpc("tombolo_update", args=(4,))  # the extension alone
    expect("by one call", says(llm), of_b)
    del llm
    expect("as from disk", [of_b, of_c], outputs_of(b, c))
    tombolo.close_publishers()


@scenario
def an_engine_starts_from_a_version_and_is_written_in_place(lab):
    """P1 P2: an engine gets exactly the version that it asks for, or does not start. Where nothing is computed from
    weights, as on a GPU, versions are written into the live parameters. A version of another model is refused."""
    install(lab, VLLM_ENABLE_V1_MULTIPROCESSING=0, TB_NO_PREPACK=1)
    a, b, c = (lab.dir / name for name in "abc")
    weights = {folder: tiny.save(folder, seed) for seed, folder in enumerate((a, b, c), 1)}
    one_site(lab)
    tombolo.publish("policy", 4, weights[b], run="key")
    wanted = {"load_format": "tombolo", "model_loader_extra_config": {"model": "policy", "version": 5, "timeout_s": 1}}
    raised(lambda: ours(a, **wanted), "policy 5")
    wanted["model_loader_extra_config"]["version"] = 4
    llm = ours(a, **wanted)
    of_b = says(llm)
    expect("version", llm.collective_rpc("tombolo_version"), [4])
    llm.init_weight_transfer_engine({"init_info": {"timeout_s": PATIENCE_S, "direct": ["UnquantizedLinearMethod", "UnquantizedEmbeddingMethod"]}})
    replica = workers(llm).weight_transfer_engine.tombolo
    expect("by name", (replica.ways.named, replica.ways.of["model.layers.0.mlp.down_proj"]), ([], "boxes"))
    before = {name: p.data_ptr() for name, p in replica.model.named_parameters()}
    tombolo.publish("policy", 5, weights[c], run="key")
    staged(llm, 5)
    expect("before the pause", says(llm), of_b)
    update(llm, 5)
    of_c = says(llm)
    expect("the same memory", {name: p.data_ptr() for name, p in replica.model.named_parameters()}, before)
    other = {**weights[b], "model.norm.weight": weights[b]["model.norm.weight"][:32].clone()}
    tombolo.publish("policy", 6, other, run="key")
    raised(lambda: update(llm, 6), "model.norm.weight")
    expect("nothing was touched", says(llm), of_c)
    del llm
    expect("as from disk", [of_b, of_c], outputs_of(b, c))
    tombolo.close_publishers()


@scenario
def experts_get_the_weights_of_their_version(lab):
    """P1: of a mixture of experts the weights are compared, as vLLM's outputs on a CPU are wrong after any reload."""
    install(lab, VLLM_ENABLE_V1_MULTIPROCESSING=0, TB_NO_PREPACK=1)
    a, b = lab.dir / "a", lab.dir / "b"
    tiny.save(a, 1, experts=True)
    weights = tiny.save(b, 2, experts=True)
    one_site(lab)
    tombolo.publish("policy", 1, weights, run="key").wait_held()
    llm = ours(a)
    llm.init_weight_transfer_engine({"init_info": {"direct": ["UnquantizedLinearMethod", "UnquantizedEmbeddingMethod"]}})
    of = workers(llm).weight_transfer_engine.tombolo.ways.of
    expect("two ways in one model", {"boxes", "layerwise"} <= set(of.values()), True)
    update(llm, 1)
    mine = {name: p.detach().clone() for name, p in workers(llm).weight_transfer_engine.model.named_parameters()}
    del llm
    theirs = dict(workers(ours(b)).weight_transfer_engine.model.named_parameters())
    expect("names", sorted(mine), sorted(theirs))
    expect("differ", [name for name in mine if not mine[name].equal(theirs[name])], [])
    tombolo.close_publishers()


@scenario
def two_ranks_change_over_together(lab):
    """P2: in processes of their own. A call that fails on one rank fails on both, before anything is touched or with the version
    before put back; replies of later calls are those of these calls."""
    fail = lab.dir / "fail"
    install(lab, TB_FAIL_FILE=fail, TB_FAIL_LOAD="5:0")
    a, b, c = (lab.dir / name for name in "abc")
    weights = {folder: tiny.save(folder, seed, kv_heads=1) for seed, folder in enumerate((a, b, c), 1)}
    one_site(lab)
    tombolo.publish("policy", 1, weights[b], run="key")
    llm = ours(a, tensor_parallel_size=2)
    of_a = says(llm)
    for timeout_s in (PATIENCE_S, 0.2): # the same replicas; the latter of the version that does not come
        llm.init_weight_transfer_engine({"init_info": {"timeout_s": timeout_s}})
    raised(lambda: update(llm, 9), "cannot stage version 9", "rank 0", "rank 1")
    raised(llm.finish_weight_update)  # closes the session of the rank that did not raise
    llm.init_weight_transfer_engine({"init_info": {"timeout_s": PATIENCE_S}})
    expect("its own reply", llm.collective_rpc("tombolo_version"), [None, None])
    fail.touch()
    raised(lambda: update(llm, 1), "cannot load version 1", "rank 0: OSError: a fault of the test")
    raised(llm.finish_weight_update)
    expect("its own reply", llm.collective_rpc("tombolo_stage", args=(1,)), [True, True])
    expect("the weights of the start serve", says(llm), of_a)
    fail.touch()
    raised(lambda: llm.collective_rpc("tombolo_update", args=(1,)), "a fault of the test")  # one call has no session
    expect("its own reply", llm.collective_rpc("tombolo_version"), [None, None])
    update(llm, 1)
    of_b = says(llm)
    expect("version", (llm.get_weight_version(), llm.collective_rpc("tombolo_version")), ("1", [1, 1]))
    tombolo.publish("policy", 2, weights[c], run="key")
    staged(llm, 2)
    fail.touch()
    raised(lambda: update(llm, 2), "cannot load version 2", "rank 0: OSError: a fault of the test")
    raised(llm.finish_weight_update)
    expect("its own reply", llm.collective_rpc("tombolo_version"), [1, 1])
    expect("the version before serves", (says(llm), llm.get_weight_version()), (of_b, "1"))
    update(llm, 2)
    of_c = says(llm)
    expect("version", (llm.get_weight_version(), llm.collective_rpc("tombolo_version")), ("2", [2, 2]))
    engines.ended(llm)
    del llm
    expect("as from disk", [of_a != of_b, of_b, of_c], [True, *outputs_of(b, c, tensor_parallel_size=2)])
    tombolo.close_publishers()


class Http:
    """A server of vLLM's, in processes of its own."""

    def __init__(self, lab, model):
        self.port = lab.free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.process = Process("vllm", [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", model, "--host", "127.0.0.1", "--port",
                                        self.port, "--skip-tokenizer-init", "--enforce-eager", "--max-model-len", 4096, "--max-num-seqs", 4,
                                        "--enable-scale-out", "--weight-transfer-config", '{"backend": "tombolo"}', "--worker-extension-cls",
                                        "tombolo.integrations.vllm.Extension", "--middleware", "tombolo.integrations.gate.Gate"],
                               lab.dir / "vllm.log", env={**os.environ, "VLLM_SERVER_DEV_MODE": "1", "VLLM_LOGGING_LEVEL": "INFO",
                                                                  "VLLM_LOGGING_STREAM": "ext://sys.stderr"})
        lab.processes.append(self.process)
        self.model = str(model)
        wait_for("the server answers", self.answers)

    def answers(self):
        expect("the server lives", self.process.alive(), True)
        with contextlib.suppress(OSError):
            return self.call("GET", "/health")[0] == 200
        return False

    def call(self, method, path, body=None, **headers):
        request = urllib.request.Request(self.url + path, method=method, data=None if body is None else json.dumps(body).encode(),
                                         headers={"Content-Type": "application/json", **headers})
        try:
            with urllib.request.urlopen(request, timeout=300) as answer:
                text, status, given = answer.read().decode(), answer.status, answer.headers
        except urllib.error.HTTPError as error:
            text, status, given = error.read().decode(), error.code, error.headers
        return status, json.loads(text) if text[:1] in ("{", "[") else text, given.get("x-tombolo-version")

    def ok(self, method, path, body=None):
        status, said, _ = self.call(method, path, body)
        expect(f"{path}: {said}", status, 200)
        return said

    def tokens(self, prompt, count, query="", **headers):
        status, said, version = self.call("POST", "/inference/v1/generate" + query, {
            "model": self.model, "token_ids": prompt,
            "sampling_params": {"temperature": 0, "max_tokens": count, "ignore_eos": True, "detokenize": False}}, **headers)
        return (status, version, said["choices"][0]) if status == 200 else (status, version, said)

    def stage(self, version):
        wait_for("it is staged while the server serves", lambda: self.ok("POST", "/collective_rpc", {
            "method": "tombolo_stage", "args": [str(version)]})["results"] == ["True"])

    def ways(self):
        """{way: layers}, once the worker's log has all three."""
        said = dict(re.findall(r"layout\.way way=(\w+) layers=\d+ which=(\S*)\n", self.process.log_path.read_text()))
        return said if {"boxes", "named", "layerwise"} <= said.keys() else None

    def running(self):
        """Requests that the engine computes at this moment."""
        found = re.search(r"^vllm:num_requests_running\{.*\} ([0-9.]+)$", self.ok("GET", "/metrics"), re.M)
        return found is not None and float(found.group(1)) > 0


@scenario
def a_server_changes_over_under_a_request(lab):
    """P2: the trainer's side of vLLM publishes and updates; then the phases over HTTP, with a request in flight whose
    spans say which version made which token. The gate admits by version."""
    install(lab)
    a, b, c = (lab.dir / name for name in "abc")
    weights = {folder: tiny.save(folder, seed) for seed, folder in enumerate((a, b, c), 1)}
    one_site(lab)
    server = Http(lab, a)
    prompt = engines.PROMPTS[0]["prompt_token_ids"]
    status, version, of_a = server.tokens(prompt, 12)
    expect("of the start", (status, version), (200, None))
    from vllm.distributed.weight_transfer import HTTPVLLMWeightSyncClient, WeightTransferTrainerFactory

    from tombolo.integrations import vllm, vllm_trainer
    vllm.register()
    init, client = vllm_trainer.TrainerInit(rank=0, trainer={"run": "key"}), HTTPVLLMWeightSyncClient(server.url)
    trainer = WeightTransferTrainerFactory.trainer_init(init, client=client, source=list(weights[b].items()))
    trainer.send_weights()
    status, version, of_b = server.tokens(prompt, 12)
    expect("by the trainer's side", (status, version, of_b["token_ids"] != of_a["token_ids"]), (200, "1", True))
    ways = wait_for("the log says all ways", server.ways)
    expect("the log", {"model.layers.0-1.mlp.down_proj"} <= set(ways["layerwise"].split(",")), True)
    expect("the log", {"model.norm"} <= set(ways["boxes"].split(",")), True)
    trainer.source = list(weights[c].items())
    trainer.step += 1
    trainer.core.publish_named(2, trainer.source).wait_held()
    server.stage(2)
    flying = {}
    thread = threading.Thread(target=lambda: flying.update(said=server.tokens([7, 300, 2, 44, 51], 4000)))
    thread.start()
    wait_for("a request is in flight", server.running)
    server.ok("POST", "/pause?mode=keep")
    expect("it goes on later", "said" in flying, False)
    server.ok("POST", "/start_weight_update")
    server.ok("POST", "/update_weights", {"update_info": {"version": 2}})
    server.ok("POST", "/finish_weight_update", {"weight_version": "2"})
    server.ok("POST", "/resume")
    thread.join()
    status, version, said = flying["said"]
    spans = [(s["start"], s["end"], s["version"]) if isinstance(s, dict) else tuple(s) for s in said["weight_versions"]]
    expect("tokens", (status, version, len(said["token_ids"])), (200, "1-2", 4000))
    expect(f"spans {spans}", sorted(str(v) for span in spans for v in span), sorted(["0", str(spans[0][1]), "1", str(spans[0][1]), "4000", "2"]))
    server.ok("POST", "/reset_prefix_cache")
    expect("it serves", server.ok("GET", "/weight_info")["weight_version"], "2")
    status, _, said = server.tokens(prompt, 12, "?exact=3")
    expect("409", (status, said["served"], said["coming"]), (409, 2, None))
    status, version, of_c = server.tokens(prompt, 12, **{"x-tombolo-min-version": "2"})
    expect("admitted", (status, version), (200, "2"))
    expect("a bad phase", server.call("POST", "/update_weights", {"update_info": {"version": 2}})[0], 500)
    expect("the server ends", server.process.terminate(), 0)
    trainer.shutdown()
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    disk = outputs_of(a, b, c)
    expect("as from disk", [tuple(said["token_ids"]) for said in (of_a, of_b, of_c)], [said[0][0] for said in disk])


if __name__ == "__main__":
    engines.end(main)
