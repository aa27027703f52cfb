"""The torch engine beside vLLM's CPU build and llama.cpp: same model, one thread, all on the same core.

    python -m bench.peers.engines --vllm-python PATH [--llama-python PATH] [--model REFERENCE] [--rounds 3]
        [--only NAME ...] [--vllm-env NAME=VALUE] [--json FILE]

``PATH`` is the interpreter of an environment with vLLM, or with llama-cpp-python; they need nothing of this project.
llama.cpp reads the model's GGUF file itself and rounds activations to 8 bits, as our int8 does. All engines are loaded
at once and take turns, round by round, so that what else the machine does falls on all of them. vLLM runs eager and
compiled: the better of the two counts. Ratios are medians over the rounds. Linux only: processes are pinned to one
core.
"""

import argparse
import os
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from bench.harness.arguments import add_names, script_parser
from bench.harness.files import write_json
from bench.harness.tables import make_console, make_table
from bench.peers.rounds import Child, ChildError, Command, Measured, Round, children
from engines.models.cache import Cache
from engines.models.reference import parse_reference
from engines.models.store import prepared_dir

NEW_TOKENS = 32


@dataclass(frozen=True, slots=True)
class Case:
    """Requests that arrive at once."""

    num_requests: int
    prompt_tokens: int

    def __str__(self) -> str:
        return f"{self.num_requests} x {self.prompt_tokens}"


CASES = tuple(Case(num_requests, prompt) for prompt in (64, 512) for num_requests in (1, 4, 16))
RATE, TTFT = "decode, tokens/s", "mean TTFT, ms"
KINDS = {RATE: "decode_rate", TTFT: "ttft_ms"}  # the field of `Measured` that has it

Rounds = Mapping[str, Mapping[Case, Sequence[Measured]]]  # by engine
Values = Mapping[str, Sequence[float]]  # of one kind and case: by engine, one a round


# --- engines ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Engine:
    """A child's module and its arguments. ``family``: whose it is. ``interpreter``: the peer whose it needs."""

    family: str
    module: str
    arguments: tuple[str, ...]
    is_exact: bool  # float32
    interpreter: str = ""


OURS, VLLM, LLAMA_CPP = "ours", "vLLM", "llama.cpp"
CORE_MODULE, VLLM_MODULE = "bench.peers.core_engine", "bench.peers.vllm_engine_speed"
ENGINES = {
    "ours": Engine(OURS, CORE_MODULE, ("float32",), True),
    "ours-bfloat16": Engine(OURS, CORE_MODULE, ("bfloat16",), False),
    "ours-int8": Engine(OURS, CORE_MODULE, ("int8",), False),
    "vllm-eager": Engine(VLLM, VLLM_MODULE, ("eager", "float32"), True, "vllm"),
    "vllm-compiled": Engine(VLLM, VLLM_MODULE, ("compiled", "float32"), True, "vllm"),
    "vllm-bfloat16": Engine(VLLM, VLLM_MODULE, ("compiled", "bfloat16"), False, "vllm"),
    "llama.cpp": Engine(LLAMA_CPP, "bench.peers.llama_cpp_speed", (), False, "llama"),
}
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
VLLM_ENVIRONMENT = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_NO_USAGE_STATS": "1"}


def command_of(engine: Engine, options: argparse.Namespace) -> Command:
    """A child's command. Raise `ChildError` if it cannot be told."""
    pythons = {"": sys.executable, "vllm": options.vllm_python, "llama": options.llama_python}
    python = pythons[engine.interpreter]
    if not python:
        raise ChildError(f"--{engine.interpreter}-python is to name its environment")
    model = gguf_of(options.model) if engine.family == LLAMA_CPP else prepared_dir(options.model)
    environment = vllm_environment(options) if engine.interpreter == "vllm" else ENVIRONMENT
    return [str(python), "-m", engine.module, str(model), *engine.arguments], environment


def vllm_environment(options: argparse.Namespace) -> dict[str, str]:
    own = {"VLLM_CPU_OMP_THREADS_BIND": str(options.core), **dict(options.vllm_env)}
    return ENVIRONMENT | VLLM_ENVIRONMENT | own


