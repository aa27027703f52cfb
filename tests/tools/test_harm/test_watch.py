"""Limits and the watch over the memory of processes."""

import os
import resource
import subprocess
import sys

from tests.tools.harm.watch import Watch, limit, own, resident


def test_a_process_may_not_write_to_much_more_than_it_has_at_rest():
    script = "input(); print(len(bytes(2**20)), flush=True); bytes(5 * 2**30)"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", script], text=True, **pipes) as child:
        limit(child.pid)
        allowed, _ = resource.prlimit(child.pid, resource.RLIMIT_DATA)
        limit(child.pid)
        assert resource.prlimit(child.pid, resource.RLIMIT_DATA)[0] == allowed
        said, complained = child.communicate("\n")
    assert said.strip() == str(2**20)
    assert "MemoryError" in complained


def test_growth_and_what_is_kept_are_those_of_a_process():
    script = "input(); x = b'1' * 2**26; print(flush=True); input(); del x; print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None

        def step():
            child.stdin.write("\n")
            child.stdin.flush()
            child.stdout.readline()

        with Watch({"it": child.pid}) as watch:
            step()
            assert watch.kept()["it"] >= 2**26
            step()
            assert watch.growth()["it"] >= 2**26
            assert watch.kept()["it"] < 2**25
            child.kill()
        child.wait()
        assert watch.kept() == {}


def test_helpers_count_with_those_who_started_them():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        alone, together = own(os.getpid()), resident(os.getpid())
        with Watch({"all": os.getpid(), "me": os.getpid()}, alone={"me"}) as watch:
            pass
        child.kill()
    assert together > alone
    assert watch.growth().keys() == {"all", "me"}
