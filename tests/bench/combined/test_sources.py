import gzip
from itertools import pairwise
from random import Random

import pytest

from bench.combined.sources import SERVEGEN, TRACES, Pattern, Source
from simulation.loads.rows import TraceError

MOST = (4000, 500)


def source(pattern, lengths=None):
    return Source(pattern, lengths, (1000, 100), 0.8, MOST)


@pytest.fixture
def data(tmp_path):
    """Two hours of two clients, one of which does nine tenths, and forty requests of Azure's."""
    for name in (SERVEGEN, TRACES[Pattern.AZURE]):
        (tmp_path / name).parent.mkdir(parents=True)
    rows = [f"{client},{600 * window},{rate},2.0" for window in range(14) for client, rate in ((0, 0.9), (1, 0.1))]
    with gzip.open(tmp_path / SERVEGEN, "wt") as file:
        file.write("\n".join(["client,window_start_s,rate_rps,cv", *rows]))
    rows = [f"2023-11-16 18:15:{number:02}.0000000,{100 * number + 1},{number + 1}" for number in range(40)]
    (tmp_path / TRACES[Pattern.AZURE]).write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *rows]))
    (tmp_path / "lengths.csv").write_text("input_tokens,output_tokens\n700,70\n")
    return tmp_path


@pytest.mark.parametrize("pattern", Pattern)
def test_made_up_requests_come_in_order_within_one_span(pattern):
    requests = source(pattern).requests(None, 200, Random(0))
    assert len(requests) == 200
    assert all(one.at_s <= other.at_s for one, other in pairwise(requests))
    assert requests[-1].at_s == 1.0
    assert max(one.num_input for one in requests) == MOST[0]


def test_made_up_documents_begin_alike_and_others_do_not():
    begins = [one.blocks for one in source(Pattern.MOONCAKE).requests(None, 200, Random(0))]
    assert len(set(begins)) < 60
    assert {one.blocks for one in source(Pattern.AZURE).requests(None, 20, Random(0))} == {()}


def test_the_same_seed_draws_the_same(data):
    for pattern, lengths in ((Pattern.AZURE, None), (Pattern.SERVEGEN, "lengths.csv")):
        drawn = [source(pattern, lengths).requests(data, 30, Random(seed)) for seed in (1, 1, 2)]
        assert drawn[0] == drawn[1] != drawn[2]


def test_a_trace_is_cut_from_anywhere_and_keeps_its_lengths(data):
    requests = source(Pattern.AZURE).requests(data, 30, Random(3))
    first = requests[0].num_input
    assert [one.num_input for one in requests] == [min(MOST[0], first + 100 * number) for number in range(30)]
    assert [one.at_s for one in requests] == pytest.approx([number / 29 for number in range(30)])


def test_clients_send_as_many_as_are_asked_for_with_other_lengths(data):
    requests = source(Pattern.SERVEGEN, "lengths.csv").requests(data, 50, Random(0))
    assert {(one.num_input, one.num_output) for one in requests} == {(700, 70)}
    assert len(requests) == 50


def test_what_is_wrong_with_the_data_is_one_line(data, tmp_path):
    with pytest.raises(TraceError, match="has 40 requests; 41 are needed"):
        source(Pattern.AZURE).requests(data, 41, Random(0))
    with pytest.raises(TraceError, match="cannot be read"):
        source(Pattern.SERVEGEN, "lengths.csv").requests(tmp_path / "nowhere", 5, Random(0))
    with gzip.open(data / SERVEGEN, "wt") as file:
        file.write("client,start\n0,1\n")
    with pytest.raises(TraceError, match="want client, window_start_s"):
        source(Pattern.SERVEGEN, "lengths.csv").requests(data, 5, Random(1))
