"""A plug-in of the tests beside Tombolo's: what real vLLM needs on a CPU, and faults in its loader.

TB_NO_PREPACK=1: layers keep their weights in the layouts of a GPU. TB_FAIL_LOAD=N:RANK: the loader of that rank fails
after N tensors, while the file TB_FAIL_FILE is there."""

import os
import pathlib


def register():
    import torch
    torch.cpu._init_amx()  # a worker's first product in bfloat16 is killed by SIGILL else
    if os.environ.get("TB_NO_PREPACK") == "1":
        import vllm._custom_ops as ops
        import vllm.model_executor.layers.utils as utils
        utils.check_cpu_sgl_kernel = lambda *_, **__: False
        ops._supports_onednn = False
        import vllm.model_executor.layers.fused_moe.experts.cpu_moe as moe
        moe.cpu_prepack_moe_weight = lambda weight, _: weight  # to compare weights; outputs are wrong
    if "TB_FAIL_FILE" in os.environ:
        from tombolo.integrations.vllm import Worker
        if not hasattr(Worker, "load_unbroken"):
            Worker.load_unbroken, Worker.load = Worker.load, load


def load(worker, pairs):
    count, rank = map(int, os.environ.get("TB_FAIL_LOAD", "5:0").split(":"))

    def broken():
        for at, pair in enumerate(pairs):
            if at == count and rank in (worker.rank, -1) and pathlib.Path(os.environ["TB_FAIL_FILE"]).exists():
                pathlib.Path(os.environ["TB_FAIL_FILE"]).unlink(missing_ok=True)
                raise OSError("a fault of the test")
            yield pair
    worker.load_unbroken(broken())
