"""Turns the arguments of ``mesh simulate`` into its runs. What does not fit together is a `UserError`."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

from engines.admission.promises import never_kept
from mesh.errors import UserError
from mesh.suggestions import suggestion
from mesh.topology.schema import PolicySpec, Topology
from simulation.capacity_search import FIRST_REQUESTS, CapacitySearch
from simulation.command.deployments import DeploymentSource, PromisedS, is_topology, stand_in
from simulation.command.engine_counts import counts_label
from simulation.command.loads import check_load, levels_of, load_of
from simulation.command.outputs import Outputs
from simulation.command.policy_names import check_policy, label
from simulation.command.profiles import parse_named, profiles_of
from simulation.engines.physics import Physics
from simulation.engines.servers import context_of
from simulation.engines.shared_profiles import Profile, profile_of
from simulation.experiment import Experiment, grid
from simulation.faults.faults import Fault
from simulation.faults.grammar import TABLES, read_faults, resolve
from simulation.loads.mix import Mix
from simulation.loads.sources import LoadLevel
from simulation.loads.trace_request import TraceRequest
from simulation.loads.traces import load_lengths, load_trace
from simulation.loads.workload import SloRule
from simulation.placement.daemon import ModelledSearch
from simulation.placement.evaluator import LocalSimulators
from simulation.split.split_run import SplitRun

LEAD_S = 60.0  # of stretches


def experiments(options: argparse.Namespace) -> list[Experiment]:
    """One at least. All is checked before anything runs."""
    _fill_source(options)
    _check_options(options)
    named = _named(options)
    deployment = _described(options, named)
    topology = deployment.topology()
    profiles = profiles_of(topology, named)
    mix = _mix(options, topology)
    source = load_of(options, topology, mix)
    services = list(mix.services) if mix else sorted({request.service for request in source.pool if request.service})
    slo = SloRule(options.ttft_factor, keeps_traced=options.slo == "trace")
    for service in services:
        _check_slo(topology, service, profiles, options.ttft_factor)
    _remark(source.pool, slo)
    _remark_contexts(source.pool, topology, profiles, services[0])
    base = Experiment(
        topology,
        profiles,
        services[0],
        source,
        topology.policy,
        seed=options.seed,
        physics=_physics(options),
        slo=slo,
        outputs=_outputs(options.out),
        mix=mix,
        is_judged=True,
        faults=_faults(options, topology),
        search=ModelledSearch(LocalSimulators()) if topology.placement is not None else None,
    )
    policies, levels = _policies(options, topology), levels_of(options)
    deployments = [_with_counts(options, base, deployment, counts) for counts in options.engines or [{}]]
    has_timeline = _Timelines(options.timeline, policies, levels) if options.split is None else _no_timeline
    return grid(deployments, policies, levels, has_timeline)


def searches(options: argparse.Namespace, runs: Sequence[Experiment]) -> list[CapacitySearch]:
    """Search between the first and the last rate, for each policy in each deployment."""
    bases = {run.name: run for run in runs}
    lowest, highest = options.rates[0], options.rates[-1]
    num_requests = options.limit or FIRST_REQUESTS
    return [
        CapacitySearch(replace(base, outputs=None), options.attainment, lowest, highest, num_requests)
        for base in bases.values()
    ]


def split_runs(options: argparse.Namespace, runs: Sequence[Experiment]) -> list[SplitRun]:
    """Cut each run into stretches of its time."""
    lead_s = LEAD_S if options.lead is None else options.lead
    return [SplitRun.of(run, options.split, lead_s) for run in runs]


def _physics(options: argparse.Namespace) -> Physics:
    weight_bytes_per_s = None if options.weights_gb_s is None else options.weights_gb_s * 1e9
    return Physics(
        options.latency_ms / 1e3,
        options.kv_gb_s * 1e9,
        weight_bytes_per_s=weight_bytes_per_s,
        late_masks=options.late_masks or 0.0,
        forced_tokens=options.forced_tokens or 0.0,
        noise=options.noise or 0.0,
        **({} if options.draft_acceptance is None else {"draft_acceptance": options.draft_acceptance}),
    )


def _fill_source(options: argparse.Namespace) -> None:
    """A recording in the place of a topology is what to play, and what is played names the run if there is none."""
    played = options.trace or options.lengths
    is_deployment = options.topology is not None and is_topology(options.topology)
    if not is_deployment and options.load is not None:
        raise UserError("--load: is for a topology; give its .toml")
    if options.topology is None and played is None:
        raise UserError("what is to serve? Give a TOPOLOGY (.toml), or a recording with --profile NAME")
    if is_deployment and played is None and options.load is None:
        raise UserError("what arrives? Give --trace FILE with requests that came, or --lengths FILE and a --rate")
    if is_deployment and (options.ttft or options.tpot):
        raise UserError("--ttft and --tpot: a topology says what its services promise; leave them out")
    if not is_deployment and options.topology is not None:
        if played is not None:
            raise UserError(f"{options.topology}: is no topology (.toml), and what is played is {played}; name one")
        options.trace = options.topology
    options.topology = options.topology or played


def _check_options(options: argparse.Namespace) -> None:
    check_load(options)
    if options.mix is not None and options.service is not None:
        raise UserError("--mix and --service: give one of them")
    for name, value in (("--late-masks", options.late_masks), ("--forced-tokens", options.forced_tokens)):
        if value is not None and options.structured is None:
            raise UserError(f"{name}: is of requests that follow a grammar; say with --structured how many do")
    if options.split is None and options.lead is not None:
        raise UserError("--lead: is of stretches; say with --split into how many")
    if options.split is not None and options.attainment is not None:
        raise UserError("--split: a search makes runs as long as they need to be; leave it out, or --attainment")
    if options.split is not None and options.timeline is not None:
        raise UserError("--split: stretches leave no timeline; leave it out, or --timeline")
    if options.timeline is not None and options.out is None:
        raise UserError("--timeline: is written with --out; say where")


# --- services ---------------------------------------------------------------------------------------------------------


def _mix(options: argparse.Namespace, topology: Topology) -> Mix | None:
    mix: Mix | None = options.mix
    if mix is None and options.service is not None and len(options.service) > 1:
        mix = Mix.even(list(dict.fromkeys(options.service)))
    known = [service.name for service in topology.offered]
    for name in mix.services if mix else ():
        if name not in known:
            option = "--mix" if options.mix else "--service"
            raise UserError(f"{option}: {topology.path} has no service {name!r}; it has {', '.join(known)}")
    return mix


def _remark(pool: Sequence[TraceRequest], slo: SloRule) -> None:
    """What somebody who plays a recording should know."""
    if slo.counts_traced(pool):
        sys.stderr.write("SLOs are those of the recorded requests; --slo topology uses the topology's\n")
    if num_unanswered := sum(not request.was_answered for request in pool):
        sys.stderr.write(
            f"{num_unanswered} of {len(pool)} requests were not answered when they were recorded; they arrive too, "
            "for as many tokens as they asked for, or had got when their client cancelled them\n"
        )


# --- the deployment ---------------------------------------------------------------------------------------------------


def _named(options: argparse.Namespace) -> dict[str, str]:
    try:
        return parse_named(options.profile)
    except ValueError as error:
        raise UserError(str(error)) from None


def _described(options: argparse.Namespace, named: Mapping[str, str]) -> DeploymentSource:
    """The topology's file, or servers for a recording that is named instead of one."""
    if is_topology(options.topology):
        return DeploymentSource(options.topology)
    requests = load_trace(options.trace, Random(0)) if options.trace else load_lengths(options.lengths)
    return stand_in(options.topology, named, requests, PromisedS(options.ttft, options.tpot))


