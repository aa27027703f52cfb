"""``mesh advise --profile``: how many servers like the one that was profiled a recording takes, under which policy."""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from random import Random
from statistics import median
from typing import Any, Final

from engines.costs.advice import LatencyPromise, Lengths, advise
from engines.costs.linear import decode_step_s, prefill_s
from engines.costs.named_profiles import load_profile
from engines.costs.profiles import EngineProfile
from mesh.errors import CommandError, UserError
from mesh.show.output import Showing
from mesh.show.pages import Page
from mesh.show.picture import Look, Picture, Series, Spot
from mesh.show.progress import working
from mesh.topology.schema import PolicySpec, Slo
from router.history.records import PROMPT_BLOCK
from simulation.command.deployments import POOL, DeploymentSource, PromisedS, promised_now, stand_in
from simulation.command.policy_names import label, parse_policies
from simulation.command.profiles import profiles_of
from simulation.experiment import Experiment
from simulation.loads.services import assign_services
from simulation.loads.sources import TraceLoad
from simulation.loads.trace_request import TraceRequest
from simulation.loads.traces import load_trace, mean_rate
from simulation.reports.advice import attainment_panel
from simulation.reports.summary import Summary

MOST_SERVERS: Final = 8
POLICIES: Final = "least_loaded,tropical,elastic"


@dataclass(frozen=True, slots=True)
class ServersTried:
    """One number of servers under one policy, and what became of the recording there."""

    num_servers: int
    policy: str
    summary: Summary

    def words(self) -> str:
        servers = "1 such server" if self.num_servers == 1 else f"{self.num_servers} such servers"
        return f"with {servers} and {self.policy} it keeps {self.summary.attainment:.0%} of its promises"


class IdleServer:
    """What a server keeps of promises at best: by its costs, each request alone there, and all prefixes known that were
    asked for before. Many servers keep no more. ``slos``: by service.
    """

    def __init__(self, profile: EngineProfile, slos: Mapping[str, Slo], requests: Sequence[TraceRequest]) -> None:
        self._broken: dict[str, list[tuple[float, float]]] = {"TTFT": [], "TPOT": []}  # seconds taken, and promised
        num_turns = num_kept = 0
        for turn, num_new in _fewest_computed(requests):
            slo = slos[turn.service or "model"]
            step_s = decode_step_s(profile.decode, 1, turn.num_input) if turn.num_output > 1 else 0.0
            taken = {
                "TTFT": (prefill_s(profile.prefill, num_new), turn.slo_ttft_s or slo.ttft_s),
                "TPOT": (step_s, turn.slo_tpot_s or slo.tpot_s),
            }
            broken = {name: pair for name, pair in taken.items() if pair[0] > pair[1]}
            for name, pair in broken.items():
                self._broken[name].append(pair)
            num_turns, num_kept = num_turns + 1, num_kept + (not broken)
        self.share = num_kept / num_turns

    def words(self) -> str:
        """Say which promise is the trouble, with the times of the requests for which it is."""
        name, pairs = max(self._broken.items(), key=lambda item: len(item[1]))
        taken_ms, promised_ms = (1e3 * median(column) for column in zip(*pairs, strict=True))
        return (
            f"{name}: even an idle one takes {taken_ms:.4g} ms where {promised_ms:.4g} ms are promised "
            f"(median of {len(pairs)} requests), and so {self.share:.0%} is the most"
        )


def _fewest_computed(requests: Sequence[TraceRequest]) -> Iterator[tuple[TraceRequest, int]]:
    """Each turn of each conversation, and how many tokens of its prompt a server computes at least."""
    known = set[int]()
    for request in requests:
        num_before = 0
        for turn in (request, *request.then):
            num_known = PROMPT_BLOCK * len(list(takewhile(known.__contains__, turn.blocks)))
            yield turn, max(1, turn.num_input - max(num_known, num_before))
            known.update(turn.blocks)
            num_before = turn.num_input + turn.num_output


def run_servers(options: argparse.Namespace) -> int:
    """Simulate with one server, two and so on, until each policy keeps the goal or there are no more to try."""
    if options.trace is None:
        raise UserError("--trace: what are the servers to serve? Give a recording, or any other trace")
    showing = Showing.of(options, is_for_programs=options.json)
    named, promised = {"": options.profile}, PromisedS(options.ttft, options.tpot)
    requests = promised_now(load_trace(options.trace, Random("spread")), promised)
    source = stand_in(options.trace, named, requests, promised)
    goal = options.attainment or max(service.slo.attainment for service in source.topology().services)
    slos = {service.name: service.slo for service in source.topology().services}
    alone = IdleServer(load_profile(options.profile), slos, requests)
    if alone.share < goal:
        raise CommandError(f"no number of such servers keeps {goal:.0%}: {alone.words()}")
    tried = _try_all(
        source, requests, named, parse_policies(options.compare or POLICIES), goal, options.most or MOST_SERVERS
    )
    best = min((one for one in tried if one.summary.attainment >= goal), key=_cost, default=None)
    if options.json:
        sys.stdout.write(f"{json.dumps(_json(tried, best, goal), indent=2)}\n")
    else:
        _print(options, requests, source, tried, best, goal)
    showing.put(lambda: _page(options, tried, best, goal))
    if best is None:
        raise CommandError(
            f"{tried[-1].num_servers} servers do not keep {goal:.0%}; try --most with more, or other promises"
        )
    return 0


