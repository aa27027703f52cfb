"""Batches whose rows have different adapters, against PEFT with transformers in float32."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from engines.adapters.config import PROJECTIONS
from engines.adapters.folder import AdapterFolder
from engines.adapters.sites import site_name
from engines.models.errors import ModelError
from engines.models.files.model_config import ModelConfig
from engines.scheduling.batch import Chunk
from tests.engines.adapters.writing import write_adapter

pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # of PEFT, by transformers

LENGTHS = (70, 3, 41, 9, 25)
COUNT = 6


def prompt(number: int) -> list[int]:
    generator = torch.Generator().manual_seed(number)
    return torch.randint(3, 199, (LENGTHS[number],), generator=generator).tolist()


def with_adapter(chunk: Chunk, key: str) -> Chunk:
    return msgspec.structs.replace(chunk, adapter=key)


def sites(model: Any) -> dict[str, set[int]]:
    """Layers of a model by the module that adapters may change there; experts are `test_experts`'."""
    found: dict[str, set[int]] = {}
    for name, module in model.named_modules():
        site, leaf = site_name(name), name.rpartition(".")[2]
        if site is not None and isinstance(module, torch.nn.Linear) and leaf in PROJECTIONS:
            _, layer, target = site.split(".", 2)
            found.setdefault(target, set()).add(int(layer))
    return found


@pytest.fixture(scope="module")
def adapters(variant: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Of all kinds, by key: all projections, one, one of one layer, rslora with a larger rank."""
    model, folder, there = ModelConfig.load(variant[0]), tmp_path_factory.mktemp("adapters"), sites(variant[1])
    targets = [target for target, layers in there.items() if len(layers) == model.num_layers]
    return {
        "all": write_adapter(folder / "all", model, targets=targets, seed=1),
        "attention": write_adapter(folder / "attention", model, targets=targets[:1], seed=2),
        "one": write_adapter(folder / "one", model, 1, 3, targets[-1:], [1], seed=3),
        "rs": write_adapter(folder / "rs", model, 16, 4, targets[1::2], seed=4, use_rslora=True),
    }


def expected(model: Any, folder: Path | None, tokens: list[int]) -> list[int]:
    """What PEFT answers, greedily."""
    import peft

    adapted = model if folder is None else peft.PeftModel.from_pretrained(model, folder).eval()
    ids = torch.tensor([tokens])
    out = adapted.generate(
        input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=COUNT, do_sample=False, eos_token_id=None
    )
    if folder is not None:
        adapted.unload()
    answer: list[int] = out[0, len(tokens) :].tolist()
    return answer


def test_each_row_of_a_batch_has_its_own_adapter(variant, adapters, make_runner, greedy):
    folder, model = variant
    runner, keys = make_runner(folder), ["all", "", "attention", "rs", "one"]
    for key, path in adapters.items():
        runner.executor.add_adapter("model", key, AdapterFolder.read(path))
    tokens = [prompt(number) for number in range(len(keys))]
    computed = [0] * len(keys)
    for step in range(COUNT + 2):
        chunks = []
        for number, key in enumerate(keys):
            if number > step and step < 2:  # those that come later are prompts beside decodes
                continue
            chunk = runner.chunk(str(number), tokens[number], computed[number], greedy(), LENGTHS[number])
            chunks.append((number, with_adapter(chunk, key)))
        for (number, _), result in zip(chunks, runner.execute(*[chunk for _, chunk in chunks]), strict=True):
            computed[number] = len(tokens[number])
            tokens[number].append(result.token)
    for number, key in enumerate(keys):
        answer = tokens[number][LENGTHS[number] :][:COUNT]
        assert answer == expected(model, adapters.get(key), prompt(number)), key


def test_logprobs_of_a_prompt_are_those_of_peft(variant, adapters, make_runner, greedy):
    import peft

    folder, model = variant
    runner, tokens = make_runner(folder), prompt(0)
    runner.executor.add_adapter("model", "rs", AdapterFolder.read(adapters["rs"]))
    chunk = with_adapter(runner.chunk("a", tokens, 0, greedy(), prompt_logprobs=0), "rs")
    [result] = runner.execute(chunk)
    adapted = peft.PeftModel.from_pretrained(model, adapters["rs"]).eval()
    with torch.no_grad():
        logprobs = torch.log_softmax(adapted(torch.tensor([tokens])).logits[0], dim=-1)
    adapted.unload()
    for position, entry in enumerate(result.prompt_logprobs[1:]):
        assert entry.logprob == pytest.approx(logprobs[position, entry.token].item(), abs=4e-4)


def test_an_adapter_that_is_dropped_leaves_nothing_behind(tiny, tmp_path, make_runner, greedy):
    runner, tokens = make_runner(tiny), prompt(0)
    plain = runner.generate("plain", tokens, greedy(), 4)
    folder = AdapterFolder.read(write_adapter(tmp_path / "a", ModelConfig.load(tiny)))
    runner.executor.add_adapter("model", "a", folder)
    [result] = runner.execute(with_adapter(runner.chunk("a", tokens, 0, greedy()), "a"))
    runner.executor.remove_adapter("model", "a")
    assert runner.generate("again", tokens, greedy(), 4) == plain
    assert result.token is not None


def test_a_layer_that_the_model_has_not_is_named(tiny, tmp_path, make_runner):
    config = ModelConfig.load(tiny)
    folder = AdapterFolder.read(write_adapter(tmp_path / "a", config, layers=[config.num_layers]))
    with pytest.raises(ModelError, match=r"has a layer 3, and the base has 3 layers"):
        make_runner(tiny).executor.add_adapter("model", "a", folder)
