"""Answers of a trained model are the same with drafts, in batches that mix all kinds of requests."""

import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from llguidance import LLMatcher

from engines.costs.learning import LearntCost
from engines.costs.step_cost import StepCost
from engines.grammars import accounts, masks
from engines.speculation.model_speculation import ModelSpeculation
from engines.speculation.speculation import Speculation
from mesh.wire.requests import Sampling
from mesh.wire.status import DecodeCost, PrefillCost
from tests.engines.contract.computers import FOLDER
from tests.engines.torch_engine.test_shared_memory import Engine

TEXT = [*b"the cat sat on the mat, the cat sat on the mat, the cat sat on the "]
LISTS = LLMatcher.grammar_from_regex(r"(the (cat|dog|mat), ){99}")
FIELDS = LLMatcher.grammar_from_regex(r'(\{"name": "(ab|cd)", "size": [0-9]\}, ){99}')
SAMPLINGS = {
    "greedy": Sampling(max_tokens=1, seed=1, temperature=0.0),
    "sampled": Sampling(max_tokens=1, seed=2, temperature=0.5),
    "penalised": Sampling(max_tokens=1, seed=3, temperature=0.0, repetition_penalty=1.2, presence_penalty=0.3),
    "told": Sampling(max_tokens=1, seed=4, temperature=0.0, logprobs=2),
}
STRUCTURED = {
    "list": Sampling(max_tokens=1, seed=5, temperature=0.0, grammar=LISTS),
    "sampled list": Sampling(max_tokens=1, seed=6, temperature=0.8, grammar=LISTS),
    "fields": Sampling(max_tokens=1, seed=7, temperature=0.8, grammar=FIELDS),
    "told list": Sampling(max_tokens=1, seed=6, temperature=0.8, grammar=LISTS, logprobs=1),
}


@pytest.fixture(autouse=True)
def _costs_as_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is held up now and then learns that no draft is worth its time, nor its masks."""
    monkeypatch.setattr(LearntCost, "observe", lambda *_: None)
    monkeypatch.setattr(accounts, "CHEAP_S", 1.0)


def answers(
    most: int, samplings: Mapping[str, Sampling] = SAMPLINGS, small: Path | None = None
) -> tuple[dict[str, list[int]], Engine]:
    """``small``: the folder of a draft model; None: drafts are looked up. No drafts with 0."""
    models = {"one": (FOLDER, "float32")} | ({} if small is None else {"small": (small, "float32")})
    engine = Engine(200, **models)
    services = engine.core._services
    services["one"].speculation = Speculation(most) if most else None
    if small is not None:
        services["small"].cost = LearntCost(StepCost(PrefillCost(0.0, 1e-5), DecodeCost(1e-5, 1e-5)))
        services["one"].speculation = ModelSpeculation(most, services["small"].as_draft_model)
    for name, sampling in samplings.items():
        engine.submit(name, "one", [*name.encode(), *TEXT], sampling)
    return engine.run(), engine


def test_answers_are_those_without_drafts():
    without, _ = answers(0)
    with_drafts, engine = answers(7)
    assert with_drafts == without
    counts = engine.core._services["one"].speculation.counts
    assert 0 < counts.num_accepted <= counts.num_drafted


def first_layers(folder: Path, num_layers: int) -> Path:
    """The model with fewer layers, which thinks much alike."""
    for name in ("model.safetensors", "tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        (folder / name).symlink_to(FOLDER / name)
    config = json.loads((FOLDER / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": num_layers}))
    return folder


@pytest.mark.parametrize("num_layers", [3, 4])
def test_answers_are_those_without_a_draft_model(tmp_path: Path, num_layers: int):
    without, _ = answers(0)
    with_drafts, engine = answers(5, small=first_layers(tmp_path, num_layers))
    assert with_drafts == without
    counts = engine.core._services["one"].speculation.counts
    if num_layers == 4:  # the same model draws the same tokens, with penalties and at any temperature
        assert counts.num_accepted == counts.num_drafted > 40
    else:
        assert 0.3 * counts.num_drafted < counts.num_accepted < counts.num_drafted
    assert engine.core._services["small"].pool.num_held == 0


def test_structured_answers_are_those_without_drafts(tmp_path: Path):
    """Drafts that the grammar forbids are cut, and others are checked under the masks that come after them."""
    without, _ = answers(0, STRUCTURED)
    looked_up, engine = answers(7, STRUCTURED)
    written, with_model = answers(5, STRUCTURED, first_layers(tmp_path, 4))
    assert looked_up == written == without
    assert all(re.match(rb'the (cat|dog|mat), |\{"name": "', bytes(tokens)) for tokens in without.values())
    for one in (engine, with_model):
        assert one.core._services["one"].speculation.counts.num_accepted > 0


def test_what_a_grammar_forces_is_drafted_and_right(monkeypatch: pytest.MonkeyPatch):
    """Little of it came before, so few other drafts are found."""
    monkeypatch.setattr(masks, "FORCED_S", masks.WALL_S)
    monkeypatch.setattr(masks, "FORCED_SHARE", 1e6)
    fields = dict.fromkeys("fg", STRUCTURED["fields"])
    without, _ = answers(0, fields)
    drafted, engine = answers(7, fields)
    assert drafted == without
    counts = engine.core._services["one"].speculation.counts
    assert counts.num_accepted == counts.num_drafted > 40
