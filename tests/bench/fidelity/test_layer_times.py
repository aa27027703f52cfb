"""Iterations composed from the times of their kernels."""

import gzip
from pathlib import Path

import pytest

from bench.fidelity.layer_times import Curve, LayerTimes, Surface, load_layer_times
from mesh.errors import UserError

LAYERS = 4


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A layer of a matrix product (10 us and 1 us a token), two norms (1 us each) and attention."""
    dense = ["layer,tokens,time_us", "product,1,11", "product,101,111", "layernorm,1,1", "embedding,1,5"]
    (tmp_path / "p__dense.csv").write_text("\n".join(dense))
    (tmp_path / "p__per_sequence.csv").write_text("layer,sequences,time_us\nlm_head,1,100\nlm_head,3,120\n")
    attention = ["prefill_chunk,kv_prefill,n_decode,kv_decode,time_us", "100,0,0,0,50", "100,100,0,0,70"]
    attention += ["0,0,1,100,3", "0,0,2,100,5", "0,0,1,200,4", "0,0,2,200,7", "100,0,2,200,999"]
    with gzip.open(tmp_path / "p__attention.csv.gz", "wt") as file:
        file.write("\n".join(attention))
    return tmp_path


@pytest.fixture
def times(folder: Path) -> LayerTimes:
    return load_layer_times(folder, "p", LAYERS)


def test_a_prompt_pays_its_kernels_once_a_layer_and_the_rest_once(times: LayerTimes):
    layer_us = 110 + 2 * 1 + 50
    assert times.iteration_s([(100, 0)], []) == pytest.approx(1e-6 * (LAYERS * layer_us + 5 + 100))


def test_decodes_attend_to_their_mean_context(times: LayerTimes):
    layer_us = 12 + 2 * 1 + 6  # two tokens; two requests of 150 tokens lie between 5 and 7 us
    assert times.iteration_s([], [100, 200]) == pytest.approx(1e-6 * (LAYERS * layer_us + 5 + 110))


def test_prompts_and_decodes_share_the_products_and_not_attention(times: LayerTimes):
    layer_us = 112 + 2 * 1 + (60 + 5)
    assert times.iteration_s([(100, 50)], [100, 100]) == pytest.approx(1e-6 * (LAYERS * layer_us + 5 + 120))


def test_curves_go_on_as_they_end():
    curve = Curve.of({1: 2.0, 2: 4.0, 4: 10.0})
    assert [curve.at(size) for size in (1, 1.5, 3, 4, 6)] == pytest.approx([2, 3, 7, 10, 16])
    assert Curve.of({1: 2.0}).at(7) == 2.0


def test_surfaces_interpolate_in_both_directions():
    surface = Surface.of({(1, 10): 1.0, (1, 20): 2.0, (3, 10): 3.0, (3, 20): 6.0})
    assert surface.at(2, 15) == pytest.approx(3.0)


def test_a_missing_file_is_named(folder: Path):
    with pytest.raises(UserError, match=r"other__dense\.csv"):
        load_layer_times(folder, "other", LAYERS)


def test_a_row_without_numbers_is_shown(folder: Path):
    (folder / "p__per_sequence.csv").write_text("layer,sequences,time_us\nlm_head,1,fast\n")
    with pytest.raises(UserError, match=r"p__per_sequence\.csv.*fast"):
        load_layer_times(folder, "p", LAYERS)
