"""Adapters of experts, in both forms in which PEFT writes them, against PEFT with transformers in float32."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from engines.adapters.config import CONFIG_FILE
from engines.adapters.folder import WEIGHTS_FILE, AdapterFolder
from engines.models.errors import ModelError
from engines.models.files.model_config import ModelConfig
from tests.engines.adapters.writing import write_adapter

pytestmark = [
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning"),  # of PEFT, by transformers
    pytest.mark.filterwarnings("ignore:The following (rank|alpha)_pattern keys:RuntimeWarning"),
    pytest.mark.parametrize("variant", ["qwen2-moe", "qwen3-moe", "mixtral"], indirect=True),
]
STACKED = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]
KINDS = ["stacked", "up", "down", "patterns", "apart"]


@pytest.fixture(scope="module")
def adapters(variant: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """By kind: both parameters of all experts, one of them, ranks that differ, and each expert's own modules."""
    folder, config = tmp_path_factory.mktemp("adapters"), ModelConfig.load(variant[0])
    modules = config.architecture.modules
    names = [*modules.expert_up, modules.expert_down]
    return {
        "stacked": by_peft(variant[1], folder / "stacked", target_modules=["q_proj"], target_parameters=STACKED),
        "up": by_peft(variant[1], folder / "up", target_modules=[], target_parameters=STACKED[:1]),
        "down": by_peft(variant[1], folder / "down", target_modules=[], target_parameters=STACKED[1:], use_rslora=True),
        "patterns": by_peft(
            variant[1],
            folder / "patterns",
            target_modules=["v_proj", "q_proj"],
            target_parameters=STACKED,
            rank_pattern={"layers.0.self_attn.q_proj": 2, ".*\\.gate_up_proj": 5},
            alpha_pattern={"q_proj": 3, "experts.down_proj": 20},
        ),
        "apart": write_adapter(
            folder / "apart",
            config,
            targets=[*(f"{modules.experts}.{name}" for name in names), "k_proj"],
            seed=5,
            scale=0.2,
            target_modules=[*names, "k_proj"],
        ),
    }


def by_peft(model: Any, folder: Path, **config: Any) -> Path:
    """Random factors, written by PEFT itself."""
    import peft

    adapted = peft.get_peft_model(deepcopy(model), peft.LoraConfig(r=3, lora_alpha=6, **config))
    torch.manual_seed(len(folder.name))
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_" in name:
                parameter.normal_(0, 0.2)
    adapted.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("kind", KINDS)
def test_logprobs_of_a_prompt_are_those_of_peft(variant, adapters, make_runner, greedy, kind):
    import peft

    folder, model = variant
    if kind == "apart" and model.config.model_type == "qwen2_moe":
        pytest.skip("PEFT leaves these out with transformers 5")
    tokens = torch.randint(3, 199, (40,), generator=torch.Generator().manual_seed(3)).tolist()
    with torch.no_grad():
        plain = torch.log_softmax(model(torch.tensor([tokens])).logits[0], dim=-1)
        adapted = peft.PeftModel.from_pretrained(deepcopy(model), adapters[kind]).eval()
        logprobs = torch.log_softmax(adapted(torch.tensor([tokens])).logits[0], dim=-1)
    assert (plain - logprobs).abs().max() > 0.1
    runner = make_runner(folder)
    runner.executor.add_adapter("model", kind, AdapterFolder.read(adapters[kind]))
    others = [runner.chunk(name, tokens[:length], 0, greedy()) for name, length in (("b", 9), ("c", 12))]
    chunk = runner.chunk("a", tokens, 0, greedy(), prompt_logprobs=0)
    [_, result, _] = runner.execute(others[0], msgspec.structs.replace(chunk, adapter=kind), others[1])
    for position, entry in enumerate(result.prompt_logprobs[1:]):
        assert entry.logprob == pytest.approx(logprobs[position, entry.token].item(), abs=3e-4)


def test_one_for_other_experts_does_not_fit(variant, adapters):
    from dataclasses import replace

    model = ModelConfig.load(variant[0])
    folder = AdapterFolder.read(adapters["stacked"])
    folder.check_fits(model, "chat")
    with pytest.raises(ModelError, match=r"experts\S* has 12 rows, and 6 experts of chat with rank 3 have 18"):
        folder.check_fits(replace(model, experts=replace(model.experts, num_experts=6)), "chat")
    apart, few = AdapterFolder.read(adapters["apart"]), replace(model, experts=replace(model.experts, num_experts=3))
    with pytest.raises(ModelError, match=r"experts\.3\.\w+ is no projection of chat"):
        apart.check_fits(few, "chat")


def test_one_of_other_sizes_or_a_dense_model_does_not_fit(variant, adapters):
    from dataclasses import replace

    model, folder = ModelConfig.load(variant[0]), AdapterFolder.read(adapters["up"])
    with pytest.raises(ModelError, match=r"experts is \[\d+, 96\], and those of chat are \[80, 96\] or \[96, 40\]"):
        folder.check_fits(replace(model, experts=replace(model.experts, intermediate_size=40)), "chat")
    with pytest.raises(ModelError, match="experts is of experts, and chat has none there"):
        folder.check_fits(replace(model, experts=None), "chat")


def test_the_inner_of_two_wrappers_may_be_either(variant, adapters, tmp_path):
    """PEFT nests parameters in the order in which the model has them, which PEFT itself may change."""
    from safetensors.torch import load_file, save_file

    model, file = ModelConfig.load(variant[0]), adapters["stacked"] / WEIGHTS_FILE
    turned = {
        name.replace(".base_layer", "") if ".base_layer" in name else name.replace("experts.", "experts.base_layer."): t
        for name, t in load_file(file).items()
    }
    save_file(turned, tmp_path / WEIGHTS_FILE)
    (tmp_path / CONFIG_FILE).write_text((adapters["stacked"] / CONFIG_FILE).read_text())
    sites = [AdapterFolder.read(folder).sites(model) for folder in (adapters["stacked"], tmp_path)]
    sizes = [{site: (one.num_out, one.num_in, one.part) for site, one in found.items()} for found in sites]
    assert sizes[0] == sizes[1]
