from engines.watch import FACTOR, FIRST_LEAST_S, LEAST_S, StepWatch

BEAT_S = 0.2


def run(watch, seconds, *, start=0.0, beat_s=BEAT_S):
    """What is said of a step after ``seconds`` in which it was looked at all the time."""
    said = None
    for index in range(1, round(seconds / beat_s) + 1):
        said = watch.look(start + index * beat_s)
    return said


def computing(predicted_s=0.02, *, is_first=False):
    watch = StepWatch(longest_gap_s=2.5 * BEAT_S)
    if not is_first:
        watch.start("chat", lambda: predicted_s, 0.0)
        watch.end()
    watch.start("chat", lambda: predicted_s, 0.0)
    return watch


def test_a_step_that_does_not_end_hangs():
    watch = computing()
    assert run(watch, LEAST_S - 1.0) is None
    said = run(watch, 1.4, start=LEAST_S - 1.0)
    assert said == "a step of chat has been running for 5.4 s, predicted 0.020 s"
    watch.end()
    assert watch.look(100.0) is None


def test_a_step_may_take_many_times_what_was_predicted():
    watch = computing(predicted_s=1.0)
    assert run(watch, FACTOR - 1.0) is None
    assert run(watch, 2.0, start=FACTOR - 1.0) is not None


def test_the_first_step_of_a_service_may_compile():
    watch = computing(is_first=True)
    assert run(watch, FIRST_LEAST_S - 1.0) is None
    assert run(watch, 2.0, start=FIRST_LEAST_S - 1.0) is not None
    watch.end()
    watch.start("other", lambda: 0.02, 200.0)
    assert run(watch, LEAST_S + 1.0, start=200.0) is None, "that it computed one service says nothing of another"


def test_time_in_which_the_process_was_held_up_does_not_count():
    watch = computing()
    assert watch.look(3600.0) is None
    assert watch.look(7200.0) is None
    assert run(watch, LEAST_S + 1.0, start=7200.0) is not None


def test_a_slow_machine_makes_no_hanging_step():
    """Steps of a hundred times their prediction, and a process that gets its turn as rarely."""
    watch = computing(predicted_s=0.02)
    for _ in range(20):
        assert run(watch, 10.0, beat_s=10.0) is None
        watch.end()
        watch.start("chat", lambda: 0.02, 0.0)


def test_without_a_step_nothing_hangs():
    watch = computing()
    watch.end()
    assert run(watch, 1000.0) is None
