"""Boxes against the definitions: each rule's boxes cover the checkpoint once, and hold its elements.

Needs neither torch nor a gateway.

Covers: python/tombolo/layouts/__init__.py python/tombolo/layouts/dtensor.py python/tombolo/layouts/megatron.py
Covers: python/tombolo/layouts/strides.py python/tombolo/layouts/ways.py
"""

import itertools
import random
import re
import sys
import unittest

import packages  # noqa: F401
import tombolo
from tombolo.layouts import dtensor, megatron, strides, ways


def elements(shape, first, count):
    """Flat indices of a box, row-major."""
    steps = [1] * len(shape)
    for axis in reversed(range(len(shape) - 1)):
        steps[axis] = steps[axis + 1] * shape[axis + 1]
    ranges = [range(f, f + n) for f, n in zip(first, count)]
    return [sum(i * s for i, s in zip(at, steps)) for at in itertools.product(*ranges)]


class Tensor:
    """Rows of numbers, as much of a tensor as the rules need."""

    def __init__(self, rows, width=None):
        self.rows = rows
        self.shape = (len(rows),) if width is None else (len(rows), width)

    def __getitem__(self, rows):
        return Tensor(self.rows[rows], self.shape[1] if len(self.shape) > 1 else None)

    def flat(self):
        return [x for row in self.rows for x in (row if isinstance(row, list) else [row])]


class DTensorBlocks(unittest.TestCase):
    def cover(self, shape, mesh, splits):
        seen = {}
        for coordinate in itertools.product(*map(range, mesh)):
            first, count = dtensor.block(shape, mesh, coordinate, splits)
            if 0 not in count and dtensor.publishes("name", mesh, coordinate, splits):
                for at in elements(shape, first, count):
                    seen[at] = seen.get(at, 0) + 1
        return seen

    def test_each_element_is_published_once(self):
        cut, kept = dtensor.Split(0), dtensor.Split(None)
        for shape in ((8, 4), (7, 3), (5,), (2, 9), (1, 1)):
            for mesh, splits in (((4,), [cut]), ((2, 2), [kept, cut]), ((2, 2), [dtensor.Split(0, True), cut]), ((3,), [kept]),
                                 ((2, 3), [cut, dtensor.Split(len(shape) - 1)]), ((2, 2, 2), [kept, dtensor.Split(0, True), cut])):
                seen = self.cover(shape, mesh, splits)
                size = len(elements(shape, [0] * len(shape), shape))
                self.assertEqual(seen, dict.fromkeys(range(size), 1), (shape, mesh, splits))

    def test_fsdp_over_tensor_parallelism_cuts_the_part_that_tp_left(self):
        splits = [dtensor.Split(0, True), dtensor.Split(0)]  # mesh (fsdp, tp)
        blocks = [dtensor.block((16,), (2, 2), at, splits) for at in ((0, 0), (0, 1), (1, 0), (1, 1))]
        self.assertEqual(blocks, [([0], [4]), ([8], [4]), ([4], [4]), ([12], [4])])

    def test_parts_are_those_of_torch_chunk(self):
        found = [dtensor.block((5,), (4,), (rank,), [dtensor.Split(0)]) for rank in range(4)]
        self.assertEqual(found, [([0], [2]), ([2], [2]), ([4], [1]), ([5], [0])])

    def test_replicas_share_the_work(self):
        ranks = {next(rank for rank in range(4) if dtensor.publishes(f"layer.{i}", (4,), (rank,), [dtensor.Split(None)])) for i in range(64)}
        self.assertEqual(ranks, {0, 1, 2, 3})

    def test_a_partial_tensor_is_refused_by_name(self):
        partial = type("Partial", (), {})()
        with self.assertRaisesRegex(ValueError, "^w: "):
            dtensor.splits_of("w", [partial], 2)

    def test_wrappers_leave_no_trace_in_names(self):
        self.assertEqual(dtensor.plain_name("_orig_mod.layers.0._checkpoint_wrapped_module.w"), "layers.0.w")
        self.assertEqual(dtensor.plain_name("layers.0.w"), "layers.0.w")


def rows(count, width, seed):
    return [[seed * 100000 + row * 100 + i for i in range(width)] for row in range(count)]