def _with_counts(
    options: argparse.Namespace, base: Experiment, deployment: DeploymentSource, counts: Mapping[str, int]
) -> Experiment:
    """The same with so many engines in these pools."""
    if not counts:
        return base
    counts = deployment.named(counts)
    topology = deployment.topology(counts)
    return replace(
        base,
        topology=topology,
        profiles=profiles_of(topology, _named(options)),
        faults=_faults(options, topology),
        engines=counts_label(counts),
    )


def _remark_contexts(
    pool: Sequence[TraceRequest], topology: Topology, profiles: Mapping[str, Profile], service: str
) -> None:
    """Say how many requests the engines refuse or cut, as they have longer ones than they take. ``service``: of those
    that name none.
    """
    asked = [(request.service or service, one) for request in pool for one in (request, *request.then)]
    for name in sorted({name for name, _ in asked}):
        spec = topology.service(name)
        engines = [one.id for one in topology.engines if name in one.services]
        contexts = [context_of(spec, profile_of(profiles[engine], name)) for engine in engines]
        bounds = [context for context in contexts if context is not None]
        if not bounds or len(bounds) < len(contexts):
            continue
        own = [one for whose, one in asked if whose == name]
        num_refused = sum(one.num_input >= max(bounds) for one in own)
        num_cut = sum(one.num_input + one.num_output > max(bounds) for one in own) - num_refused
        if num_refused or num_cut:
            sys.stderr.write(
                f"{name}: its context is {max(bounds)} tokens: {num_refused} of {len(own)} prompts are refused, and "
                f"{num_cut} answers end there\n"
            )


