"""What sharing an engine costs each of two services: iterations in turns, beside iterations of each by itself.

    python -m bench.engine.sharing_cost [--models A B] [--requests 4] [--steps 64] [--rounds 9] [--threads 1]

One engine holds both models. In a round, requests of A decode, then requests of B, then as many of both, when the
engine computes an iteration of the one and of the other in turns. An iteration counts from the end of the one before
it, so scheduling is in it. Ratios compare medians of one round; what is printed are their medians over the rounds.

A model that is smaller than the processor's caches finds its weights there as long as nothing else runs. What that is
worth is measured, too: "swept" is alone, but as much memory as the other model's weights is read before each iteration.
What is left between swept and shared is the engine's own cost of having two services.
"""

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from pathlib import Path

import torch

from bench.engine.speed import layer_parameters
from bench.harness.arguments import add_json, script_parser
from bench.harness.files import write_json
from bench.harness.tables import make_console, make_table
from bench.models.references import DEFAULT_MODEL
from bench.peers.core_engine import CoreEngine
from engines.models.files.model_config import ModelConfig
from engines.models.store import prepared_dir

BYTE_LLAMA = str(Path(__file__).parents[2] / "deploy/models/byte-llama")
PROMPT = 64  # tokens


@dataclass(frozen=True, slots=True)
class Round:
    """Median milliseconds of a service's decode iterations in one round."""

    alone: float
    swept: float
    shared: float

    def plus(self, other: "Round") -> "Round":
        return Round(self.alone + other.alone, self.swept + other.swept, self.shared + other.shared)


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of one service, or of an iteration of each of both. Medians over rounds."""

    what: str
    usual: Round
    over_alone: float
    over_swept: float

    @classmethod
    def of(cls, what: str, rounds: Sequence[Round]) -> "Cost":
        return cls(
            what,
            Round(*(statistics.median(values) for values in zip(*map(astuple, rounds), strict=True))),
            statistics.median(one.shared / one.alone for one in rounds),
            statistics.median(one.shared / one.swept for one in rounds),
        )


def decode(
    engine: CoreEngine,
    services: Sequence[str],
    num_requests: int,
    num_steps: int,
    between: Callable[[], object] | None = None,
) -> dict[str, list[float]]:
    """Decode requests of these services to their end. Seconds of iterations, once all services decode in turns.

    Prompts are the same each time: after the first round their KV is there, and decodes begin together. ``between`` is
    called before each iteration and not counted.
    """
    for service in services:
        for number in range(num_requests):
            engine.submit(service, [40 + (7 * number + 3 * place) % 80 for place in range(PROMPT)], num_steps)
    found: dict[str, list[float]] = defaultdict(list)
    recent: list[str | None] = [None] * len(services)  # whose decodes the last iterations were; None: prompts
    ended_at = time.perf_counter()
    while not engine.is_idle:
        if between is not None:
            between()
            ended_at = time.perf_counter()
        batch, _ = engine.step()
        before, ended_at = ended_at, time.perf_counter()
        is_decode = all(len(chunk.tokens) == 1 for chunk in batch.chunks)
        recent = [*recent[1:], batch.service if is_decode else None]
        if set(recent) == set(services):
            found[batch.service].append(ended_at - before)
    return found


def measure(
    engine: CoreEngine, models: Mapping[str, str], num_requests: int, num_steps: int, num_rounds: int
) -> list[Cost]:
    sweepers = {name: _reader(model) for name, model in models.items()}
    rounds: dict[str, list[Round]] = {name: [] for name in models}
    for number in range(num_rounds + 1):
        shared = decode(engine, list(models), num_requests, num_steps)
        for name in models:
            [other] = set(models) - {name}
            alone = decode(engine, [name], num_requests, num_steps)[name]
            swept = decode(engine, [name], num_requests, num_steps, sweepers[other])[name]
            if number:  # the first one warms up
                medians = map(statistics.median, (alone, swept, shared[name]))
                rounds[name].append(Round(*(1e3 * median for median in medians)))
    both = [one.plus(other) for one, other in zip(*rounds.values(), strict=True)]
    return [Cost.of("both", both), *(Cost.of(name, rounds[name]) for name in models)]


def _reader(model: str) -> Callable[[], object]:
    """Reads as much as the model's float32 weights."""
    config = ModelConfig.load(prepared_dir(model))
    return torch.ones(layer_parameters(config) + config.vocab_size * config.hidden_size).sum


def main() -> None:
    parser = script_parser("bench.engine.sharing_cost", __doc__)
    parser.add_argument("--models", nargs=2, default=[DEFAULT_MODEL, BYTE_LLAMA], metavar=("A", "B"))
    parser.add_argument("--requests", type=int, default=4, help="of each service, decoding together")
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1)
    add_json(parser)
    arguments = parser.parse_args()
    models = {f"{letter} {Path(model).stem[:15]}": model for letter, model in zip("AB", arguments.models, strict=True)}
    engine = CoreEngine(models, "float32", threads=arguments.threads)
    costs = measure(engine, models, arguments.requests, arguments.steps, arguments.rounds)
    table = make_table("ms of an iteration", ("",), ("alone", "swept", "shared", "shared / alone", "shared / swept"))
    for cost in costs:
        ratios = (f"{ratio:.3f}" for ratio in (cost.over_alone, cost.over_swept))
        table.add_row(cost.what, *(f"{ms:.2f}" for ms in astuple(cost.usual)), *ratios)
    make_console().print(table)
    if arguments.json:
        write_json(arguments.json, [asdict(cost) for cost in costs])


if __name__ == "__main__":
    main()
