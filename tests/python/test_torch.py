"""The package with torch, in the environment of tests/frameworks: tensors of each kind, and the examples.

Covers: python/tombolo/memory.py python/tombolo/layouts/dtensor.py python/tombolo/following.py
"""

import contextlib
import ctypes
import io
import itertools
import os
import runpy
import sys

import packages

packages.run_in("torch")

import numpy  # noqa: E402
import torch  # noqa: E402
from harness import PATIENCE_S, Failed, expect, main, scenario  # noqa: E402

import tombolo  # noqa: E402
from tombolo.memory import scatter, view_of  # noqa: E402


def refused(call, *words):
    try:
        call()
    except ValueError as error:
        for word in words:
            expect(f"{word!r} in {str(error)!r}", word in str(error), True)
        return
    raise Failed("nothing was raised")


def one_site(lab, *models):
    site = lab.site("east")
    for model in models:
        site.models[model] = dict(home="east", keep=4)
    site.start()
    return f"unix:{site.session_socket}"


class OnlyDlpack:
    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack__(self, **kwargs):
        return self.tensor.__dlpack__()


@scenario
def each_kind_of_tensor_crosses_as_it_is(lab):
    """P1 P2: bfloat16, float8, parameters, tied weights, a scalar, an empty tensor, numpy, DLPack. A tensor that
    is not contiguous is refused by name, or gathered: at both ends."""
    gateway = one_site(lab, "policy")
    torch.manual_seed(3)
    base = torch.randn(6, 8)
    tied = torch.nn.Parameter(torch.randn(4, 4))

    def tensors(fill):
        shared = torch.nn.Parameter(tied.detach().clone()) if fill else torch.nn.Parameter(torch.zeros(4, 4))
        made = {"bf16": base.to(torch.bfloat16), "f8": base.to(torch.float8_e4m3fn), "int": torch.arange(5), "bool": torch.tensor([True, False]),
                "scalar": torch.tensor(3.0), "none": torch.empty(0, 4), "tied.a": shared, "tied.b": shared, "columns": base.clone()[:, ::2]}
        return made if fill else {name: tensor if name.startswith("tied") else torch.zeros_like(tensor) for name, tensor in made.items()}
    source, target = tensors(True), tensors(False)
    target["columns"] = torch.zeros(6, 8)[:, 1::2]
    source["dlpack"], target["dlpack"] = OnlyDlpack(torch.arange(7.0)), torch.zeros(7)
    source["numpy"], target["numpy"] = numpy.arange(7, dtype=numpy.float64), numpy.zeros(7)
    refused(lambda: view_of("w", numpy.zeros((4, 4))[:, ::2]), "w: the array is not contiguous", "gather=True")
    refused(lambda: tombolo.publish("policy", 1, source, gateway=gateway, run="key"), "columns", "not contiguous", "gather=True")
    refused(lambda: view_of("w", torch.empty(2, device="meta")), "w: a tensor on the meta device")
    expect("spelled", (tombolo.dtype_name(torch.bfloat16), view_of("w", source["f8"]).dtype), ("BF16", "F8_E4M3"))
    expect("pairs of F4", view_of("w", torch.zeros(2, 3, dtype=torch.uint8).view(torch.float4_e2m1fn_x2))[:2], ("F4", (2, 6)))
    with tombolo.follow("policy", into=target, gateway=gateway, gather=True) as reader:
        for step in (1, 2):
            base.add_(step)
            source["numpy"] += step
            for name, fresh in tensors(True).items():
                source[name].data.copy_(fresh.detach())
            tombolo.publish("policy", step, source, gateway=gateway, run="key", gather=True)
            reader.next(timeout=PATIENCE_S)
            for name, tensor in source.items():
                got = torch.as_tensor(target[name])
                want = tensor.tensor if name == "dlpack" else torch.as_tensor(tensor).detach()
                expect(f"{name} of {step}", torch.equal(got.detach().contiguous().view(torch.uint8) if got.dim() else got,
                                                       want.contiguous().view(torch.uint8) if want.dim() else want), True)
        masters = {name: tensor.detach().float() if name in ("bf16", "f8") else tensor for name, tensor in source.items()}
        bf16 = tombolo.publish("policy", 3, masters, gateway=gateway, run="key", gather=True, dtype="bfloat16")
        bf16.wait_held(timeout=PATIENCE_S) # else the reader's tensors are compared with those of the version before
        with tombolo.follow("policy", into={"bf16": target["bf16"], "f8": torch.zeros(6, 8, dtype=torch.bfloat16)}, gateway=gateway) as cast:
            expect("staged", cast.stage(3, timeout=PATIENCE_S), bf16)
            cast.apply(timeout=PATIENCE_S)
            expect("cast", torch.equal(target["bf16"], source["bf16"]), True)
    tombolo.close_publishers()


class AsStored:
    """Says by DLPack all that the tensor behind it says, with the version that is asked for."""

    def __init__(self, tensor):
        self.__dlpack__ = tensor.__dlpack__


class Wrapped(torch.Tensor):
    """As tensors of quantised weights are: a shape and a dtype, over tensors of its own."""

    @staticmethod
    def __new__(cls, inner):
        made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=torch.bfloat16)
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return cls(args[0].inner) if func._schema.name == "aten::detach" else NotImplemented


