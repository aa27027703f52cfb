"""How far packing is from the fewest engines that there could be: best fit beside an exact solution (Aladdin, 4.2).

    python -m bench.papers.aladdin.packing_optimum [--cases 20] [--requests 16] [--groups 2]

A case is so many requests that come one after the other to engines that are all empty, with ShareGPT's lengths as
Llumnix's table has them, and known answers. Best fit is the policy itself, with reservations and all. The optimum is
that of the mixed-integer program of the paper (a, b, c, e, f, g, h; there are no ongoing requests for d), solved by
HiGHS. What binds is the promise of the decodes, memory, or the promise of the first token. JSQ is given the fewest
engines with which no constraint breaks. With ``--groups``, requests go round robin to so many groups of engines, each
packed alone (appendix A): what that costs in engines, beside the paper's rule that half of the groups need one more.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from random import Random
from statistics import fmean

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp

from bench.harness.arguments import script_parser
from bench.harness.tables import make_console, make_table
from engines.scheduling.demand import held_tokens
from mesh.wire.control import ProcessState, Role
from mesh.wire.status import DecodeCost, EngineStatus, PrefillCost, ServiceStatus
from router.policies.packing import Packing, PackingParameters
from router.policies.parts.bins import Knobs, all_levels, broken
from router.policies.policy import Dispatch
from router.view.cluster_view import ClusterView
from router.view.engine_view import EngineView, RequestView, Reservation, engine_view
from simulation.loads.workload_lengths import PREFIX, described_lengths

SERVICE = "chat"
BLOCK = 16
PREFILL = PrefillCost(0.0, 1.0e-4)
DECODE = DecodeCost(0.018, 7.3e-5, 5.2e-7)  # a line near Llama-2 13B on one A100
SOLVER_S = 30.0
LONGEST = 4096


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of case, by what binds: the promises, or the tokens that an engine holds."""

    name: str
    ttft_s: float
    tpot_s: float
    kv_tokens: int


KINDS = (
    Kind("TPOT", 60.0, 0.0199, 200_000),
    Kind("memory", 60.0, 1.0, 4096),
    Kind("TTFT", 0.15, 1.0, 200_000),
    Kind("all", 0.25, 0.0199, 6144),
)


@dataclass(frozen=True, slots=True)
class Case:
    kind: Kind
    requests: Sequence[RequestView]


def make_case(kind: Kind, num_requests: int, random: Random) -> Case:
    """Draw requests whose promises an empty engine can keep."""
    pool = [one for one in described_lengths(f"{PREFIX}sharegpt") if one.num_input + one.num_output + BLOCK < LONGEST]
    requests: list[RequestView] = []
    while len(requests) < num_requests:
        one = random.choice(pool)
        request = RequestView(
            f"r{len(requests):03}", SERVICE, one.num_input, 0.0, kind.ttft_s, kind.tpot_s, answer_tokens=one.num_output
        )
        levels = dict(all_levels(request, make_engine(kind, 0, ()), knobs(), 0.0))
        if all(level.holds for level in levels.values()) and levels["c"].limit < inf:
            requests.append(request)
    return Case(kind, requests)


def knobs() -> Knobs:
    parameters = PackingParameters(prompts=False)
    return Knobs(parameters.gamma, parameters.theta)


def make_engine(kind: Kind, number: int, sent: Iterable[RequestView]) -> EngineView:
    """Make the view of an engine to which these requests were sent; none of them has begun."""
    id_, blocks = f"engine-{number:03}", kind.kv_tokens // BLOCK
    status = EngineStatus(
        seq=1,
        state=ProcessState.READY,
        role=Role.MULTIPLEX,
        host="local",
        pid=1,
        services=[ServiceStatus(SERVICE, blocks, blocks, BLOCK, PREFILL, DECODE)],
        num_running=0,
        num_waiting=0,
        num_tokens=0,
        prefill_remaining_s=0.0,
        prefill_waiting_s=0.0,
        decode_step_s=0.0,
        min_slack_s=None,
    )
    held = [_reservation(id_, one) for one in sent]
    return engine_view(id_, status, 0.0, held)


def _reservation(engine: str, one: RequestView) -> Reservation:
    return Reservation(
        one.id,
        engine,
        SERVICE,
        one.num_tokens + 1,
        PREFILL.per_token_s * one.num_tokens,
        one.deadline,
        0,
        one.answer_tokens,
        0,
        one.tpot_slo_s,
    )


# --- contenders -------------------------------------------------------------------------------------------------------


def best_fit(case: Case) -> int:
    """Count the engines that the policy uses of as many as there are requests."""
    policy = Packing(PackingParameters(prompts=False))
    engines = [make_engine(case.kind, n, ()) for n in range(len(case.requests))]
    sent: dict[str, list[RequestView]] = {engine.id: [] for engine in engines}
    for request in case.requests:
        decision = policy.decide(request, ClusterView({engine.id: engine for engine in engines}), 0.0)
        assert isinstance(decision, Dispatch), decision
        sent[decision.decode_engine].append(request)
        number = int(decision.decode_engine.rpartition("-")[2])
        engines[number] = make_engine(case.kind, number, sent[decision.decode_engine])
    return sum(1 for requests in sent.values() if requests)


def shortest_queue(case: Case) -> int:
    """Return the fewest engines with which JSQ breaks no constraint: it gives them one request each, in turns."""
    for count in range(1, len(case.requests) + 1):
        if all(_holds(case.kind, case.requests[number::count]) for number in range(count)):
            return count
    raise AssertionError("one engine for each request must do")


