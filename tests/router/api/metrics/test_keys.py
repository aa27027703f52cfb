"""What keys used, as Prometheus reads it."""

from prometheus_client import CollectorRegistry

from mesh.access.keys import UNLIMITED, make_key
from router.api.access.keyring import HeldKey
from router.api.access.rates import Meter
from router.api.metrics.keys import MOST_KEYS, KeyUse


def held(name: str) -> HeldKey:
    return HeldKey(make_key(name, UNLIMITED, 0.0)[0], UNLIMITED, Meter())


def test_requests_and_tokens_of_a_key_are_counted_and_refused_ones_are_not():
    key, registry = held("shop"), CollectorRegistry()
    registry.register(KeyUse(lambda: [key]))
    key.meter.begin(UNLIMITED, 100, 1, 0.0)
    key.meter.begin(UNLIMITED, 100, 1, 0.0)
    key.meter.end(100, 30)
    assert registry.get_sample_value("meshserve_key_requests_total", {"key": "shop"}) == 2
    assert registry.get_sample_value("meshserve_key_tokens_total", {"key": "shop"}) == 30


def test_promises_to_a_key_are_counted():
    key, registry = held("shop"), CollectorRegistry()
    registry.register(KeyUse(lambda: [key]))
    for is_kept in (True, False, True):
        key.meter.judge(is_kept=is_kept)
    assert registry.get_sample_value("meshserve_key_ended_total", {"key": "shop"}) == 3
    assert registry.get_sample_value("meshserve_key_kept_total", {"key": "shop"}) == 2


def test_thousands_of_keys_make_a_hundred_series():
    keys = [held(f"key-{number}") for number in range(3 * MOST_KEYS)]
    requests, *others = KeyUse(lambda: keys).collect()
    assert all(len(family.samples) == MOST_KEYS for family in (requests, *others))
    assert requests.samples[0].labels == {"key": "key-0"}