def _check_slo(topology: Topology, service: str, profiles: Mapping[str, Profile], ttft_factor: float | None) -> None:
    """A promise that an idle engine could not keep is a mistake."""
    if ttft_factor is not None and ttft_factor <= 1:
        raise UserError(f"--ttft-factor: {ttft_factor:g} times an unloaded prefill can never be met; use more than 1")
    spec = topology.service(service)
    held = spec.base or service
    costs = [profile_of(profiles[engine.id], held) for engine in topology.engines if held in engine.services]
    for broken in never_kept(spec.slo, costs):
        if not (broken.key == "ttft_ms" and ttft_factor):
            raise UserError(f"{topology.path}: services.{service}.{broken}")


def _policies(options: argparse.Namespace, topology: Topology) -> list[PolicySpec]:
    """The topology's parameters are for the topology's own policy, where it is named without any."""
    wanted: list[PolicySpec] = options.compare or [topology.policy]
    policies = [topology.policy if policy == PolicySpec(topology.policy.name) else policy for policy in wanted]
    for policy in policies:
        check_policy(policy, "" if options.compare is None else "--compare")
    return policies


def _faults(options: argparse.Namespace, topology: Topology) -> list[Fault]:
    tables = [table for kind in TABLES for table in getattr(options, kind)]
    if options.faults is not None:
        tables += read_faults(options.faults)
    return resolve(tables, topology)


# --- the files --------------------------------------------------------------------------------------------------------


def _outputs(folder: Path | None) -> Outputs | None:
    if folder is None:
        return None
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out: {folder} cannot be made: {error.strerror}") from None
    return Outputs(folder)


def _no_timeline(policy: PolicySpec, level: LoadLevel) -> bool:
    return False


class _Timelines:
    """Which runs are to have a timeline: the only one, and the one that was asked for."""

    def __init__(self, wanted: str | None, policies: Sequence[PolicySpec], levels: Sequence[LoadLevel]) -> None:
        self._is_alone = len(policies) == len(levels) == 1
        self._policy, _, self._level = (wanted or "").partition("@")
        if wanted is None:
            return
        labels = [label(policy) for policy in policies]
        if self._policy not in labels:
            raise UserError(f"--timeline: {self._policy!r} is not run; {suggestion(self._policy, labels)}")
        if self._level and self._level not in (known := [level.name for level in levels if level.name]):
            raise UserError(f"--timeline: the rate {self._level!r} is not run; there are {', '.join(known) or 'none'}")

    def __call__(self, policy: PolicySpec, level: LoadLevel) -> bool:
        if self._is_alone:
            return True
        return label(policy) == self._policy and self._level in {"", level.name}
