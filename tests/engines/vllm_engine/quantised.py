"""Writes a model as FP8, AWQ, GPTQ and int8 checkpoints have it, and as the float32 model that those stand for."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

GROUP = 32  # inputs with one scale
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)  # which of eight outputs is in which four bits of a word

Written = tuple[
    Mapping[str, Tensor], Tensor
]  # the tensors of a projection by the end of their name; what they stand for


def fp8(weight: Tensor) -> Written:
    """One scale for all of it."""
    scale = weight.abs().max() / torch.finfo(torch.float8_e4m3fn).max
    codes = (weight / scale).to(torch.float8_e4m3fn)
    return {"weight": codes, "weight_scale": scale.reshape(1)}, codes.float() * scale


def gptq(weight: Tensor) -> Written:
    """Symmetric: zero is 8, which is written as 7."""
    grouped = weight.view(len(weight), -1, GROUP)
    scales = (grouped.abs().amax(-1) / 7).half()
    codes = (grouped / scales.float()[..., None]).round().clamp(-8, 7) + 8
    zeros = torch.full_like(scales, 7)
    tensors = {
        "qweight": _packed(codes.flatten(1).t(), 0, range(8)),  # [in / 8, out]
        "qzeros": _packed(zeros.t(), 1, range(8)),
        "scales": scales.t().contiguous(),
        "g_idx": torch.arange(weight.shape[1], dtype=torch.int32) // GROUP,
    }
    return tensors, ((codes - 8) * scales.float()[..., None]).flatten(1)


def awq(weight: Tensor) -> Written:
    """Each group has a zero of its own."""
    grouped = weight.view(len(weight), -1, GROUP)
    low, high = grouped.amin(-1).clamp(max=0), grouped.amax(-1).clamp(min=0)
    scales = ((high - low) / 15).half()
    zeros = (-low / scales.float()).round()
    codes = ((grouped / scales.float()[..., None]).round() + zeros[..., None]).clamp(0, 15)
    tensors = {
        "qweight": _packed(codes.flatten(1).t(), 1, AWQ_ORDER),  # [in, out / 8]
        "qzeros": _packed(zeros.t(), 1, AWQ_ORDER),
        "scales": scales.t().contiguous(),
    }
    return tensors, ((codes - zeros[..., None]) * scales.float()[..., None]).flatten(1)


def int8(weight: Tensor) -> Written:
    """A scale for each output."""
    scales = weight.abs().amax(1, keepdim=True) / 127
    codes = (weight / scales).round().to(torch.int8)
    return {"weight": codes, "weight_scale": scales}, codes.float() * scales


EIGHT_BITS = {"num_bits": 8, "type": "int", "symmetric": True}
INT8 = {
    "format": "int-quantized",
    "quantization_status": "compressed",
    "ignore": ["lm_head"],
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {**EIGHT_BITS, "strategy": "channel", "dynamic": False},
            "input_activations": {**EIGHT_BITS, "strategy": "token", "dynamic": True},
        }
    },
}

KINDS: Mapping[str, tuple[Callable[[Tensor], Written], Mapping[str, Any]]] = {
    "fp8": (fp8, {"activation_scheme": "dynamic"}),
    "gptq": (gptq, {"bits": 4, "group_size": GROUP, "desc_act": False, "sym": True}),
    "awq": (awq, {"bits": 4, "group_size": GROUP, "zero_point": True, "version": "gemm"}),
    "compressed-tensors": (int8, INT8),
}


def write_quantised(source: Path, kind: str, folder: Path) -> tuple[Path, Path]:
    """Return the folders of both models: all projections of the layers are quantised, and nothing else."""
    quantise, config = KINDS[kind]
    written, floats = dict[str, Tensor](), dict[str, Tensor]()
    for name, tensor in load_file(source / "model.safetensors").items():
        if not name.endswith("_proj.weight"):
            written[name] = floats[name] = tensor
            continue
        tensors, floats[name] = quantise(tensor.float())
        written |= {name.removesuffix("weight") + end: part.contiguous() for end, part in tensors.items()}
    own = {"quantization_config": {"quant_method": kind, **config}}
    return _write(source, folder / kind, written, own), _write(source, folder / "floats", floats, {})


def _write(source: Path, folder: Path, tensors: Mapping[str, Tensor], config: Mapping[str, Any]) -> Path:
    folder.mkdir(parents=True)
    for file in source.iterdir():
        if file.suffix == ".json" and file.name != "config.json":
            (folder / file.name).write_bytes(file.read_bytes())
    (folder / "config.json").write_text(json.dumps({**json.loads((source / "config.json").read_text()), **config}))
    save_file(dict(tensors), folder / "model.safetensors")
    return folder


def _packed(codes: Tensor, axis: int, order: Any) -> Tensor:
    """Eight codes along an axis in a word; ``order``: which of them is where, the lowest bits first."""
    eights = codes.to(torch.int64).unflatten(axis, (-1, 8)).movedim(axis + 1, -1)
    words = sum(eights[..., code] << (4 * place) for place, code in enumerate(order))
    return torch.as_tensor(words).to(torch.int32).contiguous()
