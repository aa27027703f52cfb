"""What our engine core costs vLLM: the same vLLM with its own scheduler, and as the executor of ours.

    python -m bench.vllm_under_core --vllm-python PATH [--mode eager|compiled] [--rounds 5] [--clock cpu]

``PATH`` is the interpreter that `make vllm-env` makes. Both are loaded at once and take turns, round by round, on one
core. float32, one thread. Ratios are medians over the rounds. Linux only.
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.child import ChildError
from bench.engine_under_test import add_model_argument
from bench.rounds import CLOCKS
from bench.vs_vllm import CASES, VLLM_MODULE, Setting, Values, advantage, figures_of, name_and_value, take_turns
from engines.models.store import prepared_dir

ALONE, UNDER_CORE = "vLLM alone", "under our core"
FEW = [case for case in CASES if case.num_requests * case.prompt_tokens <= 1024]


async def compare(setting: Setting, mode: str, rounds: int, clock: str) -> dict[str, Values]:
    async with AsyncExitStack() as stack:
        children = []
        for name, module in ((ALONE, VLLM_MODULE), (UNDER_CORE, "bench.vllm_core_speed")):
            child = await setting.vllm(name, mode, module=module)
            stack.push_async_callback(child.stop)
            children.append(child)
        return await take_turns(children, rounds, clock, FEW)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.vllm_under_core", description=__doc__.splitlines()[0])
    add_model_argument(parser)
    parser.add_argument("--vllm-python", required=True, help="interpreter of the environment of `make vllm-env`")
    parser.add_argument("--vllm-env", action="append", default=[], type=name_and_value, metavar="NAME=VALUE")
    parser.add_argument("--mode", choices=("eager", "compiled"), default="eager")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="cpu: CPU time, for machines that are busy")
    parser.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)), help="the core both run on")
    parser.add_argument("--json", type=Path, help="write the figures here")
    arguments = parser.parse_args()
    os.sched_setaffinity(0, {arguments.core})  # the children inherit it
    with tempfile.TemporaryDirectory() as logs:
        folder = prepared_dir(arguments.model)
        setting = Setting(folder, arguments.vllm_python, dict(arguments.vllm_env), arguments.core, Path(logs))
        try:
            figures = asyncio.run(compare(setting, arguments.mode, arguments.rounds, arguments.clock))
        except (ChildError, OSError) as error:
            print(error, file=sys.stderr)
            return 1
    made = Table(f"{arguments.mode}, medians", ALONE, UNDER_CORE, "ratio")
    for figure in figures_of(FEW):
        values = figures[figure.name]
        ratio = advantage(figure, values, UNDER_CORE, ALONE)
        made.add_row(figure.name, *(f"{statistics.median(each):.1f}" for each in values.values()), f"{ratio:.2f}x")
    Console(width=120).print(made)
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
