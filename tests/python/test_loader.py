"""The dry run of an engine's loader, against the loader itself: what the boxes write is what it writes.

The model has the layouts of vLLM: q, k and v fused by heads, gate and up fused, columns of o_proj and
down_proj, a padded vocabulary, experts in one tensor. It runs at each rank of TP 1, 2 and 4.

Covers: python/tombolo/layouts/loader.py python/tombolo/layouts/strides.py
"""

import logging
import sys
import unittest

import packages

packages.run_in("torch")

import torch  # noqa: E402

from tombolo.layouts import loader  # noqa: E402

HIDDEN, HEADS, KV, DIM, INNER, VOCAB, EXPERTS = 32, 8, 2, 4, 48, 50, 4
CHECKPOINT = {"embed.weight": (VOCAB, HIDDEN), "q.weight": (HEADS * DIM, HIDDEN), "k.weight": (KV * DIM, HIDDEN),
              "v.weight": (KV * DIM, HIDDEN), "o.weight": (HIDDEN, HEADS * DIM), "gate.weight": (INNER, HIDDEN), "up.weight": (INNER, HIDDEN),
              "down.weight": (HIDDEN, INNER), "norm.weight": (HIDDEN,),
              **{f"experts.{e}.{name}.weight": (HIDDEN, INNER) if name == "down" else (INNER, HIDDEN)
                 for e in range(EXPERTS) for name in ("gate", "up", "down")}}


def parameter(*shape):
    return torch.nn.Parameter(torch.zeros(shape, dtype=torch.bfloat16), requires_grad=False)


class Engine(torch.nn.Module):
    """Its loader slices, views and selects as those of vLLM do."""

    def __init__(self, rank, ranks, experts=range(EXPERTS)):
        super().__init__()
        self.rank, self.ranks, self.experts = rank, ranks, experts
        self.q, self.kv = HEADS // ranks * DIM, max(1, KV // ranks) * DIM
        self.inner, self.rows = INNER // ranks, -(-VOCAB // 64) * 64 // ranks
        self.embed = parameter(self.rows, HIDDEN)
        self.qkv = parameter(self.q + 2 * self.kv, HIDDEN)
        self.o = parameter(HIDDEN, self.q)
        self.gate_up = parameter(2 * self.inner, HIDDEN)
        self.down = parameter(HIDDEN, self.inner)
        self.norm = parameter(HIDDEN)
        self.w13 = parameter(len(experts), 2 * self.inner, HIDDEN)
        self.w2 = parameter(len(experts), HIDDEN, self.inner)

    def load_weights(self, weights):
        for name, tensor in weights:
            self.load(name.removesuffix(".weight"), tensor)

    def load(self, name, w):
        r, inner = self.rank, self.inner
        if name.startswith("experts"):
            _, expert, part = name.split(".")
            if int(expert) in self.experts:
                self.expert(int(expert) - self.experts[0], part, w)
        elif name == "embed":
            mine = w[r * self.rows:(r + 1) * self.rows]
            self.embed.data[:mine.shape[0]].copy_(mine)
            self.embed.data[mine.shape[0]:].fill_(0)
        elif name == "q":
            self.qkv.data.narrow(0, 0, self.q).copy_(w.narrow(0, r * self.q, self.q))
        elif name in ("k", "v"):
            at = r // max(1, self.ranks // KV) * self.kv  # replicated where there are more ranks than heads
            self.qkv.data.narrow(0, self.q + (self.kv if name == "v" else 0), self.kv).copy_(w.narrow(0, at, self.kv))
        elif name in ("gate", "up"):
            self.gate_up.data.chunk(2)[name == "up"].copy_(w.chunk(self.ranks)[r])
        elif name in ("o", "down"):
            to = getattr(self, name)
            to.data.copy_(w.view(HIDDEN, self.ranks, -1)[:, r].contiguous())
        else:
            self.norm.data.copy_(w)
        assert inner

    def expert(self, expert, part, w):
        r = self.rank
        if part == "down":
            self.w2.data[expert].copy_(w[:, r * self.inner:(r + 1) * self.inner])
        else:
            half = self.w13.data[expert].view(2, self.inner, HIDDEN)[int(part == "up")]
            half.copy_(w.unflatten(0, (self.ranks, self.inner))[r].to(w.device))


def checkpoint():
    torch.manual_seed(5)
    return {name: torch.randn(shape).to(torch.bfloat16) for name, shape in CHECKPOINT.items()}


MANIFEST = {name: ("BF16", shape) for name, shape in CHECKPOINT.items()}


def write(plan, weights):
    for box in plan.boxes:
        box.tensor.copy_(weights[box.name][tuple(slice(f, f + n) for f, n in zip(box.first, box.count))])


