"""What ``adapter_config.json`` may say, and what is refused by name."""

import json
from pathlib import Path
from typing import Any

import pytest

from engines.adapters.config import CONFIG_FILE, AdapterConfig
from engines.models.errors import ModelError

GOOD = {"peft_type": "LORA", "r": 16, "lora_alpha": 32, "bias": "none", "target_modules": ["q_proj"]}


def load(folder: Path, **changes: Any) -> AdapterConfig:
    (folder / CONFIG_FILE).write_text(json.dumps({**GOOD, **changes}))
    return AdapterConfig.load(folder)


@pytest.mark.parametrize(
    ("changes", "scaling"),
    [({}, 2.0), ({"use_rslora": True}, 8.0), ({"r": 4, "lora_alpha": 2}, 0.5), ({"target_modules": "all-linear"}, 2.0)],
)
def test_the_scaling_is_as_peft_has_it(tmp_path: Path, changes: dict[str, Any], scaling: float):
    config = load(tmp_path, **changes)
    assert config.scaling_of("layers.0.self_attn.q_proj", config.rank) == scaling


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"peft_type": "IA3"}, 'peft_type = "IA3": only "LORA" is served'),
        ({"use_dora": True}, "use_dora = true: DoRA adapters are not served"),
        ({"modules_to_save": ["lm_head"]}, 'modules_to_save = ["lm_head"]'),
        ({"bias": "all"}, 'bias = "all"'),
        ({"lora_bias": True}, "lora_bias = true"),
        ({"rank_pattern": {"(a+)+": 4}}, 'rank_pattern: "(a+)+" is not served; name the modules'),
        ({"rank_pattern": {"q": 0}}, 'rank_pattern: "q" = 0: use a number'),
        ({"alpha_pattern": ["q"]}, "alpha_pattern: at most 256 names of modules"),
        ({"target_parameters": ["mlp.gate.weight"]}, 'target_parameters: "mlp.gate.weight" is not served; use mlp.exp'),
        ({"trainable_token_indices": [1]}, "trained embeddings"),
        ({"init_lora_weights": "pissa_niter_4"}, "changes the model's own weights"),
        ({"target_modules": ["embed_tokens"]}, 'target_modules: "embed_tokens" is not served; use some of q_proj'),
        ({"target_modules": [3]}, "target_modules: 3"),
        ({"r": 0}, "r = 0: use a rank from 1 to 512"),
        ({"r": 10**9}, "use a rank from 1 to 512"),
        ({"r": True}, "r = true"),
        ({"r": None}, "r = null"),
        ({"lora_alpha": "x"}, 'lora_alpha = "x": use a number'),
        ({"lora_alpha": float("nan")}, "lora_alpha = NaN"),
    ],
)
def test_what_would_change_an_answer_is_refused_by_name(tmp_path: Path, changes: dict[str, Any], words: str):
    with pytest.raises(ModelError) as refused:
        load(tmp_path, **changes)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100_000, '"x"', "\0"])
def test_what_is_no_config_is_said_so(tmp_path: Path, text: str):
    (tmp_path / CONFIG_FILE).write_text(text)
    with pytest.raises(ModelError, match="is no JSON"):
        AdapterConfig.load(tmp_path)


def test_a_large_file_is_not_read(tmp_path: Path):
    (tmp_path / CONFIG_FILE).write_text(" " * (2**20 + 1))
    with pytest.raises(ModelError, match="is larger than"):
        AdapterConfig.load(tmp_path)


def test_a_folder_without_it_is_no_adapter(tmp_path: Path):
    with pytest.raises(ModelError, match="no LoRA adapter of PEFT's form"):
        AdapterConfig.load(tmp_path)
