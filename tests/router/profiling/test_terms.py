"""What a server's clients see tells its costs."""

from itertools import islice

import pytest

from engines.costs.linear import decode_step_s, prefill_s
from router.profiling.experiments import Aim
from router.profiling.load_design import LoadDesign, LoadLimits
from router.profiling.readings import Bounds, Read, read
from router.profiling.terms import Terms, chunk_budget, fit_terms
from tests.router.profiling.virtual_server import COST, VirtualServer


def profiled(server: VirtualServer, rounds: int = 2, longest: int = 8192) -> tuple[Terms, list[Read]]:
    design, reads = LoadDesign(LoadLimits(600.0, longest, 64)), []
    for _ in range(rounds):
        for experiment in design.experiments():
            seen = server.run(experiment)
            design.saw(seen)
            reads.append(read(seen))
    terms = fit_terms(reads)
    assert terms is not None
    return terms, reads


@pytest.fixture(scope="module")
def found():
    return profiled(VirtualServer())


def test_the_costs_of_iterations_are_found(found):
    terms, _ = found
    for num_tokens in (16, 200, 500):
        assert prefill_s(terms.cost.prefill, num_tokens) == pytest.approx(prefill_s(COST.prefill, num_tokens), rel=0.05)
    for num_requests, context in ((1, 32), (5, 300), (20, 2000)):
        expected = decode_step_s(COST.decode, num_requests, context)
        assert decode_step_s(terms.cost.decode, num_requests, context) == pytest.approx(expected, rel=0.05)


def test_a_requests_way_is_told_from_the_fixed_part_of_an_iteration(found):
    terms, _ = found
    assert terms.request_s == pytest.approx(0.01, rel=0.1)
    assert terms.are_known


def test_the_budget_of_an_iteration_is_found(found):
    assert found[0].chunk_tokens == 512


@pytest.mark.parametrize("budget", [256, 1024, 2048, 768])
def test_other_budgets_are_found_as_well(budget):
    assert profiled(VirtualServer(chunk_tokens=budget), rounds=1)[0].chunk_tokens == budget


def test_a_budget_that_no_prompt_reaches_is_not_known():
    terms, _ = profiled(VirtualServer(chunk_tokens=10**6), rounds=1, longest=2100)
    assert terms.chunk_tokens is None
    assert terms.chunk_at_least >= 2048


def test_places_that_are_full_are_found(found):
    full = {one.at_once for one in found[1] if one.was_full}
    assert full == {20}


@pytest.mark.parametrize("caches", [True, False])
def test_prefix_caching_is_found(caches):
    server, design = VirtualServer(caches=caches), LoadDesign(LoadLimits(600.0, 8192, 64))
    twice = next(one for one in design.experiments() if one.aim is Aim.TWICE)
    assert read(server.run(twice)).is_cached is caches


def test_held_out_points_are_not_fitted(found):
    terms, _ = found
    assert terms.held_out
    assert not set(terms.held_out) & set(terms.fitted)


def test_too_little_says_nothing():
    server, design = VirtualServer(), LoadDesign(LoadLimits(600.0, 8192))
    assert fit_terms([read(server.run(experiment)) for experiment in islice(design.experiments(), 0)]) is None


def test_what_most_bounds_allow_is_taken():
    assert chunk_budget([Bounds(300), Bounds(400, 700), Bounds(5000)]) == (512, 5000)
    assert chunk_budget([Bounds(300)]) == (None, 300)
    assert chunk_budget([Bounds(1000, 1010), Bounds(1000, 1010)])[0] in range(1000, 1010)