def _cost(one: ServersTried) -> tuple[int, float]:
    """Fewest servers first, then what keeps most."""
    return one.num_servers, -one.summary.attainment


def _try_all(
    source: DeploymentSource,
    requests: Sequence[TraceRequest],
    named: dict[str, str],
    policies: Sequence[PolicySpec],
    goal: float,
    most: int,
) -> list[ServersTried]:
    tried: list[ServersTried] = []
    with working("simulating", most * len(policies)) as shown:
        for num_servers in range(1, most + 1):
            topology = source.topology({POOL: num_servers})
            load = TraceLoad(assign_services(requests, topology, None))
            base = Experiment(topology, profiles_of(topology, named), topology.services[0].name, load, topology.policy)
            for policy in policies:
                summary = replace(base, policy=policy).run()
                tried.append(ServersTried(num_servers, label(policy), summary))
                shown.at(len(tried), tried[-1].words())
            if all(one.summary.attainment >= goal for one in tried[-len(policies) :]):
                break
    return tried


def _print(
    options: argparse.Namespace,
    requests: Sequence[TraceRequest],
    source: DeploymentSource,
    tried: Sequence[ServersTried],
    best: ServersTried | None,
    goal: float,
) -> None:
    from rich.console import Console
    from rich.table import Column, Table

    console, slo = Console(highlight=False), source.topology().services[0].slo
    lengths = Lengths.of((one.num_input, one.num_output) for one in requests)
    alone = advise(load_profile(options.profile), lengths, LatencyPromise(slo.ttft_s, slo.tpot_s))
    console.print(
        f"{len(requests)} requests, {mean_rate(requests):.2f}/s, prompts of {lengths.num_input:.0f} tokens and answers "
        f"of {lengths.num_output:.0f} on average; promised: {1e3 * slo.ttft_s:.0f} ms TTFT, {1e3 * slo.tpot_s:.0f} TPOT"
    )
    if alone.broken is None:
        console.print(
            f"by its costs alone, one such server bears about {alone.rate:.2f}/s ({alone.limited_by} is its limit)"
        )
    heads = ["servers", "policy", "kept", "TTFT p50", "p90", "TPOT p50", "p90", "lost"]
    table = Table(
        *(Column(head, justify="right" if index != 1 else "left") for index, head in enumerate(heads)), box=None
    )
    for one in tried:
        summary = one.summary
        late = [_percentiles(distribution) for distribution in (summary.ttft, summary.tpot)]
        lost = summary.num_rejected + summary.num_failed
        table.add_row(f"{one.num_servers}", one.policy, f"{summary.attainment:.1%}", *late[0], *late[1], f"{lost}")
    console.print(table)
    for num_servers in sorted({one.num_servers for one in tried}):
        most = max((one for one in tried if one.num_servers == num_servers), key=lambda one: one.summary.attainment)
        console.print(most.words())
    if best is not None:
        console.print(f"fewest that keep {goal:.0%}: {best.num_servers}, with {best.policy}")


def _percentiles(distribution: Any) -> list[str]:
    if distribution is None:
        return ["-", "-"]
    return [f"{1e3 * distribution.percentile(percent):.0f} ms" for percent in (50, 90)]


def _json(tried: Sequence[ServersTried], best: ServersTried | None, goal: float) -> dict[str, Any]:
    rows = [
        {
            "servers": one.num_servers,
            "policy": one.policy,
            "attainment": one.summary.attainment,
            "rate": one.summary.rate,
        }
        for one in tried
    ]
    chosen = None if best is None else {"servers": best.num_servers, "policy": best.policy}
    return {"goal": goal, "fewest": chosen, "tried": rows}


def _page(options: argparse.Namespace, tried: Sequence[ServersTried], best: ServersTried | None, goal: float) -> Page:
    """Attainment against servers, a line for each policy."""
    names = list(dict.fromkeys(one.policy for one in tried))
    lines = []
    for name in names:
        own = [one for one in tried if one.policy == name]
        shares = [100 * one.summary.attainment for one in own]
        lines.append(Series(name, [one.num_servers for one in own], shares, look=Look.MARKED))
    title = f"{options.trace.name} on servers like {options.profile}"
    spots = [] if best is None else [Spot(best.num_servers, 100 * best.summary.attainment, f"{best.num_servers} do")]
    panel = attainment_panel("Requests that keep both promises", "servers", lines, goal, spots)
    return Page(title, f"goal: {goal:.0%}", (Picture(title, (panel,)),), notes=[one.words() for one in tried])
