"""How large places for adapters are, how many an engine has, and who has none."""

from collections.abc import Callable
from pathlib import Path

import pytest

from engines.adapters.config import LLAMA_PROJECTIONS
from engines.adapters.folder import AdapterFolder
from engines.adapters.places import (
    MOST_PLACES,
    AdapterSizes,
    Places,
    bytes_of_rank,
    is_of_experts,
    projections_of,
    rank_of,
    why_no_place,
)
from engines.models.files.model_config import ModelConfig
from mesh.topology.parse import load
from mesh.topology.schema import Topology
from mesh.wire.adapters import LoraAdapter
from tests.engines.adapters.writing import write_adapter
from tests.engines.contract.computers import FOLDER

MODEL = ModelConfig.load(FOLDER)
VLLM = 'backend = "vllm"\nblock_size = 32\n'
ADDED = '[adapters]\nfolder = "."\n'
Make = Callable[..., Topology]


@pytest.fixture
def topology(tmp_path: Path) -> Make:
    """With adapters of some ranks: those of the file."""

    def make(*ranks: int, engine: str = VLLM, more: str = "") -> Topology:
        text = f'[services.chat]\nmodel = "{FOLDER}"\n[engines.e]\nservices = ["chat"]\n{engine}{more}'
        for rank in ranks:
            write_adapter(tmp_path / f"r{rank}", MODEL, rank)
            text += f'[services.s{rank}]\nbase = "chat"\nadapter = "r{rank}"\n'
        (tmp_path / "t.toml").write_text(text)
        return load(tmp_path / "t.toml")

    return make


@pytest.mark.parametrize(
    ("ranks", "engine", "more", "rank"),
    [
        ((), VLLM, "", 0),
        ((3,), VLLM, "", 8),
        ((3, 20), VLLM, "", 32),
        ((3,), VLLM, ADDED, 16),
        ((), VLLM, ADDED, 16),
        ((3,), VLLM + "options = { max_lora_rank = 64 }\n", "", 64),
        ((), VLLM + "options = { max_lora_rank = 64 }\n", "", 0),
    ],
)
def test_places_are_as_large_as_the_largest_adapter(topology: Make, ranks, engine: str, more: str, rank: int):
    made = topology(*ranks, engine=engine, more=more)
    assert rank_of(made, made.engines[0]) == rank


def test_the_largest_rank_of_a_pattern_counts(topology: Make, tmp_path: Path):
    made = topology(3)
    write_adapter(tmp_path / "r3", MODEL, 3, rank_pattern={"q_proj": 30})
    assert rank_of(made, made.engines[0]) == 32


def test_places_are_for_all_projections_but_those_of_experts():
    assert projections_of(MODEL) == sorted(LLAMA_PROJECTIONS)
    names = {"mlp.experts": True, "mlp.experts.base_layer": True, "mlp.experts.3.up_proj": True, "mlp.up_proj": False}
    assert {name: is_of_experts(name) for name in names} == names


def test_a_place_is_what_an_adapter_of_all_projections_takes(tmp_path: Path):
    folder = AdapterFolder.read(write_adapter(tmp_path / "a", MODEL, 8))
    assert bytes_of_rank(MODEL, "float32", 8) == 4 * folder.num_weights


@pytest.mark.parametrize(("times", "count"), [(0.9, 0), (1, 1), (3.5, 3), (1000, MOST_PLACES)])
def test_memory_has_as_many_places_as_fit(times: float, count: int):
    memory = int(times * bytes_of_rank(MODEL, "float32", 16))
    places = Places.fitting(memory, MODEL, "float32", 16)
    assert (0 if places is None else places.count) == count
    if places is not None:
        assert memory // places.place_bytes >= count, "an engine that counts bytes would use fewer"
        assert (count + 1) * places.place_bytes > memory, "an engine that counts bytes would use more"


def test_any_adapter_takes_a_whole_place():
    sizes = AdapterSizes("float16", 1000)
    assert [sizes.of(LoraAdapter("", "", "", num_weights)) for num_weights in (10, 500, 600)] == [1000, 1000, 1200]


@pytest.mark.parametrize(
    ("rank", "engine", "words"),
    [
        (8, VLLM, None),
        (17, VLLM, "a: has rank 17, and engines.e takes up to 16; give it options = { max_lora_rank = 32 }"),
        (17, VLLM + "options = { max_lora_rank = 32 }\n", None),
        (8, VLLM + 'adapter_memory = "1KiB"\n', "MiB, and adapter_memory of engines.e is 0.00 MiB; give it more"),
        (17, "", None),
    ],
)
def test_whoever_has_no_place_is_named(topology: Make, tmp_path: Path, rank: int, engine: str, words: str | None):
    folder = AdapterFolder.read(write_adapter(tmp_path / "a", MODEL, rank))
    why = why_no_place(topology(engine=engine, more=ADDED), "chat", folder, MODEL)
    assert why is None if words is None else words in (why or "")
