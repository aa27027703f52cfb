"""The torch engine beside vLLM's CPU build, llama.cpp and transformers: same model, one thread, all on the same core.

    python -m bench.peers.engines --vllm-python PATH [--llama-python PATH] [--model REFERENCE] [--rounds 3]
        [--only NAME ...] [--vllm-env NAME=VALUE] [--clock cpu] [--json FILE]

``PATH`` is the interpreter of an environment with vLLM, or with llama-cpp-python; they need nothing of this project.
llama.cpp reads the model's GGUF file itself and rounds activations to 8 bits, as our int8 does. Transformers are those
of this project, by ``generate`` and by continuous batching. ``core-vllm`` is vLLM as the executor of our engine core,
which tells what our core costs vLLM. All engines are loaded at once and take turns, round by
round, so that what else the machine does falls on all of them. vLLM runs eager and compiled: the better of the two
counts. Ratios are medians over the rounds. Linux only: processes are pinned to one core.
"""

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from bench.engine.under_test import add_model_argument
from bench.harness.arguments import add_json, script_parser
from bench.harness.files import write_json
from bench.harness.tables import make_console
from bench.peers.child import Child, ChildError
from bench.peers.rounds import CLOCKS, Measured, Round
from engines.models.cache import Cache
from engines.models.reference import parse_reference
from engines.models.store import prepared_dir

NEW_TOKENS = 32


@dataclass(frozen=True, slots=True)
class Case:
    """Requests that arrive at once."""

    num_requests: int
    prompt_tokens: int

    def round(self, seed: int, clock: str) -> Round:
        return Round(self.num_requests, self.prompt_tokens, NEW_TOKENS, seed, clock)

    def __str__(self) -> str:
        return f"{self.num_requests} x {self.prompt_tokens}"


@dataclass(frozen=True, slots=True)
class Figure:
    """What is read from a case."""

    kind: str
    case: Case
    value: Callable[[Measured], float | None]
    is_rate: bool

    @property
    def name(self) -> str:
        return f"{self.kind}, {self.case}"


CASES = tuple(Case(num_requests, prompt) for prompt in (64, 512) for num_requests in (1, 4, 16))
RATE, TTFT = "decode, tokens/s", "mean TTFT, ms"

Values = dict[str, list[float]]  # of one figure: by engine, one a round


def figures_of(cases: Iterable[Case]) -> list[Figure]:
    return [
        figure
        for case in cases
        for figure in (
            Figure(RATE, case, lambda measured: measured.decode_rate, True),
            Figure(TTFT, case, lambda measured: measured.ttft_ms, False),
        )
    ]


# --- engines ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Setting:
    """What the children are started with. ``pythons``: interpreters by family; ours has the rest."""

    folder: Path
    pythons: Mapping[str, str | None]
    vllm_env: Mapping[str, str]
    core: int
    logs: Path
    gguf: Path | None

    async def start(self, name: str) -> Child:
        """Raise `ChildError` unless it gets ready."""
        engine = ENGINES[name]
        python = self.pythons.get(engine.interpreter, sys.executable)
        if not python:
            raise ChildError(f"--{engine.interpreter}-python is to name its environment")
        if engine.family == LLAMA_CPP and self.gguf is None:
            raise ChildError("the model is to be a GGUF file")
        model = self.gguf if engine.family == LLAMA_CPP else self.folder
        command = [python, "-m", engine.module, str(model), *engine.arguments]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        if engine.interpreter == "vllm":
            environment |= {**VLLM_ENVIRONMENT, "VLLM_CPU_OMP_THREADS_BIND": str(self.core), **self.vllm_env}
        return await Child.start(name, command, environment, self.logs / name)


@dataclass(frozen=True, slots=True)
class Engine:
    """A child's module and its arguments. ``family``: whose it is. ``interpreter``: the peer whose it needs."""

    family: str
    module: str
    arguments: tuple[str, ...]
    is_exact: bool  # float32
    interpreter: str = ""


