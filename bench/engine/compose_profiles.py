"""Composes the presets of A100, H100 and H200 from measured kernels, and says how far off each is elsewhere.

    python -m bench.engine.compose_profiles AICONFIGURATOR_OPS [--write engines/costs/presets.toml]

Costs are fitted to one grid of composed iterations and judged on another. Scaled presets (`engines.costs.scaling`) are
judged on iterations composed of the kernels of their own model, which they never saw. ``mixed`` is the error of
`engines.costs.step_cost` for prompts and decodes in one iteration, to which nothing is fitted. ``twice`` is the error
at 10k to 16k tokens of a fit to prompts of at most 8k. With ``--write``, the part of the file between its marks is
replaced.
"""

import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from bench.engine.kernel_times import Iterations, Kernels, Shape
from bench.harness.arguments import script_parser
from bench.harness.tables import make_console, make_table
from engines.costs.fitting import DecodeSample, PrefillSample, fit_decode, fit_prefill
from engines.costs.linear import decode_step_s, prefill_s
from engines.costs.presets import load_preset
from engines.costs.step_cost import StepCost, StepLoad

SOURCE = "aiconfigurator"
FIRST_MARK = "# --- composed by bench.engine.compose_profiles: do not edit by hand ---\n"
LAST_MARK = "# --- end of what was composed ---\n"
PRESETS = Path("engines/costs/presets.toml")
LONGEST = 16384  # prompts whose attention was measured
HALF = LONGEST // 2
DIGITS = 5


def _steps(first: float, last: float, factor: float) -> list[int]:
    number = int(np.log(last / first) / np.log(factor) + 1e-9) + 1
    return sorted({round(first * factor**index) for index in range(number)})


PREFILLS = [(n, c) for n in _steps(1, LONGEST, 2**0.5) for c in (0, 1024, 4096, HALF) if n + c <= LONGEST]
PREFILLS_HELD_OUT = [(n, c) for n in _steps(3, LONGEST, 1.6) for c in (0, 512, 2048, 6144) if n + c <= LONGEST]
TWICE_AS_LONG = [(n, 0) for n in (10240, 12288, 14336, LONGEST)]
DECODES = [(b, c) for b in _steps(1, 256, 2**0.5) for c in (128, 512, 2048, 8192, 32768) if b * c <= 600_000]
DECODES_HELD_OUT = [(b, c) for b in _steps(1, 220, 1.7) for c in (256, 1024, 4096, LONGEST) if b * c <= 400_000]
MIXED = [
    (n, before, b, c) for n in (64, 256, 512, 2048) for before in (0, 4096) for b in (4, 16, 64) for c in (512, 2048)
]


def fit(times: Iterations, prefills: Sequence[tuple[int, int]] = PREFILLS) -> StepCost:
    prefill = fit_prefill([PrefillSample(n, c, times.prefill_s(n, c)) for n, c in prefills])
    return StepCost(prefill, fit_decode([DecodeSample(b, b * c, times.decode_s(b, c)) for b, c in DECODES]))


def prefill_p90(cost: StepCost, times: Iterations, points: Sequence[tuple[int, int]] = PREFILLS_HELD_OUT) -> float:
    return _p90(prefill_s(cost.prefill, n, c) / times.prefill_s(n, c) for n, c in points)


def decode_p90(cost: StepCost, times: Iterations) -> float:
    return _p90(decode_step_s(cost.decode, b, b * c) / times.decode_s(b, c) for b, c in DECODES_HELD_OUT)


def mixed_p90(cost: StepCost, times: Iterations) -> float:
    return _p90(
        sum(cost.parts(StepLoad([(n, before)], b, b * c))) / times.mixed_s(n, before, b, c) for n, before, b, c in MIXED
    )


def _p90(ratios: Iterable[float]) -> float:
    return float(np.quantile([abs(ratio - 1) for ratio in ratios], 0.9))


