"""Quantised checkpoints on vLLM's build for CPUs: computed as the models that they stand for, or refused in a line."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from engines.vllm_engine.starting import NEEDS
from mesh.wire.requests import Sampling
from tests.engines.contract.computers import FOLDER, Desk, Remote
from tests.engines.contract.conftest import vllm_python
from tests.engines.vllm_engine.quantised import KINDS, write_quantised

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        vllm_python() is None, reason="no vLLM here: `make vllm-env`, or name an interpreter in MESHSERVE_VLLM_PYTHON"
    ),
]
GREEDY = Sampling(max_tokens=8, seed=0, temperature=0.0)
TOKENS = [256, *b"The quick brown fox reads the name of a server, and returns it."]
MEAN_ERROR = 0.2  # of log-probabilities: activations have 8 bits, too, or products are in bfloat16


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def models(kind: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_quantised(FOLDER, kind, tmp_path_factory.mktemp(kind))


@pytest.fixture(scope="module")
def computer(kind: str, models: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Remote | str]:
    """Or what it says instead."""
    log = tmp_path_factory.mktemp("vllm") / "log"
    dtype = "bfloat16" if kind in NEEDS else "float32"
    try:
        made = Remote(str(vllm_python()), log, "0", str(models[0]), dtype)
    except RuntimeError:
        yield log.read_text(errors="replace").rpartition("UserError: ")[2].partition("\n")[0]
    else:
        yield made
        made.close()


def test_it_computes_what_it_stands_for_or_says_why_not(kind: str, models: tuple[Path, Path], computer: Remote | str):
    if isinstance(computer, str):
        assert kind in NEEDS, computer
        assert computer.startswith(f"{models[0]}: vLLM does not compute it here: ")
        assert f"its build for CPUs computes {kind} weights with {NEEDS[kind]}" in computer
        return
    runner = Desk(computer, seed=1).runner()
    [result] = runner.execute(runner.chunk("a", TOKENS, 0, GREEDY, prompt_logprobs=0))
    found = torch.tensor([entry.logprob for entry in (result.prompt_logprobs or [])[1:] if entry is not None])
    assert (found - logprobs_of(models[1])).abs().mean() < MEAN_ERROR


def logprobs_of(folder: Path) -> Any:
    """Of each of the tokens after the first, by transformers."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        rows = torch.log_softmax(model(torch.tensor([TOKENS])).logits[0, :-1], dim=-1)
    return rows.gather(1, torch.tensor(TOKENS[1:])[:, None])[:, 0]
