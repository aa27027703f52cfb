from engines.step_failures.stuck_steps import FACTOR, FIRST_LEAST_S, LEAST_S, StepWatch

BEAT_S = 0.2


def run(watch, seconds, *, start=0.0, beat_s=BEAT_S):
    """What is said of a step after ``seconds`` in which it was looked at all the time."""
    said = None
    for index in range(1, round(seconds / beat_s) + 1):
        said = watch.look(start + index * beat_s)
    return said


def computing(predicted_s=0.02, *, is_first=False):
    watch = StepWatch(longest_gap_s=1.25 * BEAT_S)
    if not is_first:
        watch.start("chat", lambda: predicted_s, 0.0)
        watch.end(0.0)
    watch.start("chat", lambda: predicted_s, 0.0)
    return watch


def test_a_step_that_does_not_end_hangs():
    watch = computing()
    assert run(watch, LEAST_S - 0.2) is None
    said = run(watch, 0.4, start=LEAST_S - 0.2)
    assert said == "a step of chat has been running for 1.2 s, predicted 0.020 s"
    watch.end(LEAST_S + 0.2)
    assert watch.look(100.0) is None


def test_a_step_may_take_many_times_what_was_predicted():
    watch = computing(predicted_s=1.0)
    assert run(watch, FACTOR - 1.0) is None
    assert run(watch, 2.0, start=FACTOR - 1.0) is not None


def test_the_first_step_of_a_service_may_compile():
    watch = computing(is_first=True)
    assert run(watch, FIRST_LEAST_S - 1.0) is None
    assert run(watch, 2.0, start=FIRST_LEAST_S - 1.0) is not None
    watch.end(FIRST_LEAST_S + 1.0)
    watch.start("other", lambda: 0.02, 200.0)
    assert run(watch, LEAST_S + 1.0, start=200.0) is None, "that it computed one service says nothing of another"


def test_time_in_which_the_process_was_held_up_does_not_count():
    watch = computing()
    for hour in range(3):
        assert watch.look(3600.0 * (hour + 1)) is None
    assert run(watch, LEAST_S, start=10800.0) is not None


def test_a_slow_machine_makes_no_hanging_step():
    """Steps of a hundred times their prediction, and a process that gets its turn as rarely."""
    watch = computing(predicted_s=0.02)
    for _ in range(20):
        assert run(watch, 10.0, beat_s=10.0) is None
        watch.end(10.0)
        watch.start("chat", lambda: 0.02, 0.0)


def test_without_a_step_nothing_hangs():
    watch = computing()
    watch.end(0.0)
    assert run(watch, 1000.0) is None


def steps(watch, count, seconds, *, predicted_s=0.02):
    """How many of them counted as hanging before they ended."""
    num_alarms = 0
    for _ in range(count):
        num_alarms += run(watch, seconds) is not None
        watch.end(seconds)
        watch.start("chat", lambda: predicted_s, 0.0)
    return num_alarms


def test_where_steps_are_late_patience_is_longer():
    """A laptop that is busy with something else: steps of forty times their prediction are no news."""
    watch = computing()
    assert steps(watch, 5, 0.8) == 0
    assert run(watch, LEAST_S + 0.4) is None, "twice as late as steps were of late"
    assert run(watch, 0.4, start=LEAST_S + 0.4) is not None


def test_a_false_alarm_doubles_patience():
    watch = computing()
    assert steps(watch, 1, 1.4) == 1
    assert steps(watch, 10, 2.4) == 0


def test_patience_is_forgotten_where_steps_are_in_time_again():
    watch = computing()
    steps(watch, 1, 1.4)
    for _ in range(200):
        watch.end(0.02)
        watch.start("chat", lambda: 0.02, 0.0)
    assert run(watch, LEAST_S + 0.2) is not None
