import threading

from mesh.membership.pulse import MOST_HELD_UP_S, Pulse, is_held_up

DEADLINE_S = 60.0


def test_who_speaks_has_no_pulse_and_who_is_silent_for_long_is_dead():
    assert not is_held_up(0.2, period_s=0.2)
    assert is_held_up(0.4, period_s=0.2)
    assert is_held_up(MOST_HELD_UP_S, period_s=0.2)
    assert not is_held_up(MOST_HELD_UP_S + 0.1, period_s=0.2)


def test_a_pulse_goes_on_after_one_that_failed_until_it_is_stopped():
    said, twice = [], threading.Event()

    def say():
        said.append(1)
        if len(said) == 2:
            twice.set()
        raise OSError("no")

    pulse = Pulse(say, 0.001)
    assert twice.wait(DEADLINE_S)
    pulse.stop()
    assert not pulse._thread.is_alive()
