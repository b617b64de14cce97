"""Real vLLM on the CPU, behind a real gateway: versions get into its live weights.

Covers: python/tombolo/integrations/__init__.py python/tombolo/integrations/replica.py python/tombolo/integrations/vllm.py
Covers: python/tombolo/integrations/vllm_classes.py python/tombolo/layouts/ways.py
"""

import engines
import tiny
from engines import install, one_site, ours, says, update, workers
from harness import Failed, expect, main, scenario, wait_for

import tombolo


def raised(call, *words):
    try:
        call()
    except Exception as error:  # vLLM wraps as it likes
        for word in words:
            expect(f"{word!r} in {error}", word in str(error), True)
        return error
    raise Failed("nothing was raised")


def outputs_of(*folders):
    """Of engines that loaded these checkpoints from disk."""
    found = []
    for folder in folders:
        llm = engines.engine(folder)
        found.append(says(llm))
        del llm
    expect("weights that differ say different things", len({str(f) for f in found}), len(folders))
    return found


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
    tombolo.publish("policy", 1, weights[b], run="key")
    llm.init_weight_transfer_engine({"init_info": {"model": "policy", "timeout_s": 2, "unknown": 1}})
    of = workers(llm).weight_transfer_engine.tombolo.ways.of
    expect("ways", {of["model.norm"], of["model.layers.0.mlp.down_proj"]}, {"boxes", "layerwise"})
    raised(lambda: update(llm, 9), "cannot stage version 9")
    expect("nothing was touched", says(llm), of_a)
    fail.touch()
    raised(lambda: update(llm, 1), "cannot load version 1", "a fault of the test")
    expect("the weights of the start serve", says(llm), of_a)
    update(llm, 1)
    of_b = says(llm)
    tombolo.publish("policy", 2, weights[c], run="key")
    wait_for("it is staged while the engine serves", lambda: llm.collective_rpc("tombolo_stage", args=(2,)) == [True])
    expect("before the pause", says(llm), of_b)
    fail.touch()
    raised(lambda: update(llm, 2), "cannot load version 2", "a fault of the test")
    expect("the version before serves", (says(llm), llm.collective_rpc("tombolo_version")), (of_b, [1]))
    update(llm, 2)
    of_c = says(llm)
    expect("version", (llm.get_weight_version(), llm.collective_rpc("tombolo_version")), ("2", [2]))
    tombolo.publish("policy", 3, weights[b], run="key")
    llm.collective_rpc("tombolo_update", args=(3,))  # the extension alone
    expect("by one call", says(llm), of_b)
    del llm
    expect("as from disk", [of_a, of_b, of_c], outputs_of(a, b, c))
    tombolo.close_publishers()


if __name__ == "__main__":
    engines.end(main)
