import pytest

from simulation.engines.transfer_times import Copier, CopyModel
from simulation.kernel import Kernel


def model(round_trip_s=0.0):
    """Blocks of 100 bytes take 1 s; messages hold 3 of them and cost 0.5 s each."""
    return CopyModel(100, bytes_per_s=100.0, message_s=0.5, message_bytes=350, window=4, round_trip_s=round_trip_s)


@pytest.mark.parametrize(("num_blocks", "elapsed_s"), [(1, 1.5), (3, 3.5), (4, 5.0), (30, 35.0)])
def test_each_message_costs_its_beginning_and_its_bytes(num_blocks, elapsed_s):
    assert model().elapsed_s(num_blocks) == pytest.approx(elapsed_s)


def test_acknowledgements_set_the_pace_of_fast_copies_only():
    assert model(round_trip_s=10.0).elapsed_s(30) == pytest.approx(35.0)  # three more messages last for 10.5 s
    assert model(round_trip_s=12.5).elapsed_s(30) == pytest.approx(35.0 + 2 * 2.0)  # after the 4th and the 8th of 10
    assert model(round_trip_s=12.5).elapsed_s(12) == pytest.approx(14.0)  # a window's worth never waits


def ends(*copies):
    """When copies of (start, seconds alone) end."""
    kernel, ended = Kernel(), {}
    copier = Copier(kernel)
    for name, (start_s, elapsed_s) in enumerate(copies):
        kernel.at(start_s, copier.copy, elapsed_s, lambda name: ended.update({name: kernel.now}), name)
    kernel.run()
    return [ended[name] for name in range(len(copies))]


def test_a_copy_alone_takes_its_time():
    assert ends((1.0, 2.0)) == [3.0]
    assert ends((0.0, 1.0), (5.0, 1.0)) == [1.0, 6.0]


def test_copies_to_one_engine_share_its_time():
    assert ends((0.0, 2.0), (1.0, 2.0)) == pytest.approx([3.0, 4.0])
    assert ends((0.0, 4.0), (0.0, 1.0), (0.0, 1.0)) == pytest.approx([6.0, 3.0, 3.0])
    assert ends((0.0, 10.0), (9.9, 0.1)) == pytest.approx([10.1, 10.1])
