"""Whole searches over real simulations, held against the simulation of everything."""

from dataclasses import replace
from pathlib import Path
from random import Random

from engines.costs.advice import LatencyPromise, Lengths
from engines.costs.presets import load_preset
from mesh.jobs.runner import JobPlace
from mesh.show.progress import working
from mesh.topology.schema import PolicySpec
from simulation.loads.trace_request import TraceRequest
from simulation.search.candidates import EngineOffer, SearchSpace
from simulation.search.documents import read_document, write_document
from simulation.search.halving import SearchEffort
from simulation.search.sample_runs import SampleRunner
from simulation.search.search import search_topologies

PROMISE = LatencyPromise(0.5, 0.04)
SERVICES = {"model": {"ttft_ms": 500.0, "tpot_ms": 40.0, "attainment": 0.9}}
PROFILE = "a100-llama2-13b-tp1"
OFFERS = [EngineOffer(load_preset(name), name, price) for name, price in ((PROFILE, 1.0), ("a100-llama2-13b-tp2", 2.1))]


def recording(count, rate, seed=0):
    random, at_s, requests = Random(seed), 0.0, []
    for _ in range(count):
        at_s += random.expovariate(rate)
        requests.append(TraceRequest(at_s, random.randint(100, 900), random.randint(5, 25)))
    return requests


def space(policies):
    return SearchSpace(OFFERS, [PolicySpec(name) for name in policies], (1024,), 3)


HERE = JobPlace(1)


def search(candidates, effort, requests, place=HERE):
    with working("searching", is_shown=False) as shown:
        return search_topologies(candidates, effort, SampleRunner(requests, SERVICES, 0.9), place, shown)


def test_the_search_finds_what_simulating_everything_finds():
    requests = recording(80, 12.0)
    lengths = Lengths.of((one.num_input, one.num_output) for one in requests)
    candidates = space(["elastic"]).candidates(lengths, PROMISE, 12.0)[::3]
    effort = SearchEffort(0.9, 0.9, len(requests), 10)
    halving = search(candidates, effort, requests)
    in_full = replace(effort, least_requests=len(requests))
    keeps = [one.price for one in candidates if search([one], in_full, requests).best is not None]
    assert halving.best is not None
    assert candidates[halving.best].price == min(keeps)
    assert min(keeps) < max(keeps)


def test_processes_find_the_same():
    requests = recording(30, 6.0)
    lengths = Lengths.of((one.num_input, one.num_output) for one in requests)
    candidates = space(["elastic"]).candidates(lengths, PROMISE, 6.0)[:2]
    found = []
    for place in (HERE, JobPlace(2)):
        halving = search(candidates, SearchEffort(0.9, 0.9, 30, 10), requests, place)
        found.append(([one.attainments for one in halving.tried], halving.keeping, halving.best))
    assert found[0] == found[1]


def test_a_document_is_the_candidate():
    lengths = Lengths(500, 20, 510)
    for candidate in space(["disaggregated", "elastic"]).candidates(lengths, PROMISE, 12.0):
        text = write_document(candidate, SERVICES, ["Found."])
        topology = read_document(text, Path("found.toml"))
        assert text.startswith("# Found.\n")
        assert topology.policy == candidate.policy
        assert sorted((engine.profile, engine.role) for engine in topology.engines) == sorted(
            (part.offer.name, part.role) for part in candidate.engines for _ in range(part.count)
        )
        assert {engine.chunk_tokens for engine in topology.engines} == {1024}
        slo = topology.services[0].slo
        assert (slo.ttft_s, slo.tpot_s, slo.attainment) == (0.5, 0.04, 0.9)
