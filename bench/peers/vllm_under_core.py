"""What our engine core costs vLLM: the same vLLM with its own scheduler, and as the executor of ours.

    python -m bench.peers.vllm_under_core --vllm-python PATH [--mode eager|compiled] [--rounds 5] [--clock cpu]

``PATH`` is the interpreter that `make vllm-env` makes. Both are loaded at once and take turns, round by round, on one
core. float32, one thread. Ratios are medians over the rounds. Linux only.
"""

import statistics
import sys
from contextlib import AsyncExitStack

from rich.table import Table

from bench.harness.files import write_json
from bench.harness.tables import make_console
from bench.peers.child import ChildError
from bench.peers.engines import (
    CASES,
    VLLM_MODULE,
    Setting,
    Values,
    advantage,
    figures_of,
    measured,
    parser_of,
    take_turns,
)

ALONE, UNDER_CORE = "vLLM alone", "under our core"
FEW = [case for case in CASES if case.num_requests * case.prompt_tokens <= 1024]


async def compare(setting: Setting, mode: str, rounds: int, clock: str) -> dict[str, Values]:
    async with AsyncExitStack() as stack:
        children = []
        for name, module in ((ALONE, VLLM_MODULE), (UNDER_CORE, "bench.peers.vllm_core_speed")):
            child = await setting.vllm(name, mode, module=module)
            stack.push_async_callback(child.stop)
            children.append(child)
        return await take_turns(children, rounds, clock, FEW)


def main() -> int:
    parser = parser_of("bench.peers.vllm_under_core", __doc__)
    parser.add_argument("--mode", choices=("eager", "compiled"), default="eager")
    arguments = parser.parse_args()
    mode, rounds, clock = arguments.mode, arguments.rounds, arguments.clock
    try:
        figures = measured(arguments, lambda setting: compare(setting, mode, rounds, clock))
    except (ChildError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    made = Table(f"{mode}, medians", ALONE, UNDER_CORE, "ratio")
    for figure in figures_of(FEW):
        values = figures[figure.name]
        ratio = advantage(figure, values, UNDER_CORE, ALONE)
        made.add_row(figure.name, *(f"{statistics.median(each):.1f}" for each in values.values()), f"{ratio:.2f}x")
    make_console().print(made)
    if arguments.json:
        write_json(arguments.json, figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
