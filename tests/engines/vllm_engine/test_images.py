"""vLLM's answers to prompts with images are those of transformers; which images a step encodes."""

import os
import pickle
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from engines.images.cutting import cut
from engines.images.form import FAMILIES, ImageForm
from engines.vllm_engine import images as images_module
from engines.vllm_engine.images import NO_IMAGES, EncoderOutputs
from engines.vllm_engine.steps import NewRequest
from mesh.wire.images import PlacedImage, TokenSpan
from tests.engines.contract.computers import ROOT
from tests.engines.contract.conftest import vllm_python
from tests.engines.images.models import picture, placed, write_seeing_model
from tests.engines.vllm_engine.images_child import NUM_TOKENS, Prompt

# --- which images a step encodes --------------------------------------------------------------------------------------


def image_at(start: int, name: str, num_tokens: int = 10) -> PlacedImage:
    return PlacedImage(start, num_tokens, [TokenSpan(0, num_tokens)], name.encode().ljust(16), 1, 1, b"rgb")


def request(name: str, begin: int, end: int, *images: PlacedImage) -> NewRequest:
    return NewRequest(name, [0] * end, begin, [], None, images)


def names_of(*images: PlacedImage) -> set[str]:
    return {image.digest.hex() for image in images}


A, B, C = image_at(5, "a"), image_at(20, "b"), image_at(5, "c")


def test_images_are_encoded_once_and_when_a_chunk_touches_them():
    outputs = EncoderOutputs()
    assert outputs.plan([request("r", 0, 5, A, B)]).encoded == {}
    assert outputs.plan([request("r", 5, 8, A, B)]).encoded == {"r": [0]}
    assert outputs.plan([request("r", 8, 21, A, B), request("q", 0, 12, A)]).encoded == {"r": [1]}
    assert outputs.plan([request("r", 30, 40, A, B)]).encoded == {}  # their KV is there


def test_a_step_without_images_costs_nothing():
    assert EncoderOutputs().plan([request("r", 0, 5), request("q", 0, 5)]) is NO_IMAGES


def test_the_oldest_outputs_are_forgotten_and_never_those_of_the_step(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(images_module, "KEPT_TOKENS", 20)
    outputs = EncoderOutputs()
    outputs.plan([request("r", 0, 40, A, B)])
    planned = outputs.plan([request("q", 0, 40, C)])
    assert (planned.encoded, set(planned.forgotten)) == ({"q": [0]}, names_of(A))
    three = outputs.plan([request("s", 0, 60, A, B, image_at(40, "d"))])
    assert (three.encoded, set(three.forgotten)) == ({"s": [0, 2]}, names_of(C))


def test_after_a_step_that_failed_all_is_encoded_anew_and_nothing_leaks():
    outputs = EncoderOutputs()
    outputs.plan([request("r", 0, 40, A, B)])
    outputs.failed()
    planned = outputs.plan([request("r", 0, 20, A, B)])
    assert (planned.encoded, set(planned.forgotten)) == ({"r": [0]}, names_of(B))
    assert outputs.plan([request("r", 20, 40, A, B)]).encoded == {"r": [1]}


# --- real models ------------------------------------------------------------------------------------------------------


def prompt_of(folder: Path, form: ImageForm, *parts: str | bytes) -> Prompt:
    """Texts are of bytes; pictures are those of files."""
    tokens, images = [256], []
    for part in parts:
        if isinstance(part, str):
            tokens += part.encode()
            continue
        digest = bytes(15) + bytes([len(images)]) + part[-16:]
        shown, image = placed(folder, cut(part, form, 10**6), form, len(tokens), digest)
        tokens += shown
        images.append(image)
    return tokens, tuple(images)


def by_transformers(folder: Path, prompts: Sequence[Prompt], form: ImageForm) -> list[list[int]]:
    from transformers import AutoModelForImageTextToText

    model = AutoModelForImageTextToText.from_pretrained(folder).eval()
    answers = []
    for tokens, images in prompts:
        seen = {}
        if images:
            pixels = torch.cat([torch.from_numpy(images_module.numbers_of(image, form)) for image in images])
            seen = {"pixel_values": pixels[None]}
        made = model.generate(
            input_ids=torch.tensor([tokens]), attention_mask=torch.ones(1, len(tokens), dtype=torch.int64),
            max_new_tokens=NUM_TOKENS, min_new_tokens=NUM_TOKENS, do_sample=False, eos_token_id=None, **seen,
        )  # fmt: skip
        answers.append(made[0, len(tokens) :].tolist())
    return answers


@pytest.mark.timeout(300)
@pytest.mark.skipif(
    vllm_python() is None, reason="no vLLM here: `make vllm-env`, or name an interpreter in MESHSERVE_VLLM_PYTHON"
)
@pytest.mark.parametrize("family", FAMILIES)
def test_answers_are_those_of_transformers(tmp_path: Path, family: str):
    folder = write_seeing_model(tmp_path / "model", family)
    form = ImageForm.load(folder)
    assert form is not None
    one, other = picture(60, 44, seed=1), picture(60, 44, seed=2)
    prompts = [
        prompt_of(folder, form, "What is in ", one, "?"),
        prompt_of(folder, form, "What is in ", other, "?"),
        prompt_of(folder, form, "Only words."),
        prompt_of(folder, form, one, " or ", other, ", that is the question"),
        prompt_of(folder, form, picture(20, 90), one, one),
    ]
    expected = by_transformers(folder, prompts, form)
    assert expected[0] != expected[1], "the pictures must matter"
    done = subprocess.run(
        [str(vllm_python()), "-m", "tests.engines.vllm_engine.images_child", str(folder)],
        input=pickle.dumps(prompts), capture_output=True, cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    assert pickle.loads(done.stdout) == dict.fromkeys(("whole", "in chunks", "gone on"), expected)