class Composer:
    """Composes what ``presets`` (the file as tables) name."""

    def __init__(self, folder: Path, presets: dict[str, Any]) -> None:
        self._folder = folder
        self._presets = presets
        self._kernels: dict[str, Kernels] = {}

    def composed(self) -> Iterator[tuple[str, dict[str, Any], Iterations]]:
        for name, preset in self._presets["profiles"].items():
            if preset["source"] == SOURCE:
                yield name, preset, self._iterations(preset)

    def scaled(self) -> Iterator[tuple[str, dict[str, Any], Iterations]]:
        for name, preset in self._presets["scaled"].items():
            yield name, preset, self._iterations(preset)

    def _iterations(self, preset: dict[str, Any]) -> Iterations:
        system = f"{preset['device']}_sxm"
        if system not in self._kernels:
            self._kernels[system] = Kernels(self._folder, system)
        model = {key: value for key, value in self._presets["models"][preset["model"]].items() if key in _SHAPE}
        return Iterations(self._kernels[system], Shape(**model), preset["tensor_parallel"])


_SHAPE = Shape.__dataclass_fields__


def section(name: str, preset: dict[str, Any], cost: StepCost, times: Iterations) -> str:
    """A section of the presets' file."""
    errors = [_rounded(prefill_p90(cost, times)), _rounded(decode_p90(cost, times))]
    key = name if re.fullmatch(r"[a-z0-9-]+", name) else f'"{name}"'
    return (
        f'[profiles.{key}]\nsource = "{SOURCE}"\ndevice = "{preset["device"]}"\nmodel = "{preset["model"]}"\n'
        f"tensor_parallel = {preset['tensor_parallel']}\n"
        f"prefill_ms = {_inline(msgspec.to_builtins(cost.prefill))}\n"
        f"decode_ms = {_inline(msgspec.to_builtins(cost.decode))}\n"
        f"held_out_p90 = {errors}\n"
    )


def _inline(cost: dict[str, Any]) -> str:
    """An inline table in milliseconds, without what is zero."""
    fields = {key.removesuffix("_s"): 1000 * value for key, value in cost.items() if key.endswith("_s")}
    required = ("fixed", "per_token", "per_request", "per_context_token")
    parts = [f"{key} = {_rounded(value)}" for key, value in fields.items() if value or key in required]
    if cost["table"]:
        parts.append(f"table = {[[size, _rounded(1000 * time_s)] for size, time_s in cost['table']]}")
    return f"{{ {', '.join(parts)} }}"


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def main() -> None:
    parser = script_parser("bench.engine.compose_profiles", __doc__)
    parser.add_argument("folder", type=Path, help="of AIConfigurator's operator tables as CSV")
    parser.add_argument("--write", type=Path, metavar="FILE", help="replace the composed part of this file")
    arguments = parser.parse_args()
    try:
        composer = Composer(arguments.folder, tomllib.loads(PRESETS.read_text(encoding="utf-8")))
        _compose(composer, arguments.write)
    except OSError as error:
        sys.exit(
            f"{error.filename}: {error.strerror}; name the folder of the operator tables, from the project's folder"
        )


def _compose(composer: Composer, write: Path | None) -> None:
    table = make_table(
        "errors on held-out points",
        ("preset", "prefill p90", "twice", "decode p90", "mixed p90"),
    )
    sections = []
    for name, preset, times in composer.composed():
        cost = fit(times)
        half = fit(times, [(n, c) for n, c in PREFILLS if n + c <= HALF])
        table.add_row(name, *_errors(cost, times, half))
        sections.append(section(name, preset, cost, times))
    for name, _, times in composer.scaled():
        table.add_row(f"{name} (scaled)", *_errors(load_preset(name).cost, times, None))
    make_console().print(table)
    if write is not None:
        before, _, rest = write.read_text(encoding="utf-8").partition(FIRST_MARK)
        _, _, after = rest.partition(LAST_MARK)
        write.write_text(f"{before}{FIRST_MARK}\n{chr(10).join(sections)}\n{LAST_MARK}{after}", encoding="utf-8")


def _errors(cost: StepCost, times: Iterations, half: StepCost | None) -> list[str]:
    twice = "" if half is None else f"{prefill_p90(half, times, TWICE_AS_LONG):.1%}"
    return [
        f"{prefill_p90(cost, times):.1%}", twice, f"{decode_p90(cost, times):.1%}", f"{mixed_p90(cost, times):.1%}"
    ]  # fmt: skip


if __name__ == "__main__":
    main()
