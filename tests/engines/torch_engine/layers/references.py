"""What products and attention are to give, and weights and KV to compute them from."""

from collections.abc import Sequence

import torch
from torch import Tensor

from engines.models.files.block_kinds import Form
from engines.torch_engine.layers.attention_kind import AttentionKind
from engines.torch_engine.layers.quantised_weights import Codes, halved

CODED_FORMS = [form for form in Form if form is not Form.HALVES]  # whose products are computed of rounded inputs, too


def any_codes(form: Form, outs: int, ins: int) -> Codes:
    generator = torch.Generator().manual_seed(ins)
    if form is Form.HALVES:
        return halved(torch.randn(outs, ins, generator=generator))
    most = 16 if form is Form.NIBBLES else 256
    codes = torch.randint(0, most, (outs, ins), dtype=torch.uint8, generator=generator)
    scales = torch.rand(outs, ins // form.group, generator=generator) / 100
    minima = torch.randn(outs, ins // form.group, generator=generator) / 10 if form.has_minima else None
    return Codes(form, codes, scales, minima)


def rounded(x: Tensor) -> Tensor:
    """Inputs as 8 bits have them, the largest of 32 being 127; in double precision."""
    groups = x.double().view(len(x), -1, 32)
    scales = groups.abs().amax(dim=2, keepdim=True) / 127
    return (groups / scales.clamp(min=1e-300)).round().mul(scales).view(x.shape)


def values_of(weight: Codes) -> Tensor:
    """What codes stand for, in double precision."""
    if weight.form is Form.HALVES:
        return weight.codes.double()
    codes = weight.codes if weight.form is Form.NIBBLES else weight.codes.view(torch.int8)
    values = codes.double() * weight.scales.double().repeat_interleave(weight.form.group, 1)
    if weight.minima is None:
        return values
    return values + weight.minima.double().repeat_interleave(weight.form.group, 1)


def attention(queries: Tensor, keys: Tensor, values: Tensor, kind: AttentionKind) -> Tensor:
    """Of the last tokens [n, heads, dim] of those with KV [tokens, kv_heads, dim], in double precision."""
    shared, num_new, num_tokens = queries.shape[1] // keys.shape[1], len(queries), len(keys)
    keys, values = (part.double().repeat_interleave(shared, dim=1).transpose(0, 1) for part in (keys, values))
    scores = queries.double().transpose(0, 1) @ keys.transpose(1, 2) * kind.scale
    if kind.softcap is not None:
        scores = torch.tanh(scores / kind.softcap) * kind.softcap
    seen = torch.ones(num_new, num_tokens, dtype=torch.bool).tril(num_tokens - num_new)
    if kind.window is not None:
        seen = seen.triu(num_tokens - num_new + 1 - kind.window)
    weights = scores.masked_fill(~seen, float("-inf")).softmax(dim=-1)
    return (weights @ values).transpose(0, 1).flatten(1).float()


def laid_out(
    lengths: Sequence[int],
    num_kv_heads: int,
    size: int,
    dim: int,
    generator: torch.Generator,
    dtype: torch.dtype = torch.float32,
) -> tuple[Tensor, Tensor, list[tuple[Tensor, Tensor]]]:
    """Rows of a pool of shuffled blocks, where requests' blocks begin there, and each request's K and V."""
    width = -(-max(lengths) // size)
    places = torch.randperm(len(lengths) * width + 3, generator=generator)
    rows = torch.randn(len(places) * 2 * num_kv_heads, size, dim, generator=generator)
    lie, rows = held(rows, dtype)
    tables = places[: len(lengths) * width].view(len(lengths), width) * 2 * num_kv_heads
    kv = []
    for length, table in zip(lengths, tables, strict=True):
        blocks = [rows[first : first + 2 * num_kv_heads].view(2, num_kv_heads, size, dim) for first in table]
        both = torch.cat([block.transpose(1, 2) for block in blocks], dim=1)[:, :length]
        kv.append((both[0], both[1]))
    return lie, tables, kv


def held(rows: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Rows of KV as a pool of that dtype holds them, and in floats what they then stand for."""
    if dtype != torch.uint8:
        return rows.to(dtype), rows.to(dtype).float()
    scales = rows.abs().amax(dim=-1, keepdim=True) / 127
    codes = (rows / scales.clamp(min=1e-30)).round()
    return torch.cat([codes.to(torch.int8).view(torch.uint8), scales.view(torch.uint8)], dim=-1), codes * scales


def row_inputs(num_rows: int, num_pairs: int = 16) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Hidden states [rows, 96], the weight of a norm, heads [rows, 3, 32], and angles of their first pairs."""
    dice = torch.Generator().manual_seed(num_rows)
    x, weight = 8 * torch.randn(num_rows, 96, generator=dice), torch.randn(96, generator=dice)
    angles = torch.polar(torch.ones(num_rows, 1, num_pairs), torch.randn(num_rows, 1, num_pairs, generator=dice))
    return x, weight, torch.randn(num_rows, 3, 32, generator=dice), angles


def turned(heads: Tensor, angles: Tensor) -> Tensor:
    """Return heads whose first components are rotated, pairs side by side."""
    num_dims = 2 * angles.shape[-1]
    pairs = torch.view_as_complex(heads[..., :num_dims].reshape(*heads.shape[:-1], -1, 2))
    return torch.cat([torch.view_as_real(pairs * angles).flatten(-2), heads[..., num_dims:]], dim=-1)
