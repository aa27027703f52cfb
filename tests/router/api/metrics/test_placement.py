from types import SimpleNamespace

from prometheus_client import CollectorRegistry

from mesh.wire.control import ProcessState
from mesh.wire.placement import Decision, Forecast, PlacementStatus, PoolStatus, ServiceForecast
from mesh.wire.status import Memory
from router.api.metrics.placement import PlacementHealth
from router.history.marks import MarkKeeper

DECISION = Decision(
    4,
    "replace",
    "a better plan was found",
    2,
    60.0,
    4.5,
    services=[
        ServiceForecast("chat", 2.5, (1.0, 0.0), (1.0, 0.0), 0.5, 0.75, 1.0, dispersion=3.6),
        ServiceForecast("code", 0.0, (0, 0), (0, 0)),
    ],
    achieved=Forecast(0.5, 8.0),
)
STATUS = PlacementStatus(
    7,
    ProcessState.READY,
    "local",
    44,
    "apply",
    "listening",
    3,
    10.0,
    memory=Memory(5, 66.0),
    decision=DECISION,
    decisions_total={"replace": 1, "keep": 3},
    changes_total=1,
    pools=[PoolStatus("decode", 3, 1, 8, 2.4)],
)


def test_what_the_daemon_said_last_is_exported():
    marks, registry = MarkKeeper(), CollectorRegistry()
    registry.register(PlacementHealth(marks, SimpleNamespace(now=lambda: 12.0)))
    assert list(registry.collect()) == []
    marks.hear(STATUS, [], 10.0)

    def value(name, **labels):
        return registry.get_sample_value(f"meshserve_placement_{name}", labels)

    assert value("silence_seconds") == 2.0
    assert value("plan") == 3
    assert value("interval_seconds") == 66.0
    assert value("search_seconds") == 4.5
    assert value("decisions_total", verdict="keep") == 3
    assert value("changes_total", outcome="done") == 1
    assert value("changes_total", outcome="given up") == 0
    assert value("rate", service="chat") == 2.5
    assert [value("dispersion", service=name) for name in ("chat", "code")] == [3.6, 1.0]
    assert [value("attainment", service="chat", kind=kind) for kind in ("achieved", "predicted", "proposed")] == [
        0.5,
        0.75,
        1,
    ]
    assert value("attainment", service="code", kind="achieved") is None
    kinds = ("needed", "wanted", "least", "most")
    engines = [registry.get_sample_value("meshserve_pool_engines", {"pool": "decode", "kind": kind}) for kind in kinds]
    assert engines == [2.4, 3, 1, 8]
    assert value("normalized_latency", kind="achieved") == 8.0
    assert value("normalized_latency", kind="proposed") is None
