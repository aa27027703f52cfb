"""The blocks of a decoder's layers, made from a checkpoint as the table of architectures says.

A projection is a `Linear` of one or several modules of the checkpoint (`engines.torch_engine.parts`), which are
computed as one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engines.adapters.sites import site_name
from engines.models.files.architectures import HeadNormKind, NormKind
from engines.models.files.model_config import ModelConfig
from engines.torch_engine import parts
from engines.torch_engine.adapters.adapted import Adapters
from engines.torch_engine.adapters.factors import SitePart
from engines.torch_engine.layers.attention_kind import AttentionKind
from engines.torch_engine.layers.cpu_kernels import CodeLinear, keeps_codes
from engines.torch_engine.layers.linear import Linear, pack
from engines.torch_engine.layers.mlp import ACTIVATIONS, GatedMlp, Mlp, PlainMlp, SharedExpert, SparseMlp
from engines.torch_engine.layers.norm import AllHeads, EachHead, HeadNorm, LayerNorm, Norm, RmsNorm
from engines.torch_engine.parts import MlpParts, Part, layer_name
from engines.torch_engine.weights import Checkpoint


@dataclass(frozen=True, slots=True)
class Layer:
    """One transformer block. A norm that is None is not there. ``rope``: which rotation; None: none."""

    attention_norm: Norm | None
    qkv: Linear
    head_norm: HeadNorm | None
    rope: int | None
    attention: AttentionKind
    out: Linear
    post_attention_norm: Norm | None
    mlp_norm: Norm | None
    mlp: Mlp
    post_mlp_norm: Norm | None


def linear(checkpoint: Checkpoint, parts: Sequence[Part], dtype: str) -> Linear:
    """Projections that are computed as one, in the form that is fastest here."""
    bias = checkpoint.bias(parts)
    codes = checkpoint.codes(parts, dtype) if keeps_codes(dtype, checkpoint.device.type) else None
    if codes is not None:
        return CodeLinear(codes, bias, rounds=dtype == "int8")
    return pack(checkpoint.weight(parts), bias)


class BlockMaker:
    """Makes the blocks of one model. ``dtype`` is one of `shape.DTYPES`."""

    def __init__(self, checkpoint: Checkpoint, config: ModelConfig, dtype: str, adapters: Adapters) -> None:
        self._checkpoint = checkpoint
        self._config = config
        self._dtype = dtype
        self._adapters = adapters
        self._epsilon = torch.tensor(config.norm_eps, device=checkpoint.device)

    def layer(self, number: int) -> Layer:
        config, modules, name = self._config, self._config.architecture.modules, layer_name(self._config, number)
        own = config.layers[number]
        return Layer(
            qkv=self.linear(parts.query_key_value(config, number)),
            attention_norm=self._norm(name, modules.attention_norm),
            head_norm=self._head_norm(number),
            rope=own.rope,
            attention=AttentionKind(config.attention_scale, own.window, config.attention_softcap),
            out=self.linear(parts.attention_out(config, number)),
            post_attention_norm=self._norm(name, modules.post_attention_norm),
            mlp_norm=self._norm(name, modules.mlp_norm),
            mlp=self._sparse(number) if own.is_sparse else self._mlp(parts.dense_mlp(config, number)),
            post_mlp_norm=self._norm(name, modules.post_mlp_norm),
        )

    def linear(self, wanted: Sequence[Part]) -> Linear:
        """Projections that are computed as one, and what adapters add to them if they may."""
        made = linear(self._checkpoint, wanted, self._dtype)
        names = [site_name(part.name) for part in wanted]
        if None in names:
            return made
        outs = [parts.shape_of(f"{part.name}.weight", self._config)[0] for part in wanted]
        found = zip(names, outs, wanted, strict=True)
        return self._adapters.wrap(made, [SitePart(name or "", num_out, part.ordered) for name, num_out, part in found])

    def norm(self, name: str) -> Norm:
        kind, checkpoint = self._config.architecture.norm, self._checkpoint
        if kind is NormKind.LAYER:
            bias = checkpoint.find(f"{name}.bias")
            return LayerNorm(checkpoint.get(f"{name}.weight"), bias, self._config.norm_eps)
        return RmsNorm(self._norm_weight(name), self._epsilon)

    def _norm(self, layer: str, name: str | None) -> Norm | None:
        return None if name is None else self.norm(f"{layer}.{name}")

    def _norm_weight(self, name: str) -> Tensor:
        if self._config.architecture.norm is NormKind.RMS_PLUS_ONE:
            return self._checkpoint.get(f"{name}.weight", torch.float32) + 1.0
        return self._checkpoint.get(f"{name}.weight")

    def _head_norm(self, number: int) -> HeadNorm | None:
        config, modules, name = self._config, self._config.architecture.modules, layer_name(self._config, number)
        kind = config.architecture.head_norm
        if kind is HeadNormKind.NONE:
            return None
        query, key = (self._norm_weight(f"{name}.{norm}") for norm in (modules.query_norm, modules.key_norm))
        [queries, keys, *_] = parts.head_rows(config, number)
        if kind is HeadNormKind.ALL:
            return AllHeads(query[queries.to(query.device)], key[keys.to(key.device)], self._epsilon)
        own = queries[: config.head_dim].to(query.device)
        rows = [query[own]] * config.num_heads + [key[own]] * config.num_kv_heads
        return EachHead(torch.stack(rows), config.norm_eps)

    def _mlp(self, of: MlpParts) -> Mlp:
        activate = ACTIVATIONS[self._config.activation]
        kind = GatedMlp if self._config.architecture.gated else PlainMlp
        return kind(self.linear(of.up), self.linear(of.down), activate)

    def _sparse(self, number: int) -> Mlp:
        config, experts = self._config, self._config.experts
        assert experts is not None, "a layer is sparse where there are experts"
        router, *gate = (pack(self._checkpoint.weight([part]), None) for part in parts.routers(config, number))
        shared = parts.shared_expert(config, number)
        return SparseMlp(
            router,
            [self._mlp(expert) for expert in parts.experts(config, number)],
            experts.num_chosen,
            experts.normalises,
            None if shared is None else SharedExpert(self._mlp(shared), *gate),
            self._adapters,
        )