@scenario
def lazy_views_are_refused_by_name(lab):
    """P1 P10: a view that negates when it is read, a scalar of numpy, a tensor over others, a sparse
    one. Memory that elements share, or that is read-only, is not written to. DLPack that is not
    contiguous is gathered."""
    numbers = torch.tensor([1 + 2j, 3 - 4j])
    for lazy in (numbers.conj(), numbers.conj().imag, torch._neg_view(torch.ones(3))):
        refused(lambda lazy=lazy: view_of("layer.w", lazy), "layer.w", "gather=True")
        view = view_of("layer.w", lazy, gather=True)
        expect("what it says", ctypes.string_at(view.address, view.nbytes), lazy.resolve_conj().resolve_neg().contiguous().numpy().tobytes())
    for kind, tensor in (("sparse", torch.eye(3).to_sparse()), ("Wrapped", Wrapped(torch.ones(2, 2))), ("complex128", torch.zeros(2, dtype=torch.complex128)),
                         (">f4", numpy.zeros(2, dtype=">f4")), ("unknown", numpy.zeros(2, dtype="M8[s]"))):
        refused(lambda tensor=tensor: view_of("layer.w", tensor), "layer.w", kind)
    refused(lambda: view_of("layer.w", torch.zeros(1).expand(4), gather=True, writable=True), "layer.w", "share their memory")
    many = [view_of("w", numpy.float32(n)) for n in range(1000)]
    expect("scalars", [ctypes.c_float.from_address(view.address).value for view in many], list(range(1000)))
    refused(lambda: view_of("layer.w", numpy.float32(3), writable=True), "layer.w", "read-only")
    still = numpy.arange(6, dtype=numpy.float32)
    still.flags.writeable = False
    expect("of DLPack, read-only", view_of("w", AsStored(still))[:2], ("F32", (6,)))
    refused(lambda: view_of("layer.w", AsStored(still), writable=True), "layer.w", "read-only")
    whole = torch.arange(24.0).reshape(4, 6)
    for part in (whole[:, 1::2], whole.T, whole[1::2, :3], whole[:, :1]):
        for given in (OnlyDlpack(part), AsStored(part)):
            refused(lambda given=given: view_of("layer.w", given), "layer.w", "not contiguous", "gather=True")
            view = view_of("layer.w", given, gather=True, writable=True)
            expect("gathered", (view.shape, ctypes.string_at(view.address, view.nbytes)), (tuple(part.shape), part.contiguous().numpy().tobytes()))
            before = whole.clone()
            ctypes.memset(view.address, 0, view.nbytes)
            scatter(view)
            expect("scattered", (part.abs().sum().item(), (whole != before).sum().item() <= part.numel()), (0, True))
            whole.copy_(before)
    failing = type("Failing", (), {"__dlpack__": torch.nn.Parameter(torch.ones(2)).__dlpack__})()
    refused(lambda: view_of("layer.w", failing), "layer.w", "cannot be read by DLPack")


@scenario
def boxes_of_placements_are_those_of_torch(lab):
    """P1: FSDP2, HSDP, tensor parallelism, and FSDP2 over it, with lengths that do not divide."""
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor import _utils as of_torch
    from torch.distributed.tensor.placement_types import _StridedShard

    from tombolo.layouts import dtensor
    compared = 0
    for shape in ((16, 8), (12, 6), (7, 5), (3, 4), (32,)):
        last = len(shape) - 1
        for mesh, placements in (((4,), [Shard(0)]), ((2, 2), [Replicate(), Shard(0)]), ((4,), [Shard(last)]),
                                 ((2, 2), [Shard(0), Shard(last)]), ((2, 2), [_StridedShard(0, split_factor=2), Shard(0)]),
                                 ((2, 2, 2), [Replicate(), _StridedShard(0, split_factor=2), Shard(0)])):
            splits = dtensor.splits_of("w", placements, len(shape))
            for at in itertools.product(*map(range, mesh)):
                count, first = of_torch._compute_local_shape_and_global_offset(shape, mesh, list(at), placements)
                mine = dtensor.block(shape, mesh, at, splits)
                if 0 not in count:
                    expect(f"{shape} {placements} at {at}", mine, (list(first), list(count)))
                    compared += 1
                else:
                    expect(f"{shape} {placements} at {at} is empty", 0 in mine[1], True)
    expect("compared", compared > 80, True)


@scenario
def two_sites_are_bit_exact_over_optimizer_steps(lab):
    """P1 P2: the example."""
    east, west, _ = lab.east_west()
    east.start()
    west.start()
    run_example("two_sites.py", f"unix:{east.session_socket}", f"unix:{west.session_socket}")


@scenario
def four_ranks_of_fsdp_are_read_at_tp_2(lab):
    """P1 P2: the example."""
    run_example("fsdp_to_tp.py", one_site(lab, "policy"))


@scenario
def adapters_are_small_versions_beside_their_base(lab):
    """P1 P2: the example."""
    out = run_example("lora.py", one_site(lab, "base", "adapter"))
    expect("sizes", "adapter 16392 bytes beside a base of 1048576" in out, True)


def run_example(name, *arguments):
    """In this process, which has imported torch: what it prints."""
    said, sys.argv, code = io.StringIO(), [name, *arguments], 0
    os.environ["TOMBOLO_RUN"] = "key"
    try:
        with contextlib.redirect_stdout(said):
            runpy.run_path(str(packages.SOURCE / "python/examples" / name), run_name="__main__")
    except SystemExit as error:
        code = error.code or 0
    tombolo.close_publishers()
    print(said.getvalue(), flush=True)
    expect(f"exit code of {name}", code, 0)
    return said.getvalue()


if __name__ == "__main__":
    sys.exit(main())
