"""SeaLLM's theorem 1 against all schedules: requests of a service take equally long, and may be preempted at any time.

It holds when no service interrupts two others: with two services, whenever their requests come (the paper shares at
most two), and with any number of services whose requests come at once. With three it does not hold in general.
"""

import random
from collections.abc import Sequence
from functools import cache

import pytest

from tests.engines.scheduling.disciplines.serving import Job, Known, doubling, serve
from tests.seeds import each_seed


def normalised(jobs: Sequence[Job], done: Sequence[int]) -> float:
    return sum((end - job.at) / job.work for job, end in zip(jobs, done, strict=True))


def optimum(jobs: Sequence[Job]) -> float:
    """The least sum of normalised latencies of all preemptive schedules with a unit of work at a time."""

    @cache
    def rest(now: int, left: tuple[int, ...]) -> float:
        if not any(left):
            return 0.0
        here = [index for index, work in enumerate(left) if work and jobs[index].at <= now]
        price = sum(1 / jobs[index].work for index in here)  # of a unit of time, for all that wait or run
        choices = [tuple(work - (other == index) for other, work in enumerate(left)) for index in here] or [left]
        return price + min(rest(now + 1, choice) for choice in choices)

    return rest(0, tuple(job.work for job in jobs))


def by_budgets(jobs: Sequence[Job]) -> float:
    profiles = {job.service: Known(float(job.work)) for job in jobs}
    return normalised(jobs, serve(doubling(profiles), jobs))


@each_seed(range(100))
def test_with_two_services_nothing_beats_it_whenever_requests_come(seed: int):
    draw = random.Random(seed)
    works = {"a": draw.randint(1, 3), "b": draw.randint(1, 7)}
    names = draw.choices(["a", "b"], k=draw.randint(2, 5))
    jobs = [Job(name, draw.randint(0, 10), works[name]) for name in names]
    assert by_budgets(jobs) == pytest.approx(optimum(jobs))


@each_seed(range(40))
def test_nothing_beats_it_when_requests_of_many_services_come_at_once(seed: int):
    draw = random.Random(seed)
    works = {name: draw.randint(1, 5) for name in "abcd"}
    jobs = [Job(name, 0, works[name]) for name in draw.choices("abcd", k=5)]
    assert by_budgets(jobs) == pytest.approx(optimum(jobs))


def test_with_three_services_it_may_be_beaten_and_by_how_much():
    """The one that is nearly done yields to a shorter one, then short ones of a third service hold back both."""
    jobs = [Job("long", 0, 20), Job("short", 19, 4), *(Job("tiny", 20 + index, 1) for index in range(8))]
    assert 1.02 * optimum(jobs) < by_budgets(jobs) < 1.05 * optimum(jobs)