VLLM_ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
}
OURS, VLLM, LLAMA_CPP, TRANSFORMERS = "ours", "vLLM", "llama.cpp", "transformers"
CORE_VLLM = "core over vLLM"
CORE_MODULE, VLLM_MODULE = "bench.peers.core_engine", "bench.peers.vllm_engine_speed"
TRANSFORMERS_MODULE = "bench.peers.transformers_speed"
ENGINES = {
    "ours": Engine(OURS, CORE_MODULE, ("float32",), True),
    "ours-bfloat16": Engine(OURS, CORE_MODULE, ("bfloat16",), False),
    "ours-int8": Engine(OURS, CORE_MODULE, ("int8",), False),
    "vllm-eager": Engine(VLLM, VLLM_MODULE, ("eager", "float32"), True, "vllm"),
    "vllm-compiled": Engine(VLLM, VLLM_MODULE, ("compiled", "float32"), True, "vllm"),
    "vllm-bfloat16": Engine(VLLM, VLLM_MODULE, ("compiled", "bfloat16"), False, "vllm"),
    "core-vllm-eager": Engine(CORE_VLLM, CORE_MODULE, ("float32", "vllm-eager"), True, "vllm"),
    "core-vllm-compiled": Engine(CORE_VLLM, CORE_MODULE, ("float32", "vllm-compiled"), True, "vllm"),
    "llama.cpp": Engine(LLAMA_CPP, "bench.peers.llama_cpp_speed", (), False, "llama"),
    "generate": Engine(TRANSFORMERS, TRANSFORMERS_MODULE, ("generate", "float32"), True),
    "generate-bfloat16": Engine(TRANSFORMERS, TRANSFORMERS_MODULE, ("generate", "bfloat16"), False),
    "continuous": Engine(TRANSFORMERS, TRANSFORMERS_MODULE, ("continuous", "float32"), True),
    "continuous-bfloat16": Engine(TRANSFORMERS, TRANSFORMERS_MODULE, ("continuous", "bfloat16"), False),
}
RIVALS = ((OURS, VLLM), (OURS, LLAMA_CPP), (OURS, TRANSFORMERS), (CORE_VLLM, VLLM))


async def start_all(setting: Setting, names: Iterable[str], stack: AsyncExitStack) -> list[Child]:
    """One after the other. One that does not start is left out: vLLM may fail to compile here."""
    children = []
    for name in names:
        print(f"starting {name}", file=sys.stderr)
        try:
            child = await setting.start(name)
        except ChildError as error:
            print(f"without it: {error}", file=sys.stderr)
            continue
        stack.push_async_callback(child.stop)
        children.append(child)
    return children


async def take_turns(children: Sequence[Child], rounds: int, clock: str, cases: Sequence[Case]) -> dict[str, Values]:
    """Every figure of every engine that had it in each round; some never decode all requests at once.

    The engines of a round get the same prompts; the first round only warms up.
    """
    figures = figures_of(cases)
    values: dict[str, Values] = {figure.name: {child.name: [] for child in children} for figure in figures}
    for turn in range(rounds + 1):
        for index, case in enumerate(cases):
            for child in children:
                measured = await child.measure(case.round(turn * len(cases) + index, clock))
                print(f"{child.name}, {case}: {measured}", file=sys.stderr)
                for figure in (figure for figure in figures if figure.case == case):
                    value = figure.value(measured)
                    if turn > 0 and value is not None:
                        values[figure.name][child.name].append(value)
        print(f"round {turn} of {rounds} done", file=sys.stderr)
    return {
        figure: {name: each for name, each in by_name.items() if len(each) == rounds}
        for figure, by_name in values.items()
    }


# --- what comes of it -------------------------------------------------------------------------------------------------


def best(figure: Figure, values: Values, family: str, *, exact: bool) -> str | None:
    """The family's fastest engine, of those in float32 if it is to be ``exact``."""
    names = [name for name in values if ENGINES[name].family == family and ENGINES[name].is_exact >= exact]
    medians = {name: statistics.median(values[name]) for name in names}
    return max(medians, key=lambda name: medians[name] if figure.is_rate else -medians[name], default=None)


def advantage(figure: Figure, values: Values, name: str, over: str) -> float:
    """How many times faster an engine is than another: the median over the rounds."""
    ratios = (mine / other for mine, other in zip(values[name], values[over], strict=True))
    ratio = statistics.median(ratios)
    return ratio if figure.is_rate else 1 / ratio


