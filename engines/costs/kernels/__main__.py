"""Composes presets of models on GPUs from measured kernels, and prints them as ``engines/costs/presets.toml`` has them.

    python -m engines.costs.kernels --data FOLDER [--device NAME] [--framework NAME] MODEL --tp N [N ...]

FOLDER is that of the device in the package aiconfigurator-core, such as ``systems/data/h100_sxm``. Its tables are
parquet: pyarrow reads them.
Costs are fitted to every other point of a grid of iterations and judged by the rest, and printed as fitted to all.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from engines.costs.kernels.compose import Composed, Composer, KernelModel, MeasuredExperts, Mixture, compose
from engines.costs.kernels.tables import FRAMEWORKS, read_kernels
from engines.costs.presets import memory_speeds, model_shape
from mesh.errors import UserError

FP8 = "fp8"
MXFP4 = "w4a16_mxfp4"
# The only model of MXFP4 that Marlin was measured with.
KIMI_K3 = MeasuredExperts(3584, 3072, 896, 16, call_ms=0.055, fill=(256, 128))
MODELS = {
    "llama3-8b": KernelModel(model_shape("llama3-8b")),
    "qwen3-32b": KernelModel(model_shape("qwen3-32b")),
    "qwen3-32b-fp8": KernelModel(model_shape("qwen3-32b-fp8"), FP8),
    "llama3-70b": KernelModel(model_shape("llama3-70b")),
    "llama3-70b-fp8": KernelModel(model_shape("llama3-70b-fp8"), FP8),
    "gpt-oss-120b": KernelModel(model_shape("gpt-oss-120b"), mixture=Mixture(128, 4, MXFP4), window=128),
    "gpt-oss-120b-marlin": KernelModel(
        model_shape("gpt-oss-120b-marlin"), mixture=Mixture(128, 4, MXFP4, like=KIMI_K3), window=128
    ),
    "qwen3-32b-fp8-kv8": KernelModel(model_shape("qwen3-32b-fp8-kv8"), FP8, kv=FP8),
    "qwen3-235b-fp8": KernelModel(
        model_shape("qwen3-235b-fp8"), FP8, mixture=Mixture(128, 8, "fp8_block", is_spread=True)
    ),
}


def preset_text(name: str, device: str, model: str, num_devices: int, source: str, composed: Composed) -> str:
    """Return the preset as TOML, in milliseconds."""
    prefill, decode = composed.prefill, composed.decode
    terms = {
        "prefill_ms": {
            "fixed": prefill.fixed_s,
            "per_token": prefill.per_token_s,
            "per_token_context": prefill.per_token_context_s,
            "per_cached_token": prefill.per_cached_token_s,
        },
        "decode_ms": {
            "fixed": decode.fixed_s,
            "per_request": decode.per_request_s,
            "per_context_token": decode.per_context_token_s,
            "per_mean_context_token": decode.per_mean_context_token_s,
        },
    }
    lines = [
        f"[profiles.{name}]",
        f'source = "{source}"',
        f'device = "{device}"',
        f'model = "{model}"',
        f"tensor_parallel = {num_devices}",
    ]
    for (key, parts), table in zip(terms.items(), (prefill.table, decode.table), strict=True):
        texts = [f"{term} = {1e3 * time_s:.5g}" for term, time_s in parts.items() if time_s]
        lines.append(f"{key} = {{ {', '.join(texts + _table_texts(table))} }}")
    errors = ", ".join(f"{error:.3g}" for error in composed.held_out_p90)
    return "\n".join([*lines, f"held_out_p90 = [{errors}]", ""])


def _table_texts(table: Sequence[tuple[int, float]]) -> list[str]:
    points = ", ".join(f"[{size}, {1e3 * time_s:.5g}]" for size, time_s in table)
    return [f"table = [{points}]"] if points else []


def print_presets(options: argparse.Namespace) -> None:
    device, model, framework = options.device, options.model, options.framework
    kernels, speed = read_kernels(options.data, framework), memory_speeds()[device]
    source, suffix = ("kernels", "") if framework == FRAMEWORKS[0] else (f"kernels_{framework}", f"-{framework}")
    for num_devices in options.tp:
        composed = compose(Composer(kernels, MODELS[model], num_devices, speed))
        name = f"{device}-{model}-tp{num_devices}{suffix}"
        sys.stdout.write(f"{preset_text(name, device, model, num_devices, source, composed)}\n")


def main() -> None:
    description = "Composes presets of models on GPUs from measured kernels."
    devices = sorted(memory_speeds())
    parser = argparse.ArgumentParser(prog="python -m engines.costs.kernels", description=description)
    parser.add_argument("model", choices=sorted(MODELS), metavar="MODEL", help=", ".join(sorted(MODELS)))
    parser.add_argument("--data", type=Path, required=True, metavar="FOLDER", help="of tables for the device")
    parser.add_argument("--device", choices=devices, default="h100", metavar="NAME", help=", ".join(devices))
    parser.add_argument(
        "--framework", choices=FRAMEWORKS, default=FRAMEWORKS[0], metavar="NAME", help=" or ".join(FRAMEWORKS)
    )
    parser.add_argument("--tp", type=int, nargs="+", default=[1], metavar="N", help="devices (default: 1)")
    options = parser.parse_args()
    try:
        print_presets(options)
    except UserError as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    main()
