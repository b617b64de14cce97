"""Boxes of Megatron-core's parameters, by the names and shapes of the Hugging Face checkpoint.

Pure: a rule says which rows of a rank's tensor are which box. `boxes` applies the rules to all
parameters of a rank. Ranks that hold the same part are told apart by tp, ep and pp; of data
parallel replicas the caller chooses one."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ..memory import Box


class Layout(NamedTuple):
    """The model, and where this rank stands in it."""

    hidden: int
    heads: int
    query_groups: int      # heads of keys and values
    head_dim: int
    ffn: int
    vocab: int             # of the checkpoint, without padding
    layers: int
    tp: int = 1
    tp_rank: int = 0
    pp: int = 1
    pp_rank: int = 0
    vp: int = 1            # virtual pipeline stages of a rank
    vp_stage: int = 0
    experts: int = 0
    expert_ffn: int = 0
    ep: int = 1
    ep_rank: int = 0
    etp: int = 1           # tensor parallelism of experts
    etp_rank: int = 0
    tied: bool = False     # the output layer is the embedding


class Part(NamedTuple):
    """Rows [row, row + rows) of the rank's tensor are the box [first, first + count)."""

    name: str
    shape: tuple[int, ...]
    first: tuple[int, ...]
    count: tuple[int, ...] # type: ignore[assignment]
    row: int
    rows: int


def layer_offset(layout: Layout) -> int:
    """Of the stage's first layer. With virtual stages each rank has vp pieces, which lie pp pieces apart."""
    if layout.layers % (layout.pp * layout.vp) != 0:
        raise ValueError(f"{layout.layers} layers are not a multiple of {layout.pp} stages of {layout.vp} pieces")
    each = layout.layers // (layout.pp * layout.vp)
    return layout.vp_stage * layout.pp * each + layout.pp_rank * each


def _rows(name: str, total: int, begin: int, count: int, row: int, width: int | None) -> Part:
    rest = () if width is None else (width,)
    return Part(name, (total, *rest), (begin, *(0 for _ in rest)), (count, *rest), row, count)


def qkv(prefix: str, leaf: str, layout: Layout) -> list[Part]:
    """A rank has whole query groups: of each the rows of its queries, then those of its key and its
    value. leaf: "weight" or "bias"."""
    if layout.query_groups % layout.tp != 0:
        raise ValueError(f"{prefix}: {layout.query_groups} query groups are not a multiple of tp {layout.tp}")
    d, q_rows = layout.head_dim, layout.heads // layout.query_groups * layout.head_dim
    groups = layout.query_groups // layout.tp
    width = layout.hidden if leaf == "weight" else None
    found = []
    for local in range(groups):
        group, row = layout.tp_rank * groups + local, local * (q_rows + 2 * d)
        found += [_rows(f"{prefix}.q_proj.{leaf}", layout.heads * d, group * q_rows, q_rows, row, width),
                  _rows(f"{prefix}.k_proj.{leaf}", layout.query_groups * d, group * d, d, row + q_rows, width),
                  _rows(f"{prefix}.v_proj.{leaf}", layout.query_groups * d, group * d, d, row + q_rows + d, width)]
    return found


def gate_up(prefix: str, leaf: str, ffn: int, hidden: int, ranks: int, rank: int) -> list[Part]:
    """The rank's rows of the gate, then its rows of up."""
    each, width = ffn // ranks, hidden if leaf == "weight" else None
    return [_rows(f"{prefix}.gate_proj.{leaf}", ffn, rank * each, each, 0, width),
            _rows(f"{prefix}.up_proj.{leaf}", ffn, rank * each, each, each, width)]


def columns(name: str, rows: int, width: int, ranks: int, rank: int) -> list[Part]:
    each = width // ranks
    return [Part(name, (rows, width), (0, rank * each), (rows, each), 0, rows)]


def vocabulary(name: str, padded_rows_of_rank: int, layout: Layout) -> list[Part]:
    """The vocabulary is padded to a multiple of the ranks; rows behind its end are in no checkpoint."""
    begin = layout.tp_rank * padded_rows_of_rank
    count = min(padded_rows_of_rank, layout.vocab - begin)
    return [_rows(name, layout.vocab, begin, count, 0, layout.hidden)] if count > 0 else []


