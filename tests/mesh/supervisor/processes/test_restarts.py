import errno

from hypothesis import given
from hypothesis import strategies as st

from mesh.errors import EXIT_CONFIGURATION
from mesh.supervisor.processes.restarts import GiveUpRestarting, ProcessExit, Restart, RestartPolicy, not_started

CRASH = ProcessExit(1, "boom")


def test_delays_grow_up_to_a_cap():
    policy = RestartPolicy(first_s=0.2, cap_s=10.0)
    delays = [policy.on_exit(CRASH, ready_for_s=1.0).delay_s for _ in range(8)]
    assert delays == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]


def test_a_healthy_incarnation_starts_the_delays_anew():
    policy = RestartPolicy(first_s=0.2, healthy_s=30.0)
    for _ in range(5):
        policy.on_exit(CRASH, ready_for_s=1.0)
    assert policy.on_exit(CRASH, ready_for_s=30.0) == Restart(0.2)
    assert policy.on_exit(CRASH, ready_for_s=None) == Restart(0.4)


def test_a_configuration_error_at_the_start_is_final():
    assert RestartPolicy().on_exit(ProcessExit(EXIT_CONFIGURATION, "no model"), ready_for_s=None) == GiveUpRestarting(
        "no model"
    )
    assert RestartPolicy().on_exit(ProcessExit(EXIT_CONFIGURATION), ready_for_s=None) == GiveUpRestarting("exit code 2")


def test_a_configuration_error_of_what_worked_once_may_be_mended():
    policy = RestartPolicy()
    policy.on_exit(CRASH, ready_for_s=90.0)
    assert policy.on_exit(ProcessExit(EXIT_CONFIGURATION, "port taken"), ready_for_s=None) == Restart(0.4)


def test_what_never_became_ready_is_given_up():
    policy = RestartPolicy(max_failed_starts=3)
    assert policy.on_exit(CRASH, None) == Restart(0.2)
    assert policy.on_exit(CRASH, None) == Restart(0.4)
    assert policy.on_exit(CRASH, None) == GiveUpRestarting("died 3 times without becoming ready: exit code 1: boom")


@given(st.lists(st.floats(0, 100), min_size=1))
def test_what_was_ready_once_is_never_given_up(ready_times_s):
    policy = RestartPolicy()
    policy.on_exit(CRASH, ready_for_s=0.0)
    for ready_for_s in ready_times_s:
        decision = policy.on_exit(CRASH, ready_for_s)
        assert isinstance(decision, Restart)
        assert 0.2 <= decision.delay_s <= 10.0
    assert all(isinstance(policy.on_exit(CRASH, None), Restart) for _ in range(40))


def test_exits_read_well():
    assert str(ProcessExit(-9)) == "killed by SIGKILL"
    assert str(ProcessExit(-99)) == "killed by signal 99"
    assert str(ProcessExit(3, "why")) == "exit code 3: why"


def test_what_the_machine_lacks_for_the_moment_is_no_failed_start():
    policy = RestartPolicy(max_failed_starts=3)
    lacking = not_started("python", OSError(errno.ENOMEM, "Cannot allocate memory"))
    assert str(lacking) == "not started: cannot start python: Cannot allocate memory"
    assert [policy.on_exit(lacking, None) for _ in range(4)] == [Restart(0.2 * 2**n) for n in range(4)]
    assert [type(policy.on_exit(CRASH, None)) for _ in range(3)] == [Restart, Restart, GiveUpRestarting]


def test_a_program_that_is_not_there_is_given_up():
    missing = not_started("python", OSError(errno.ENOENT, "No such file or directory"))
    policy = RestartPolicy(max_failed_starts=1)
    assert policy.on_exit(missing, None) == GiveUpRestarting(
        "died 1 times without becoming ready: exit code 127: cannot start python: No such file or directory"
    )


def test_an_exit_that_nobody_can_tell():
    assert str(ProcessExit(None)) == "ended"
    assert str(ProcessExit(None, "bye")) == "ended: bye"