def _holds(kind: Kind, requests: Sequence[RequestView]) -> bool:
    others = make_engine(kind, 0, requests[:-1])
    return broken(all_levels(requests[-1], others, knobs(), 0.0)) is None


def grouped(case: Case, num_groups: int) -> int:
    """Count the engines of best fit in each of the groups that requests go to in turns."""
    return sum(best_fit(Case(case.kind, case.requests[number::num_groups])) for number in range(num_groups))


def optimum(case: Case, at_most: int) -> int | None:
    """Return the least number of engines; None: the solver was not done in time. ``at_most`` are known to do.

    The variables say whether engine ``i`` has request ``j``, engine by engine, and then whether it has any.
    """
    if at_most == 1:
        return 1
    num, engines = len(case.requests), np.eye(at_most)
    amounts, limits = _constraints(case)
    served = np.hstack([np.kron(np.ones(at_most), np.eye(num)), np.zeros((num, at_most))])
    held = np.hstack([np.kron(engines, amounts), -np.kron(engines, limits[:, np.newaxis])])
    filled = np.hstack([np.zeros((at_most - 1, at_most * num)), np.diff(engines, axis=0)])  # the first engines first
    in_order = np.triu(np.ones((at_most, num)))  # the first request is in the first engine, the second in the first two
    found = milp(
        np.concatenate([np.zeros(at_most * num), np.ones(at_most)]),
        integrality=np.ones(at_most * (num + 1)),
        bounds=Bounds(0, np.concatenate([in_order.ravel(), np.ones(at_most)])),
        constraints=[
            LinearConstraint(served, 1, 1),
            LinearConstraint(held, -inf, 0),
            LinearConstraint(filled, -inf, 0),
        ],
        options={"time_limit": SOLVER_S},
    )
    return round(found.fun) if found.status == 0 else None


def _constraints(case: Case) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return what each request takes of an engine (a column each), and what an engine has: by TPOT, TTFT, and memory.

    Memory counts whenever an answer ends.
    """
    requests, kind, limits = case.requests, case.kind, knobs()
    prompts, answers = (np.array([getattr(one, name) for one in requests]) for name in ("num_tokens", "answer_tokens"))
    held = np.array([held_tokens(one.num_tokens, BLOCK) for one in requests])
    ends = np.unique(answers)
    a_request = limits.theta * DECODE.per_request_s / DECODE.per_context_token_s  # in tokens of context
    room = limits.theta * (kind.tpot_s - DECODE.fixed_s) / DECODE.per_context_token_s
    at_ends = [np.where(answers >= end, held + end, 0.0) for end in ends]
    amounts = [prompts + limits.gamma * answers + a_request, PREFILL.per_token_s * prompts, *at_ends]
    memory = kind.kv_tokens // BLOCK * BLOCK
    return np.array(amounts), np.array([room, kind.ttft_s, *[memory] * len(ends)])


# --- the table --------------------------------------------------------------------------------------------------------


def main() -> None:
    parser = script_parser("bench.papers.aladdin.packing_optimum", __doc__)
    parser.add_argument("--cases", type=int, default=20, metavar="N", help="of each kind (default: 20)")
    parser.add_argument("--requests", type=int, default=16, metavar="N", help="of a case (default: 16)")
    parser.add_argument("--groups", type=int, nargs="+", default=[], metavar="N", help="also pack in so many groups")
    parser.add_argument("--no-optimum", action="store_true", help="for many requests: best fit stands for it")
    options = parser.parse_args()
    heads = ["binding", "optimum", "best fit", "optimal", "JSQ", *(f"{count} groups" for count in options.groups)]
    table = make_table(f"engines, mean of {options.cases} cases of {options.requests} requests", heads)
    for kind in KINDS:
        cases = [make_case(kind, options.requests, Random(f"{kind.name}/{n}")) for n in range(options.cases)]
        ours = [best_fit(case) for case in cases]
        exact = [None if options.no_optimum else optimum(case, count) for case, count in zip(cases, ours, strict=True)]
        queue = f"{fmean(map(shortest_queue, cases)):.2f}"
        table.add_row(kind.name, *optimum_cells(ours, exact), queue, *group_cells(cases, ours, options.groups))
    make_console(110).print(table)


def optimum_cells(ours: Sequence[int], exact: Sequence[int | None]) -> list[str]:
    """Show the optimum, best fit, and how often they are equal, over the cases that were solved."""
    solved = [(count, least) for count, least in zip(ours, exact, strict=True) if least is not None]
    if not solved:
        return ["-", f"{fmean(ours):.2f}", "-"]
    best, least = (fmean(column) for column in zip(*solved, strict=True))
    share = fmean(count == fewest for count, fewest in solved)
    return [f"{least:.2f} ({len(solved)} solved)", f"{best:.2f} ({best / least - 1:+.1%})", f"{share:.0%}"]


def group_cells(cases: Sequence[Case], ours: Sequence[int], groups: Sequence[int]) -> Iterator[str]:
    """Show what groups cost in engines, beside what the paper's rule expects."""
    alone = sum(ours)
    for count in groups:
        total = sum(grouped(case, count) for case in cases)
        yield f"{total / alone - 1:+.1%} (rule: {count / 2 * len(cases) / alone:+.1%})"


if __name__ == "__main__":
    main()
