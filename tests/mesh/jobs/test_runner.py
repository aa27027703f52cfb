"""Jobs in processes, with workers that die; one process of each test does the rest, too."""

import pytest

from mesh.errors import CommandError
from mesh.jobs.attempts import WorkerDiedError
from mesh.jobs.runner import JobPlace, parse_place, running
from tests.mesh.jobs.dying import work

TWO = JobPlace(2)


def test_a_job_whose_worker_dies_is_tried_again(tmp_path):
    jobs = ["a", f"die once:{tmp_path / 'mark'}", "b", "c"]
    with running(work, TWO) as runner:
        assert dict(runner.run(jobs)) == {index: job.upper() for index, job in enumerate(jobs)}
        assert dict(runner.run(["d"])) == {0: "D"}


def test_a_job_whose_worker_dies_twice_is_named():
    with (
        running(work, TWO) as runner,
        pytest.raises(WorkerDiedError, match=r"job 1: its process died \(signal SIGKILL\), and so did the one that"),
    ):
        list(runner.run(["a", "die"]))


@pytest.mark.parametrize("place", [JobPlace(1), TWO])
def test_what_a_job_raises_is_raised(place):
    with running(int, place) as runner, pytest.raises(ValueError, match="invalid literal"):
        list(runner.run(["1", "x"]))


def test_an_error_that_cannot_travel_is_told():
    with running(work, TWO) as runner, pytest.raises(CommandError, match="OddError: quite odd"):
        list(runner.run(["odd"]))


@pytest.mark.parametrize("text", ["", "rays", "ray:", "ray:host", "ray:host:x", "ray:host:123456"])
def test_a_place_that_is_none_is_refused(text):
    with pytest.raises(ValueError, match=r"write it like ray or ray:10\.0\.0\.1:6379"):
        parse_place(text)


def test_a_cluster_that_is_not_there_is_one_line():
    with (
        pytest.raises(CommandError, match=r"^--on ray: no Ray cluster answers at '127.0.0.1:1': .*$"),
        running(work, parse_place("ray:127.0.0.1:1")),
    ):
        pass
