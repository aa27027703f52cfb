from simulation.kernel import Kernel


def test_events_come_in_order_of_time_then_of_scheduling():
    kernel, seen = Kernel(), []
    kernel.at(2.0, seen.append, "late")
    kernel.at(1.0, seen.append, "first")
    kernel.at(1.0, seen.append, "second")
    kernel.run()
    assert seen == ["first", "second", "late"]
    assert kernel.now == 2.0


def test_what_is_scheduled_in_the_past_happens_at_once():
    kernel, moments = Kernel(now=5.0), []
    kernel.at(1.0, lambda: moments.append(kernel.now))
    kernel.run()
    assert moments == [5.0]


def test_run_stops_at_a_time_or_when_told():
    kernel, seen = Kernel(), []
    for moment in (1.0, 2.0, 3.0):
        kernel.at(moment, seen.append, moment)
    kernel.run(until=1.5)
    assert seen == [1.0]
    kernel.at(2.5, kernel.stop)
    kernel.run()
    assert seen == [1.0, 2.0]
    kernel.run()
    assert seen == [1.0, 2.0, 3.0]


def test_random_streams_are_of_the_seed_and_the_name():
    draws = {(seed, name): Kernel(seed).random(name).random() for seed in (1, 2) for name in ("a", "b")}
    assert len(set(draws.values())) == 4
    assert Kernel(1).random("a").random() == draws[1, "a"]
