import pytest

from mesh.supervisor.processes.watchdog import LOOK_S, Watchdog
from mesh.wire.control import ProcessState, Role
from mesh.wire.status import EngineStatus, GatewayStatus


def engine(state=ProcessState.READY, error=None):
    return EngineStatus(1, state, Role.DECODE, "local", 1, [], 0, 0, 0, 0.0, 0.0, 0.0, None, error=error)


STUCK = engine(ProcessState.STUCK, "a step of chat has been running for 9.0 s")
GATEWAY = GatewayStatus(1, ProcessState.READY, "local", 1, "", 0, 0)


def watch(watchdog, seconds, hear=None, start=0.0, step_s=LOOK_S):
    """What it says in ``seconds`` during which ``hear`` is heard all the time."""
    for index in range(int(seconds / step_s) + 1):
        if hear is not None:
            watchdog.heard(hear)
        if reason := watchdog.look(start + index * step_s):
            return reason
    return None


@pytest.mark.parametrize("status", [engine(), GATEWAY])
def test_a_process_that_speaks_is_let_be(status):
    assert watch(Watchdog(stuck_s=2.0, silent_s=3.0), 1000.0, status) is None


def test_silence_ends_a_process():
    watchdog = Watchdog(stuck_s=2.0, silent_s=3.0)
    assert watch(watchdog, 2.5) is None
    assert watch(watchdog, 100.0, start=3.0) == "silent for 3 s"


def test_a_step_that_does_not_end_ends_an_engine():
    watchdog = Watchdog(stuck_s=2.0, silent_s=3.0)
    assert watch(watchdog, 1.5, STUCK) is None
    assert watch(watchdog, 100.0, STUCK, start=2.0) == "stuck for 2 s: a step of chat has been running for 9.0 s"


def test_a_step_that_ends_after_all_is_forgiven():
    watchdog = Watchdog(stuck_s=2.0, silent_s=3.0)
    for round_ in range(10):
        assert watch(watchdog, 1.0, STUCK, start=2.0 * round_) is None
        assert watch(watchdog, 0.0, engine(), start=2.0 * round_ + 1.5) is None


def test_a_pause_of_the_supervisor_itself_does_not_count():
    watchdog = Watchdog(stuck_s=20.0, silent_s=30.0)
    watchdog.heard(STUCK)
    assert watchdog.look(0.0) is None
    assert watchdog.look(3600.0) is None
    assert watch(watchdog, 10.0, start=3600.0) is None
