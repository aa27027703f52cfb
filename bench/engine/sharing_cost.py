"""What sharing an engine costs each of two services: iterations in turns, beside iterations of each by itself.

    python -m bench.engine.sharing_cost [--models A B] [--requests 4] [--steps 64] [--rounds 9] [--threads 1]
        [--cpu-time]

One engine holds both models. In a round, requests of A decode, then requests of B, then as many of both, when the
engine computes an iteration of the one and of the other in turns. An iteration counts from the end of the one before
it, so scheduling is in it. Ratios compare medians of one round; what is printed are their medians over the rounds.

A model that is smaller than the processor's caches finds its weights there as long as nothing else runs. What that is
worth is measured, too: "swept" is alone, but as much memory as the other model's weights is read before each iteration.
What is left between swept and shared is the engine's own cost of having two services. That is looked for, too: how much
of an iteration is not the model's computation but the engine's decisions, and how many pages of memory it had to ask
the system for (which an allocator that gives memory back would have to do again). With --cpu-time, iterations count by
the CPU time of the process, which what else the machine does disturbs less.
"""

import resource
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import NamedTuple

import torch

from bench.engine.speed import layer_parameters
from bench.harness.arguments import add_json, script_parser
from bench.harness.files import write_json
from bench.models.references import DEFAULT_MODEL
from engines.core import EngineCore
from engines.loading import load
from engines.models.files.model_config import ModelConfig
from engines.models.store import prepared_dir
from engines.process import settings_of
from kvtransfer.peer_memories import PeerMemories
from mesh.topology.schema import EngineSpec, ServiceSpec, Slo, Topology
from mesh.wire.control import Role
from mesh.wire.requests import Epoch, RequestSpec, Sampling, Submit

BYTE_LLAMA = str(Path(__file__).parents[2] / "deploy/models/byte-llama")
GATEWAY = "gateway"
PROMPT = 64  # tokens
SLO = Slo(ttft_s=60.0, tpot_s=10.0)


class Iteration(NamedTuple):
    """``decided_s``: of its seconds, those that the model was not computed in. ``num_faults``: of pages."""

    seconds: float
    decided_s: float
    num_faults: int


@dataclass(frozen=True, slots=True)
class Usual:
    """Of a service's decode iterations in one round: median milliseconds, and faults of pages on average."""

    ms: float
    decided_ms: float
    num_faults: float

    @classmethod
    def of(cls, iterations: Sequence[Iteration]) -> "Usual":
        seconds, decided_s, num_faults = zip(*iterations, strict=True)
        return cls(1e3 * statistics.median(seconds), 1e3 * statistics.median(decided_s), statistics.fmean(num_faults))

    def plus(self, other: "Usual") -> "Usual":
        return Usual(self.ms + other.ms, self.decided_ms + other.decided_ms, self.num_faults + other.num_faults)