class Megatron(unittest.TestCase):
    """A checkpoint is cut as the definition of each layer says; the boxes put it together again."""

    BASE = megatron.Layout(hidden=6, heads=8, query_groups=4, head_dim=2, ffn=12, vocab=10, layers=4, experts=4, expert_ffn=8)

    def checkpoint(self, tp):
        m = self.BASE
        p = "model.layers.0."
        found = {p + "self_attn.q_proj.weight": rows(m.heads * m.head_dim, m.hidden, 1),
                 p + "self_attn.k_proj.weight": rows(m.query_groups * m.head_dim, m.hidden, 2),
                 p + "self_attn.v_proj.weight": rows(m.query_groups * m.head_dim, m.hidden, 3),
                 p + "self_attn.o_proj.weight": rows(m.hidden, m.heads * m.head_dim, 4),
                 p + "mlp.gate_proj.weight": rows(m.ffn, m.hidden, 5), p + "mlp.up_proj.weight": rows(m.ffn, m.hidden, 6),
                 p + "mlp.down_proj.weight": rows(m.hidden, m.ffn, 7), "model.embed_tokens.weight": rows(m.vocab, m.hidden, 8),
                 p + "input_layernorm.weight": [[i] for i in range(m.hidden)]}
        return found

    def rank(self, found, tp, r):
        """As Megatron-core defines it: groups of q heads, k and v; gate above up; columns; padded rows."""
        m, p = self.BASE, "model.layers.0."
        q, k, v = (found[p + f"self_attn.{name}_proj.weight"] for name in "qkv")
        per, d = m.heads // m.query_groups * m.head_dim, m.head_dim
        groups = range(r * m.query_groups // tp, (r + 1) * m.query_groups // tp)
        fused = [row for g in groups for row in q[g * per:(g + 1) * per] + k[g * d:(g + 1) * d] + v[g * d:(g + 1) * d]]
        each = m.ffn // tp
        gate, up = (found[p + f"mlp.{name}_proj.weight"][r * each:(r + 1) * each] for name in ("gate", "up"))

        def columns(name):
            whole = found[p + name]
            wide = len(whole[0]) // tp
            return Tensor([row[r * wide:(r + 1) * wide] for row in whole], wide)
        padded = 16 // tp
        embedding = (found["model.embed_tokens.weight"] + rows(6, m.hidden, 9))[r * padded:(r + 1) * padded]
        return {"module.embedding.word_embeddings.weight": Tensor(embedding, m.hidden),
                "decoder.layers.0.self_attention.linear_qkv.weight": Tensor(fused, m.hidden),
                "decoder.layers.0.self_attention.linear_qkv.layer_norm_weight": Tensor([row[0] for row in found[p + "input_layernorm.weight"]]),
                "decoder.layers.0.self_attention.linear_proj.weight": columns("self_attn.o_proj.weight"),
                "decoder.layers.0.mlp.linear_fc1.weight": Tensor(gate + up, m.hidden),
                "decoder.layers.0.mlp.linear_fc2.weight": columns("mlp.down_proj.weight")}

    def test_a_checkpoint_comes_back_from_its_ranks(self):
        for tp in (1, 2, 4):
            found = self.checkpoint(tp)
            flat = {name: [x for row in whole for x in row] for name, whole in found.items()}
            got = {name: {} for name in found}
            for r in range(tp):
                for box in megatron.boxes(self.rank(found, tp, r), self.BASE._replace(tp=tp, tp_rank=r)):
                    for at, value in zip(elements(box.shape, box.first, box.count), box.tensor.flat(), strict=True):
                        self.assertNotIn(at, got[box.name], "an element twice")
                        got[box.name][at] = value
            for name, whole in flat.items():
                self.assertEqual([got[name].get(at) for at in range(len(whole))], whole, (tp, name))

    def test_experts_have_their_numbers(self):
        layout = self.BASE._replace(ep=2, ep_rank=1, etp=2, etp_rank=1)
        part = megatron.parts("decoder.layers.0.mlp.experts.linear_fc2.weight1", (6, 4), layout)[0]
        self.assertEqual(part[:4], ("model.layers.0.mlp.experts.3.down_proj.weight", (6, 8), (0, 4), (6, 4)))
        gate, up = megatron.parts("decoder.layers.0.mlp.experts.linear_fc1.weight0", (8, 6), layout)
        self.assertEqual((gate.name, gate.first, gate.count, gate.row), ("model.layers.0.mlp.experts.2.gate_proj.weight", (4, 0), (4, 6), 0))
        self.assertEqual((up.first, up.row), ((4, 0), 4))

    def test_layers_of_a_stage_are_numbered_from_its_offset(self):
        stage = self.BASE._replace(layers=8, pp=2, pp_rank=1)
        self.assertEqual(megatron.layer_offset(stage), 4)
        self.assertEqual([megatron.layer_offset(stage._replace(vp=2, vp_stage=v, pp_rank=r)) for v in (0, 1) for r in (0, 1)], [0, 2, 4, 6])
        with self.assertRaisesRegex(ValueError, "8 layers"):
            megatron.layer_offset(stage._replace(pp=3))

    def test_a_rank_behind_the_vocabulary_has_no_box(self):
        layout = self.BASE._replace(tp=8, tp_rank=7)
        self.assertEqual(megatron.parts("embedding.word_embeddings.weight", (2, 6), layout), [])

    def test_what_has_no_rule_is_refused_by_name(self):
        with self.assertRaisesRegex(ValueError, "decoder.layers.0.mamba.in_proj.weight: no rule"):
            megatron.parts("decoder.layers.0.mamba.in_proj.weight", (1, 1), self.BASE)
        with self.assertRaisesRegex(ValueError, "the layout is another one"):
            megatron.boxes({"decoder.layers.0.mlp.linear_fc1.weight": Tensor(rows(4, 6, 1), 6)}, self.BASE)


class Strides(unittest.TestCase):
    """A view and its boxes have the same elements in the same places, for many random chains."""

    @staticmethod
    def places(offset, sizes, steps):
        return [offset + sum(i * s for i, s in zip(at, steps)) for at in itertools.product(*map(range, sizes))]

    def check(self, shape, offset, sizes, source, target_offset, target):
        want = dict(zip(self.places(target_offset, sizes, target), self.places(offset, sizes, source)))
        got = {}
        for copy in strides.copies(shape, offset, sizes, source, target_offset, target):
            for i, at in enumerate(elements(shape, copy.first, copy.count)):
                got[copy.offset + i] = at
        self.assertEqual(got, want, (shape, offset, sizes, source, target))

    def test_groups_of_a_fused_tensor_are_a_box_each(self):
        # view(groups, 3, d, width)[:, 1] of a tensor of 2 x 3 x 2 rows
        self.check((12, 5), 10, (2, 2, 5), (30, 5, 1), 0, (10, 5, 1))

    def test_columns_into_dense_memory(self):
        self.check((6, 8), 4, (6, 4), (8, 1), 100, (4, 1))

    def test_rows_into_columns_of_a_wider_parameter(self):
        self.check((6, 4), 0, (6, 4), (4, 1), 3, (10, 1))

    def test_a_flat_view(self):
        self.check((3, 4), 0, (12,), (1,), 7, (1,))

    def test_what_is_no_box_is_said(self):
        for why, view in (("transposed", ((3, 4), 0, (4, 3), (1, 4), 0, (3, 1))), ("repeated", ((3,), 0, (2, 3), (0, 1), 0, (3, 1))),
                          ("over the end", ((3, 4), 2, (4,), (1,), 0, (1,)))):
            with self.assertRaisesRegex(strides.NoBox, why):
                strides.copies(*view)

    def test_random_slices_and_selects(self):
        choose = random.Random(7)
        for _ in range(300):
            shape = tuple(choose.randint(1, 5) for _ in range(choose.randint(1, 3)))
            steps = [1] * len(shape)
            for axis in reversed(range(len(shape) - 1)):
                steps[axis] = steps[axis + 1] * shape[axis + 1]
            first = [choose.randrange(n) for n in shape]
            sizes = [choose.randint(1, n - f) for f, n in zip(first, shape)]
            wide = [n + choose.randint(0, 2) for n in sizes]
            target = [1] * len(shape)
            for axis in reversed(range(len(shape) - 1)):
                target[axis] = target[axis + 1] * wide[axis + 1]
            self.check(shape, sum(f * s for f, s in zip(first, steps)), sizes, steps, choose.randint(0, 9), target)


class Sized:
    def __init__(self, count):
        self.count = count

    def numel(self):
        return self.count


class Module:
    """As much of a torch module as choosing needs. layers: {path: {name: tensor}}."""

    def __init__(self, layers):
        self.layers = layers
        self.modules = {path: type("Layer", (), {"_parameters": tensors, "_buffers": {}})() for path, tensors in layers.items()}

    def named_modules(self):
        return list(self.modules.items())

    def named_buffers(self, remove_duplicate=True):
        return []

    def named_parameters(self, remove_duplicate=True):
        return [(f"{path}.{name}", tensor) for path, tensors in self.layers.items() for name, tensor in tensors.items()]


def plan(targets, named=()):
    """targets: [(parameter, checkpoint name, elements)]."""
    made = [type("Target", (), {"parameter": parameter, "box": tombolo.Box(name, (n,), (0,), (n,), Sized(n))})() for parameter, name, n in targets]
    return type("Plan", (), {"targets": made, "named": dict.fromkeys(named, "it reads values")})()


class Ways(unittest.TestCase):
    def chosen(self, model, targets, named=(), computes=()):
        computed = [model.modules[path] for path in computes]
        found = ways.choose(model, plan(targets, named), lambda module: module in computed)
        return found.of, found.named, [box.name for box in found.boxes], len(found.layerwise)

    def test_the_log_says_which_layer_goes_which_way(self):
        names = [f"layers.{i}.{part}" for i in range(12) for part in ("qkv", "mlp")]
        model = Module({name: {"w": Sized(4)} for name in names})
        with self.assertLogs("tombolo.layouts", "INFO") as lines:
            boxes = [(f"{name}.w", name, 4) for name in names if name != "layers.3.mlp"]
            self.chosen(model, boxes, named=["layers.3.mlp"], computes=["layers.5.qkv"])
        said = dict(re.findall(r"layout.way way=(\w+) layers=(\d+ which=\S*)", "\n".join(lines.output)))
        self.assertEqual(said["layerwise"], "1 which=layers.5.qkv")
        self.assertEqual(said["named"], "1 which=layers.3.mlp")
        left = [f"layers.{i}.{part}" for part, out in (("qkv", 5), ("mlp", 3)) for i in range(12) if i != out]
        self.assertEqual(said["boxes"], f"22 which={','.join(left)}")
        self.assertEqual(ways._in_short([*names, "layers.0.experts.0", "layers.0.experts.1", "norm", ""]),
                         "layers.0-11.qkv,layers.0-11.mlp,layers.0.experts.0-1,norm,")

    def test_layers_that_only_slice_are_boxes(self):
        model = Module({"qkv": {"w": Sized(12)}, "norm": {"w": Sized(4)}})
        self.assertEqual(self.chosen(model, [("qkv.w", "q", 6), ("qkv.w", "k", 6), ("norm.w", "n", 4)]),
                         ({"qkv": "boxes", "norm": "boxes"}, [], ["q", "k", "n"], 0))

    def test_a_fused_layer_goes_one_way(self):
        model = Module({"qkv": {"w": Sized(12)}, "norm": {"w": Sized(4)}})
        self.assertEqual(self.chosen(model, [("qkv.w", "k", 6), ("norm.w", "n", 4)], named=["q"]),
                         ({"qkv": "named", "norm": "boxes"}, ["k", "q"], ["n"], 0))

    def test_rows_that_the_checkpoint_lacks_are_no_reason(self):
        model = Module({"embed": {"w": Sized(64)}})
        self.assertEqual(self.chosen(model, [("embed.w", "e", 50)])[0], {"embed": "boxes"})

    def test_what_computes_is_reloaded_with_all_that_shares_its_tensors(self):
        tied = Sized(8)
        model = Module({"embed": {"w": tied}, "head": {"w": tied}, "norm": {"w": Sized(4)}, "attention": {}})
        self.assertEqual(self.chosen(model, [("embed.w", "e", 8), ("norm.w", "n", 4)], computes=["head", "attention"]),
                         ({"embed": "layerwise", "head": "layerwise", "norm": "boxes", "attention": "layerwise"}, ["e"], ["n"], 3))


if __name__ == "__main__":
    sys.exit(unittest.main())
