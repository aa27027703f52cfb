"""The torch engine beside vLLM's CPU build: same model, one thread on the same core, float32.

    python -m bench.vs_vllm --vllm-python PATH [--model REFERENCE] [--rounds 5] [--vllm-env NAME=VALUE] [--json FILE]

``PATH`` is the interpreter of an environment with vLLM; it needs nothing of this project. All engines are loaded at
once and take turns, round by round, so that what else the machine does falls on all of them. vLLM runs eager and
compiled: the better of the two counts. The int8 mode runs along, against float32. Ratios are medians over the rounds.
Linux only: processes are pinned to one core.
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.child import Child, ChildError
from bench.engine_under_test import add_model_argument
from bench.rounds import Measured, Round
from engines.models.store import prepared_dir

NEW_TOKENS = 48
OURS, INT8, EAGER, COMPILED = "float32", "int8", "vLLM eager", "vLLM compiled"


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the comparison. ``value`` reads it from what a round measured."""

    name: str
    num_requests: int
    prompt_tokens: int
    new_tokens: int
    value: Callable[[Measured], float | None]
    is_rate: bool

    def round(self, seed: int, clock: str) -> Round:
        return Round(self.num_requests, self.prompt_tokens, self.new_tokens, seed, clock)


FIGURES = (
    *(
        Figure(f"decode, {n:2} requests (tokens/s)", n, 64, NEW_TOKENS, lambda m: m.decode_rate, True)
        for n in (1, 4, 16)
    ),
    *(Figure(f"TTFT, {n:3} tokens (ms)", 1, n, 1, lambda m: m.ttft_ms, False) for n in (64, 512)),
)

Values = dict[str, list[float]]  # of one figure: by engine, one a round


@dataclass(frozen=True, slots=True)
class Setting:
    """What the children are started with."""

    folder: Path
    vllm_python: str
    vllm_env: Mapping[str, str]
    core: int
    logs: Path

    async def torch(self, name: str, dtype: str) -> Child:
        command = [sys.executable, "-m", "bench.torch_engine_speed", str(self.folder), dtype]
        return await Child.start(name, command, dict(os.environ), self.logs / dtype)

    async def vllm(self, name: str, mode: str, module: str = "bench.vllm_engine_speed") -> Child:
        environment = {
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_CPU_OMP_THREADS_BIND": str(self.core),
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "VLLM_NO_USAGE_STATS": "1",
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
        }
        command = [self.vllm_python, "-m", module, str(self.folder), mode]
        log = self.logs / f"{module}-{mode}"
        return await Child.start(name, command, {**os.environ, **environment, **self.vllm_env}, log)


Compare = Callable[[Setting], Coroutine[None, None, dict[str, Values]]]


async def start_all(setting: Setting, stack: AsyncExitStack) -> list[Child]:
    """One after the other. vLLM may fail to compile here; it is then measured eager alone."""
    children = []
    for name, start, mode in (
        (OURS, setting.torch, "float32"),
        (EAGER, setting.vllm, "eager"),
        (INT8, setting.torch, "int8"),
        (COMPILED, setting.vllm, "compiled"),
    ):
        print(f"starting {name}", file=sys.stderr)
        try:
            child = await start(name, mode)
        except ChildError as error:
            if name != COMPILED:
                raise
            print(f"without it: {error}", file=sys.stderr)
            continue
        stack.push_async_callback(child.stop)
        children.append(child)
    return children


async def take_turns(children: Sequence[Child], rounds: int, clock: str = "wall") -> dict[str, Values]:
    """Every figure of every engine. The engines of a round get the same prompts; the first round only warms up."""
    figures: dict[str, Values] = {figure.name: {child.name: [] for child in children} for figure in FIGURES}
    for turn in range(rounds + 1):
        for index, figure in enumerate(FIGURES):
            for child in children:
                value = figure.value(await child.measure(figure.round(turn * len(FIGURES) + index, clock)))
                if turn > 0 and value is not None:
                    figures[figure.name][child.name].append(value)
        print(f"round {turn} of {rounds} done", file=sys.stderr)
    return figures


def best_vllm(figure: Figure, values: Values) -> str:
    medians = {name: statistics.median(values[name]) for name in (EAGER, COMPILED) if name in values}
    return max(medians, key=lambda name: medians[name] if figure.is_rate else -medians[name])


def advantage(figure: Figure, values: Values, name: str, over: str) -> float:
    """How many times faster an engine is than another: the median over the rounds."""
    ratios = (mine / other for mine, other in zip(values[name], values[over], strict=True))
    ratio = statistics.median(ratios)
    return ratio if figure.is_rate else 1 / ratio


def summary(figures: Mapping[str, Values]) -> dict[str, dict[str, float]]:
    """By figure: the medians, and how many times faster we are."""
    lines = {}
    for figure in FIGURES:
        values = figures[figure.name]
        lines[figure.name] = {name: statistics.median(each) for name, each in values.items()} | {
            "float32 / vLLM": advantage(figure, values, OURS, best_vllm(figure, values)),
            "int8 / float32": advantage(figure, values, INT8, OURS),
        }
    return lines


def table(lines: Mapping[str, Mapping[str, float]]) -> Table:
    columns = list(next(iter(lines.values())))
    made = Table("one thread, medians", *(f"{column}" for column in columns))
    for name, line in lines.items():
        made.add_row(name, *(f"{line[column]:.2f}x" if "/" in column else f"{line[column]:.1f}" for column in columns))
    return made


async def compare(setting: Setting, rounds: int) -> dict[str, Values]:
    async with AsyncExitStack() as stack:
        children = await start_all(setting, stack)
        return await take_turns(children, rounds)


def name_and_value(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not name or not separator:
        raise argparse.ArgumentTypeError(f"{text!r}: want NAME=VALUE")
    return name, value


def parser_of(command: str, about: str) -> argparse.ArgumentParser:
    """What all comparisons with vLLM are told."""
    parser = argparse.ArgumentParser(prog=f"python -m {command}", description=about.splitlines()[0])
    add_model_argument(parser)
    parser.add_argument("--vllm-python", required=True, help="interpreter of an environment with vLLM")
    parser.add_argument(
        "--vllm-env", action="append", default=[], type=name_and_value, metavar="NAME=VALUE", help="such as LD_PRELOAD"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)), help="the core all run on")
    parser.add_argument("--json", type=Path, help="write the figures here")
    return parser


def measured(arguments: argparse.Namespace, compare: Compare) -> dict[str, Values]:
    """Raise `ChildError` or `OSError` if an engine cannot be measured."""
    os.sched_setaffinity(0, {arguments.core})  # the children inherit it
    folder = prepared_dir(arguments.model)
    with tempfile.TemporaryDirectory() as logs:
        setting = Setting(folder, arguments.vllm_python, dict(arguments.vllm_env), arguments.core, Path(logs))
        return asyncio.run(compare(setting))


def main() -> int:
    arguments = parser_of("bench.vs_vllm", __doc__).parse_args()
    try:
        figures = measured(arguments, lambda setting: compare(setting, arguments.rounds))
    except (ChildError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    lines = summary(figures)
    Console(width=120).print(table(lines))
    if arguments.json:
        arguments.json.write_text(json.dumps({"summary": lines, "rounds": figures}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
