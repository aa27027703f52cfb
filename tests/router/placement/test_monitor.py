"""What gateways say of their services, over intervals."""

from random import Random

import pytest

from mesh.messages import GatewayStatus, ProcessState, Sender, ServiceTally
from router.placement.monitor import ServiceMonitor
from router.placement.traffic import Moments


def status(*tallies):
    return GatewayStatus(1, ProcessState.READY, "local", 1, "", 0, 0, services=list(tallies))


def tally(name, arrived, *, late=0, num_input=10, num_output=4, latency_s=2.0):
    """Requests that are all alike, and have all been answered."""
    inputs, outputs = (arrived * num_input, arrived * num_input**2), (arrived * num_output, arrived * num_output**2)
    return ServiceTally(name, arrived, *inputs, arrived, late, arrived, *outputs, arrived * latency_s)


A1, A2, B1 = Sender("a", 1), Sender("a", 2), Sender("b", 1)


def test_an_interval_is_what_came_between():
    monitor = ServiceMonitor(now=100.0)
    monitor.observe(A1, status(tally("chat", 50)))  # of before
    monitor.observe(A1, status(tally("chat", 70, late=4)))
    seen = monitor.observed(110.0)
    chat = seen.traffic().services["chat"]
    assert (chat.rate, chat.num_input, chat.num_output) == (2.0, Moments(10.0, 0.0), Moments(4.0, 0.0))
    score = seen.score({"chat": 0.5}, {"chat": 0.9}).services["chat"]
    assert (score.num_requests, score.attainment, score.is_short) == (20, 0.8, True)
    assert score.normalized_latency == 20 * 2.0 / 0.5


def test_gateways_add_up_and_services_that_come_later_count():
    monitor = ServiceMonitor(now=0.0)
    monitor.observe(A1, status(tally("chat", 5)))
    monitor.observe(B1, status())
    monitor.observe(A1, status(tally("chat", 15), tally("code", 3)))
    monitor.observe(B1, status(tally("chat", 20)))
    traffic = monitor.observed(10.0).traffic()
    assert (traffic.rate("chat"), traffic.rate("code"), traffic.rate("other")) == (3.0, 0.3, 0.0)


def test_the_next_interval_begins_where_this_one_ends():
    monitor = ServiceMonitor(now=0.0)
    monitor.observe(A1, status(tally("chat", 0)))
    monitor.observe(A1, status(tally("chat", 30)))
    monitor.begin(10.0)
    assert monitor.observed(10.0).traffic().rate("chat") == 0.0
    monitor.observe(A1, status(tally("chat", 40)))
    assert monitor.observed(20.0).traffic().rate("chat") == 1.0


def test_a_gateway_that_starts_again_counts_from_nothing():
    monitor = ServiceMonitor(now=0.0)
    monitor.observe(A1, status(tally("chat", 100)))
    monitor.observe(A1, status(tally("chat", 110)))
    monitor.observe(A2, status(tally("chat", 5)))
    monitor.observe(A1, status(tally("chat", 111)))  # late word of the old life
    assert monitor.observed(10.0).traffic().rate("chat") == 1.5
    monitor.begin(10.0)
    monitor.observe(A2, status(tally("chat", 25)))
    assert monitor.observed(20.0).traffic().rate("chat") == 2.0


@pytest.mark.parametrize("seed", range(10))
def test_lost_and_reordered_statuses_change_nothing_in_the_end(seed):
    random, monitor = Random(seed), ServiceMonitor(now=0.0)
    said = [status(tally("chat", number)) for number in range(51)]
    monitor.observe(A1, said[0])
    some = random.sample(said, 20)
    for one in [*some, said[50], *some]:
        monitor.observe(A1, one)
    assert monitor.observed(10.0).traffic().rate("chat") == 5.0


def test_lengths_spread():
    monitor = ServiceMonitor(now=0.0)
    monitor.observe(A1, status())
    monitor.observe(A1, status(ServiceTally("chat", 2, 30, 500, 2, 0, 1, 8, 64, 1.0)))
    chat = monitor.observed(1.0).traffic().services["chat"]
    assert chat.num_input == Moments(15.0, 5.0)
    assert chat.num_output == Moments(8.0, 0.0)