class DryRun(unittest.TestCase):
    def setUp(self):
        logging.disable(logging.CRITICAL)

    def tearDown(self):
        logging.disable(logging.NOTSET)

    def test_boxes_write_what_the_loader_writes(self):
        weights = checkpoint()
        for ranks in (1, 2, 4):
            for rank in range(ranks):
                by_boxes, by_loader = Engine(rank, ranks), Engine(rank, ranks)
                plan = loader.dry_run(by_boxes, MANIFEST)
                self.assertEqual(plan.named, {}, (rank, ranks))
                self.assertFalse(any(p.any() for p in by_boxes.parameters()), "the dry run wrote something")
                write(plan, weights)
                by_loader.load_weights(weights.items())
                for (name, mine), theirs in zip(by_boxes.named_parameters(), by_loader.parameters()):
                    self.assertTrue(torch.equal(mine, theirs), (name, rank, ranks))

    def test_experts_of_other_ranks_are_needed_by_neither_way(self):
        weights = checkpoint()
        for rank, mine in enumerate((range(0, 1), range(1, EXPERTS))):
            by_boxes, by_loader = Engine(rank, 2, mine), Engine(rank, 2, mine)
            plan = loader.dry_run(by_boxes, MANIFEST)
            self.assertEqual(plan.named, {}, rank)
            self.assertEqual({box.name.split(".")[1] for box in plan.boxes if box.name.startswith("experts")}, {str(e) for e in mine})
            write(plan, weights)
            by_loader.load_weights(weights.items())
            for (name, own), theirs in zip(by_boxes.named_parameters(), by_loader.parameters()):
                self.assertTrue(torch.equal(own, theirs), (name, rank))

    def test_a_name_of_which_nothing_was_copied_goes_by_name(self):
        engine = Engine(0, 1)
        plan = loader.dry_run(engine, {**MANIFEST, "experts.0.bias.weight": ("BF16", (2,)), "q.0.weight": ("BF16", (2,))},
                              lambda pairs: Engine.load_weights(engine, ((n, w) for n, w in pairs if n in MANIFEST)))
        self.assertEqual(plan.named, dict.fromkeys(("experts.0.bias.weight", "q.0.weight"), "the loader copied nothing of it"))

    def test_live_weights_do_not_change_while_the_loader_runs_dry(self):
        engine = Engine(3, 4)
        for live in engine.parameters():
            live.fill_(1)
        plan = loader.dry_run(engine, MANIFEST)
        self.assertTrue(all((live == 1).all() for live in engine.parameters()))
        self.assertEqual([box.count for box in plan.boxes if box.name == "embed.weight"], [(2, HIDDEN)])  # rows 48 and 49

    def test_a_step_that_reads_values_goes_by_name_and_the_log_says_so(self):
        class Scaled(Engine):
            def load(self, name, w):
                if name == "norm":
                    self.norm.data.copy_(w + 1)
                elif name == "o":
                    self.o.data.copy_(w.t())
                elif name == "q":
                    self.qkv.data[:self.q].copy_(w[:self.q].to(torch.float32))
                else:
                    super().load(name, w)
        logging.disable(logging.NOTSET)
        with self.assertLogs("tombolo.layouts", "INFO") as lines:
            plan = loader.dry_run(Scaled(0, 1), MANIFEST)
        self.assertEqual(set(plan.named), {"norm.weight", "o.weight", "q.weight"})
        self.assertIn("reads values", plan.named["norm.weight"])
        self.assertIn("transposed", plan.named["o.weight"])
        self.assertIn("becomes torch.float32", plan.named["q.weight"])
        self.assertTrue(any("layout.named tensor=norm.weight" in line for line in lines.output), lines.output)
        self.assertIn("k.weight", {box.name for box in plan.boxes})

    def test_shapes_of_another_model_are_said_with_both(self):
        plan = loader.dry_run(Engine(0, 2), MANIFEST)
        other = {**MANIFEST, "q.weight": ("BF16", (7, HIDDEN)), "k.weight": ("F32", (KV * DIM, HIDDEN))}
        del other["norm.weight"]
        wrong = loader.mismatches(plan.boxes, other)
        self.assertEqual(len(wrong), 3)
        self.assertIn("q.weight: this reader wants BF16[32, 32], and the version has BF16[7, 32]", wrong)
        self.assertIn("k.weight: this reader wants BF16[8, 32], and the version has F32[8, 32]", wrong)
        self.assertIn("norm.weight: the version has no such tensor", wrong)


if __name__ == "__main__":
    sys.exit(unittest.main())
