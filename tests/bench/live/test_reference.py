"""The reference says what the same work takes, between two moments."""

import time

import pytest

from bench.live.reference import BEAT, Reference, reference
from mesh.errors import UserError

LIMIT_S = 30.0


def test_work_is_the_median_of_the_beats_between_two_moments(tmp_path):
    file = tmp_path / "beats"
    beats = [(1.0, 9.0), (2.0, 0.2), (3.0, 0.4), (4.0, 0.3), (5.0, 9.0)]
    file.write_bytes(b"".join(BEAT.pack(*beat) for beat in beats) + b"torn")
    assert Reference(file).work_s(2.0, 4.0) == 0.3


def test_no_beat_is_an_error_in_a_line(tmp_path):
    (tmp_path / "beats").touch()
    with pytest.raises(UserError, match=r"did no work in 2\.0 s"):
        Reference(tmp_path / "beats").work_s(1.0, 3.0)


def test_the_process_works_until_the_block_ends():
    began_at = time.monotonic()
    with reference() as machine:
        while machine.file.stat().st_size < 2 * BEAT.size:
            assert time.monotonic() < began_at + LIMIT_S
            time.sleep(0.05)
        assert machine.work_s(began_at, time.monotonic()) > 0.0
    assert not machine.file.exists()