@dataclass(frozen=True, slots=True)
class Round:
    """How a service's iterations were."""

    alone: Usual
    swept: Usual
    shared: Usual

    def plus(self, other: "Round") -> "Round":
        return Round(self.alone.plus(other.alone), self.swept.plus(other.swept), self.shared.plus(other.shared))


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one service, or of an iteration of each of both. Medians over rounds."""

    what: str
    alone: Usual
    swept: Usual
    shared: Usual
    over_alone: float
    over_swept: float

    @classmethod
    def of(cls, what: str, rounds: Sequence[Round]) -> "Cost":
        return cls(
            what,
            _median([one.alone for one in rounds]),
            _median([one.swept for one in rounds]),
            _median([one.shared for one in rounds]),
            statistics.median(one.shared.ms / one.alone.ms for one in rounds),
            statistics.median(one.shared.ms / one.swept.ms for one in rounds),
        )

    def __str__(self) -> str:
        kinds = (self.alone, self.swept, self.shared)
        times = "".join(f"{kind.ms:9.2f}" for kind in kinds)
        decided = "".join(f"{kind.decided_ms:9.2f}" for kind in kinds)
        faults = "".join(f"{kind.num_faults:9.1f}" for kind in kinds)
        return f"{self.what:18}{times}{self.over_alone:14.3f}{self.over_swept:14.3f}{decided}{faults}"


def _median(kinds: Sequence[Usual]) -> Usual:
    return Usual(*(statistics.median(values) for values in zip(*map(astuple, kinds), strict=True)))


class SharedEngine:
    """An engine's core and the torch executor, joined as the engine process joins them."""

    def __init__(self, models: Mapping[str, str], threads: int, clock: Callable[[], float] = time.perf_counter) -> None:
        services = tuple(ServiceSpec(name, model, SLO) for name, model in models.items())
        engine = EngineSpec("engine", Role.MULTIPLEX, tuple(models), threads=threads)
        topology = Topology("bench", Path(), services, (engine,), ())
        peers = PeerMemories()
        loaded = load(topology, engine, peers)
        self._executor = loaded.executor
        self._core = EngineCore(settings_of(topology, engine), loaded.services, peers.can_open)
        self._clock = clock
        self._num_requests = 0

    def decode(
        self, services: Sequence[str], num_requests: int, num_steps: int, between: Callable[[], object] | None = None
    ) -> dict[str, list[Iteration]]:
        """Decode requests of these services to their end. Its iterations, once all services decode in turns.

        ``between`` is called before each iteration and not counted.
        """
        for service in services:
            for number in range(num_requests):
                self._submit(service, number, num_steps)
        found: dict[str, list[Iteration]] = defaultdict(list)
        recent: list[str | None] = [None] * len(services)  # whose decodes the last iterations were; None: prompts
        ended_at, num_faults = self._clock(), _num_faults()
        while not self._core.is_idle:
            if between is not None:
                between()
                ended_at, num_faults = self._clock(), _num_faults()
            batch, _ = self._core.next_batch(time.monotonic())
            if batch is None:
                raise RuntimeError(f"nothing to compute though requests are here: {self._core!r}")
            began_at = self._clock()
            result = self._executor.execute(batch)
            computed_s = self._clock() - began_at
            self._core.finish_step(result, time.monotonic())
            before, ended_at = ended_at, self._clock()
            faults_before, num_faults = num_faults, _num_faults()
            is_decode = all(len(chunk.tokens) == 1 for chunk in batch.chunks)
            recent = [*recent[1:], batch.service if is_decode else None]
            if set(recent) == set(services):
                seconds = ended_at - before
                found[batch.service].append(Iteration(seconds, seconds - computed_s, num_faults - faults_before))
        return found

    def _submit(self, service: str, number: int, num_steps: int) -> None:
        """Prompts are the same each time: after the first round their KV is there, and decodes begin together."""
        self._num_requests += 1
        prompt = [40 + (7 * number + 3 * position) % 80 for position in range(PROMPT)]
        sampling = Sampling(max_tokens=num_steps, seed=0, temperature=0.0, ignore_eos=True)
        spec = RequestSpec(str(self._num_requests), GATEWAY, service, prompt, sampling, SLO.ttft_s, SLO.tpot_s)
        self._core.receive(GATEWAY, Submit(spec, Epoch(0)), [], time.monotonic())


def measure(
    engine: SharedEngine, models: Mapping[str, str], num_requests: int, num_steps: int, num_rounds: int
) -> list[Cost]:
    sweepers = {name: _reader(model) for name, model in models.items()}
    rounds: dict[str, list[Round]] = {name: [] for name in models}
    for number in range(num_rounds + 1):
        shared = engine.decode(list(models), num_requests, num_steps)
        for name in models:
            [other] = set(models) - {name}
            alone = engine.decode([name], num_requests, num_steps)[name]
            swept = engine.decode([name], num_requests, num_steps, sweepers[other])[name]
            if number:  # the first one warms up
                rounds[name].append(Round(*map(Usual.of, (alone, swept, shared[name]))))
    both = [one.plus(other) for one, other in zip(*rounds.values(), strict=True)]
    return [Cost.of("both", both), *(Cost.of(name, rounds[name]) for name in models)]


def _reader(model: str) -> Callable[[], object]:
    """Reads as much as the model's float32 weights."""
    config = ModelConfig.load(prepared_dir(model))
    return torch.ones(layer_parameters(config) + config.vocab_size * config.hidden_size).sum


def _num_faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def main() -> None:
    parser = script_parser("bench.engine.sharing_cost", __doc__)
    parser.add_argument("--models", nargs=2, default=[DEFAULT_MODEL, BYTE_LLAMA], metavar=("A", "B"))
    parser.add_argument("--requests", type=int, default=4, help="of each service, decoding together")
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--cpu-time", action="store_true", help="count the CPU time of the process")
    add_json(parser)
    arguments = parser.parse_args()
    models = {f"{letter} {Path(model).stem[:15]}": model for letter, model in zip("AB", arguments.models, strict=True)}
    clock = time.process_time if arguments.cpu_time else time.perf_counter
    engine = SharedEngine(models, arguments.threads, clock)
    costs = measure(engine, models, arguments.requests, arguments.steps, arguments.rounds)
    kinds = "".join(f"{kind:>9}" for kind in ("alone", "swept", "shared"))
    print(f"{'':18}{'ms':>27}{'':28}{'of which deciding, ms':>27}{'page faults':>27}")
    print(f"{'an iteration':18}{kinds}{'shared/alone':>14}{'shared/swept':>14}{kinds}{kinds}")
    for cost in costs:
        print(cost)
    if arguments.json:
        write_json(arguments.json, [asdict(cost) for cost in costs])


if __name__ == "__main__":
    main()