def advantages(figure: Figure, values: Values) -> dict[str, float]:
    """Ours over the others, in float32 and each with the dtype that suits it best."""
    found = {}
    for exact, how in ((True, "float32"), (False, "best dtype")):
        for family, rival in RIVALS:
            mine, other = (best(figure, values, name, exact=exact) for name in (family, rival))
            if mine is not None and other is not None:
                found[f"{family} / {rival}, {how}"] = advantage(figure, values, mine, other)
    return found


def table(kind: str, figures: Sequence[Figure], values: Mapping[str, Values]) -> Table:
    """Engines by case, and what ours are ahead by."""
    mine = [figure for figure in figures if figure.kind == kind]
    made = Table(kind, *(f"{figure.case} tokens" for figure in mine))
    for name in dict.fromkeys(name for figure in mine for name in values[figure.name]):
        rounds = [values[figure.name].get(name) for figure in mine]
        made.add_row(name, *("-" if each is None else f"{statistics.median(each):.1f}" for each in rounds))
    made.add_section()
    ahead = [advantages(figure, values[figure.name]) for figure in mine]
    for what in dict.fromkeys(what for one in ahead for what in one):
        made.add_row(what, *(f"{one[what]:.2f}x" if what in one else "-" for one in ahead))
    return made


def summary(figures: Sequence[Figure], values: Mapping[str, Values]) -> dict[str, dict[str, float]]:
    """By figure: the medians, and how many times faster we are."""
    return {
        figure.name: {name: statistics.median(each) for name, each in values[figure.name].items()}
        | advantages(figure, values[figure.name])
        for figure in figures
    }


async def compare(
    setting: Setting, names: Sequence[str], rounds: int, clock: str, cases: Sequence[Case]
) -> dict[str, Values]:
    async with AsyncExitStack() as stack:
        children = await start_all(setting, names, stack)
        return await take_turns(children, rounds, clock, cases)


def name_and_value(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not name or not separator:
        raise argparse.ArgumentTypeError(f"{text!r}: want NAME=VALUE")
    return name, value


def gguf_of(model: str) -> Path | None:
    """The file that the model was made from, if it was."""
    entry = Cache.of_user().entry(str(parse_reference(model)))
    return Path(model) if model.endswith(".gguf") and Path(model).exists() else next(entry.source.glob("*.gguf"), None)


def measured(arguments: argparse.Namespace, cases: Sequence[Case]) -> dict[str, Values]:
    """Raise `ChildError` or `OSError` if an engine cannot be measured."""
    os.sched_setaffinity(0, {arguments.core})  # the children inherit it
    pythons = {"vllm": arguments.vllm_python, "llama": arguments.llama_python}
    folder, gguf = prepared_dir(arguments.model), gguf_of(arguments.model)
    with tempfile.TemporaryDirectory() as logs:
        setting = Setting(folder, pythons, dict(arguments.vllm_env), arguments.core, Path(logs), gguf)
        return asyncio.run(compare(setting, arguments.only, arguments.rounds, arguments.clock, cases))


def main() -> int:
    arguments = _parse()
    cases = [case for case in CASES if case.num_requests * case.prompt_tokens <= arguments.most_tokens]
    try:
        values = measured(arguments, cases)
    except (ChildError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    figures = figures_of(cases)
    console = make_console()
    for kind in (RATE, TTFT):
        console.print(table(kind, figures, values))
    if arguments.json:
        write_json(arguments.json, {"summary": summary(figures, values), "rounds": values})
    return 0


def _parse() -> argparse.Namespace:
    parser = script_parser("bench.peers.engines", __doc__)
    add_model_argument(parser)
    parser.add_argument("--vllm-python", help="interpreter of an environment with vLLM")
    parser.add_argument(
        "--vllm-env", action="append", default=[], type=name_and_value, metavar="NAME=VALUE", help="such as LD_PRELOAD"
    )
    parser.add_argument("--llama-python", help="interpreter of an environment with llama-cpp-python")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="cpu: CPU time, for machines that are busy")
    parser.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)), help="the core all run on")
    parser.add_argument(
        "--only", nargs="+", choices=ENGINES, default=[*ENGINES], metavar="NAME", help=f"of {', '.join(ENGINES)}"
    )
    parser.add_argument(
        "--most-tokens", type=int, default=16 * 512, metavar="N", help="leave out cases with more tokens in all prompts"
    )
    add_json(parser)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
