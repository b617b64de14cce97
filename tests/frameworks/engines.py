"""vLLM for tests: its environment, a tiny engine, and what it says."""

import os
import pathlib
import sys
import traceback
from multiprocessing import resource_tracker

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "python")]
import packages  # noqa: E402

packages.run_in("vllm")
from harness import PATIENCE_S, Failed, expect, wait_for  # noqa: E402

TOMBOLO_PLUGINS = "[vllm.general_plugins]\ntombolo_tests = vllm_on_a_cpu:register\n"
PROMPTS = ({"prompt_token_ids": [1, 5, 9, 33]}, {"prompt_token_ids": [7, 300, 2, 44, 51]})
SETTINGS = dict(VLLM_CPU_KVCACHE_SPACE="1", HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1", VLLM_LOGGING_LEVEL="WARNING", OMP_NUM_THREADS="1",
                VLLM_CPU_OMP_THREADS_BIND="nobind", VLLM_ALLOW_INSECURE_SERIALIZATION="0", DO_NOT_TRACK="1")


def install(lab, **settings):
    """As pip would: entry points that vLLM finds in each of its processes. They come from
    pyproject.toml."""
    sys.path.insert(0, str(packages.SOURCE / "python"))
    import build_backend
    build_backend.prepare_metadata_for_build_wheel(lab.dir)
    tests = lab.dir / "tombolo_tests-1.dist-info"
    tests.mkdir()
    (tests / "METADATA").write_text("Metadata-Version: 2.1\nName: tombolo_tests\nVersion: 1\n")
    (tests / "entry_points.txt").write_text(TOMBOLO_PLUGINS)
    paths = [str(lab.dir), str(packages.SOURCE / "python"), str(HERE)]
    sys.path[:0] = paths
    os.environ.update(SETTINGS, PYTHONPATH=os.pathsep.join(paths), VLLM_CACHE_ROOT=str(lab.dir / "vllm"), XDG_CACHE_HOME=str(lab.dir / "cache"),
                      VLLM_RPC_BASE_PATH=str(lab.arena_dir), # its sockets, which it leaves; their paths have to be short
                      **{key: str(value) for key, value in settings.items()})


def one_site(lab, keep=4):
    site = lab.site("east")
    site.models["policy"] = dict(home="east", keep=keep)
    site.start()
    os.environ["TOMBOLO_GATEWAY"] = f"unix:{site.session_socket}"
    return site


def engine(model, **options):
    from vllm import LLM
    return LLM(model=str(model), skip_tokenizer_init=True, enforce_eager=True, max_model_len=128, max_num_seqs=4, **options)


def outputs_of(*folders, **options):
    """Of engines that loaded these checkpoints from disk."""
    found = []
    for folder in folders:
        llm = engine(folder, **options)
        found.append(says(llm))
        if "tensor_parallel_size" in options:
            ended(llm)
        del llm
    expect("weights that differ say different things", len({str(f) for f in found}), len(folders))
    return found


def ended(llm):
    """An engine of several processes: they have the time to end by themselves. multiprocessing's
    own process, which gives their memory back, would stay as long as this one."""
    llm.llm_engine.engine_core.shutdown(timeout=PATIENCE_S)
    resource_tracker._resource_tracker._stop()


def ours(model, **options):
    from vllm.config import WeightTransferConfig
    return engine(model, weight_transfer_config=WeightTransferConfig(backend="tombolo"), worker_extension_cls="tombolo.integrations.vllm.Extension",
                  **options)


def says(llm):
    """Tokens, and the logprobs that only the same weights give."""
    from vllm import SamplingParams
    llm.reset_prefix_cache()
    done = llm.generate(list(PROMPTS), SamplingParams(temperature=0, max_tokens=12, detokenize=False, ignore_eos=True, logprobs=1), use_tqdm=False)
    return [(tuple(x.outputs[0].token_ids), x.outputs[0].cumulative_logprob) for x in done]


def update(llm, version):
    llm.start_weight_update()
    llm.update_weights({"update_info": {"version": version}})
    llm.finish_weight_update(weight_version=str(version))


def raised(call, *words):
    try:
        call()
    except Exception as error:  # vLLM wraps as it likes
        for word in words:
            expect(f"{word!r} in {error}", word in str(error), True)
        return error
    raise Failed("nothing was raised")


def staged(llm, version):
    """While the engine serves."""
    wait_for(f"version {version} is staged", lambda: all(llm.collective_rpc("tombolo_stage", args=(version,))))


def end(main):
    """With the scenario's result, whatever threads vLLM has left."""
    code = 1
    try:
        code = main()
    except Exception:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def workers(llm):
    """Of an engine in this process: its one worker."""
    return llm.llm_engine.model_executor.driver_worker.worker