def gguf_of(model: str) -> Path:
    """The file that the model was made from. Raise `ChildError` if there is none."""
    if model.endswith(".gguf") and Path(model).exists():
        return Path(model)
    for file in Cache.of_user().entry(str(parse_reference(model))).source.glob("*.gguf"):
        return file
    raise ChildError("the model is to be a GGUF file")


def take_turns(engines: Sequence[Child], num_rounds: int, cases: Sequence[Case]) -> Rounds:
    """The engines of a round get the same prompts; the first round only warms up."""
    found: dict[str, dict[Case, list[Measured]]] = {one.name: {case: [] for case in cases} for one in engines}
    for turn in range(num_rounds + 1):
        for index, case in enumerate(cases):
            work = Round(case.num_requests, case.prompt_tokens, NEW_TOKENS, turn * len(cases) + index)
            for engine in engines:
                measured = engine.measure(work)
                print(f"{engine.name}, {case}: {measured}", file=sys.stderr)
                if turn:
                    found[engine.name][case].append(measured)
    return found


# --- what comes of it -------------------------------------------------------------------------------------------------


def values_of(rounds: Rounds, kind: str, case: Case) -> Values:
    """Only of engines that had it in each round: some never decode all requests at once."""
    found = {name: [getattr(one, KINDS[kind]) for one in by_case[case]] for name, by_case in rounds.items()}
    return {name: values for name, values in found.items() if values and None not in values}


def best(kind: str, values: Values, family: str, *, exact: bool) -> str | None:
    """The family's fastest engine, of those in float32 if it is to be ``exact``."""
    names = [name for name in values if ENGINES[name].family == family and ENGINES[name].is_exact >= exact]
    sign = 1 if kind == RATE else -1
    return max(names, key=lambda name: sign * statistics.median(values[name]), default=None)


def advantage(kind: str, values: Values, name: str, over: str) -> float:
    """How many times faster an engine is than another: the median over the rounds."""
    ratio = statistics.median(mine / other for mine, other in zip(values[name], values[over], strict=True))
    return ratio if kind == RATE else 1 / ratio


def advantages(kind: str, values: Values) -> dict[str, float]:
    """Ours over the others, in float32 and each with the dtype that suits it best."""
    found = {}
    for exact, how in ((True, "float32"), (False, "best dtype")):
        for rival in (VLLM, LLAMA_CPP):
            mine, other = (best(kind, values, name, exact=exact) for name in (OURS, rival))
            if mine is not None and other is not None:
                found[f"{OURS} / {rival}, {how}"] = advantage(kind, values, mine, other)
    return found


def table(kind: str, cases: Sequence[Case], rounds: Rounds) -> Table:
    """Engines by case, and what ours are ahead by."""
    made = make_table(kind, ("",), [f"{case} tokens" for case in cases])
    by_case = [values_of(rounds, kind, case) for case in cases]
    for name in rounds:
        cells = (f"{statistics.median(values[name]):.1f}" if name in values else "-" for values in by_case)
        made.add_row(name, *cells)
    made.add_section()
    ahead = [advantages(kind, values) for values in by_case]
    for what in dict.fromkeys(what for one in ahead for what in one):
        made.add_row(what, *(f"{one[what]:.2f}x" if what in one else "-" for one in ahead))
    return made


def main() -> None:
    options = _parse()
    os.sched_setaffinity(0, {options.core})  # the children inherit it
    cases = [case for case in CASES if case.num_requests * case.prompt_tokens <= options.most_tokens]
    try:
        with children(options.only, lambda name: command_of(ENGINES[name], options)) as engines:
            rounds = take_turns(engines, options.rounds, cases)
    except ChildError as error:
        raise SystemExit(str(error)) from None
    for kind in KINDS:
        make_console().print(table(kind, cases, rounds))
    named = {name: {str(case): each for case, each in by_case.items()} for name, by_case in rounds.items()}
    write_json(options.json, named)


def _parse() -> argparse.Namespace:
    parser = script_parser("bench.peers.engines", __doc__, model=True, vllm=True, rounds=3, json=True)
    parser.add_argument("--llama-python", help="interpreter of an environment with llama-cpp-python")
    parser.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)), help="the core all run on")
    add_names(parser, "--only", ENGINES)
    parser.add_argument(
        "--most-tokens", type=int, default=16 * 512, metavar="N", help="leave out cases with more tokens in all prompts"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