def _whole(name: str, shape: tuple[int, ...], first_rank: bool) -> list[Part]:
    return [Part(name, shape, (0,) * len(shape), shape, 0, shape[0])] if first_rank else []


_LAYER = re.compile(r"decoder\.layers\.(\d+)\.(.*)")
_EXPERT = re.compile(r"mlp\.experts\.linear_(fc1|fc2)\.weight(\d+)")
_NORMS = {"self_attention.linear_qkv.layer_norm_weight": "input_layernorm.weight", "input_layernorm.weight": "input_layernorm.weight",
          "mlp.linear_fc1.layer_norm_weight": "post_attention_layernorm.weight",
          "pre_mlp_layernorm.weight": "post_attention_layernorm.weight", "self_attention.q_layernorm.weight": "self_attn.q_norm.weight",
          "self_attention.k_layernorm.weight": "self_attn.k_norm.weight", "mlp.router.weight": "mlp.gate.weight",
          "mlp.router.expert_bias": "mlp.gate.e_score_correction_bias"}


def _of_layer(prefix: str, rest: str, shape: tuple[int, ...], layout: Layout) -> list[Part] | None:
    leaf = rest.rpartition(".")[2]
    if rest in _NORMS:
        return _whole(f"{prefix}.{_NORMS[rest]}", shape, layout.tp_rank == 0)
    if rest in ("self_attention.linear_qkv.weight", "self_attention.linear_qkv.bias"):
        return qkv(f"{prefix}.self_attn", leaf, layout)
    if rest == "self_attention.linear_proj.weight":
        return columns(f"{prefix}.self_attn.o_proj.weight", layout.hidden, layout.heads * layout.head_dim, layout.tp, layout.tp_rank)
    if rest in ("mlp.linear_fc1.weight", "mlp.linear_fc1.bias"):
        return gate_up(f"{prefix}.mlp", leaf, layout.ffn, layout.hidden, layout.tp, layout.tp_rank)
    if rest == "mlp.linear_fc2.weight":
        return columns(f"{prefix}.mlp.down_proj.weight", layout.hidden, layout.ffn, layout.tp, layout.tp_rank)
    expert = _EXPERT.fullmatch(rest)
    if expert is None:
        return None
    number = layout.ep_rank * (layout.experts // layout.ep) + int(expert.group(2))
    if expert.group(1) == "fc1":
        return gate_up(f"{prefix}.mlp.experts.{number}", "weight", layout.expert_ffn, layout.hidden, layout.etp, layout.etp_rank)
    return columns(f"{prefix}.mlp.experts.{number}.down_proj.weight", layout.hidden, layout.expert_ffn, layout.etp, layout.etp_rank)


def parts(name: str, shape: tuple[int, ...], layout: Layout) -> list[Part]:
    """Of one parameter of this rank: its boxes, none where another rank publishes it."""
    if name == "embedding.word_embeddings.weight":
        return vocabulary("model.embed_tokens.weight", shape[0], layout)
    if name == "output_layer.weight":
        return [] if layout.tied else vocabulary("lm_head.weight", shape[0], layout)
    if name == "decoder.final_layernorm.weight":
        return _whole("model.norm.weight", shape, layout.tp_rank == 0)
    layer = _LAYER.fullmatch(name)
    found = None if layer is None else _of_layer(f"model.layers.{int(layer.group(1)) + layer_offset(layout)}", layer.group(2), shape, layout)
    if found is None:
        raise ValueError(f"{name}: no rule for this parameter: give its boxes, or publish by checkpoint names")
    return found


def boxes(named: Mapping[str, Any] | Iterable[tuple[str, Any]], layout: Layout) -> list[Box]:
    """Of all parameters of a rank, by Megatron-core's names."""
    out = []
    for name, tensor in dict(named).items():
        shape = tuple(int(n) for n in tensor.shape)
        for part in parts(name.removeprefix("module."), shape, layout):
            rows = part.rows
            if part.row + rows > shape[0] or tuple(part.count[1:]) != shape[1:]:
                raise ValueError(f"{name}: the rank has {list(shape)}, and its rule takes rows {part.row} to {part.row + rows} of "
                                 f"width {list(part.count[1:])}: the layout is another one")
            out.append(Box(part.name, part.shape, part.first, part.count, tensor[part.row:part.row + rows]))
    return out
