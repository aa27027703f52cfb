"""Which backends run a model, for those who named one that does not."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from engines.models.backends import backends_of, check_some_run, check_torch_runs
from engines.models.errors import ModelError
from engines.models.files.model_config import ModelConfig
from tests.engines.models.files.test_model_config import LLAMA


def model(folder: Path, **changes: Any) -> tuple[Path, ModelConfig]:
    (folder / "config.json").write_text(json.dumps(LLAMA | {"architectures": ["LlamaForCausalLM"]} | changes))
    return folder, ModelConfig.load(folder)


def test_each_backend_has_models_of_its_own(tmp_path: Path):
    assert backends_of(*model(tmp_path)) == ["torch", "transformers", "vllm"]
    gpt2 = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]}
    assert backends_of(*model(tmp_path, **gpt2)) == ["transformers", "vllm"]
    assert backends_of(*model(tmp_path, quantization_config={"quant_method": "fp8"})) == ["vllm"]
    assert backends_of(*model(tmp_path, model_type="mamba", architectures=["MambaForCausalLM"])) == ["transformers"]


def test_who_names_the_torch_engine_in_vain_is_told_of_the_others_in_one_line(tmp_path: Path):
    folder, config = model(tmp_path, model_type="gpt2", architectures=["GPT2LMHeadModel"])
    with pytest.raises(
        ModelError, match=re.escape(f"{folder}: model_type 'gpt2' is not one of backend \"torch\"")
    ) as caught:
        check_torch_runs(folder, config)
    assert str(caught.value).endswith('; backend = "transformers" and backend = "vllm" would run it')
    assert "\n" not in str(caught.value)
    check_some_run(folder, config)


def test_a_model_that_nobody_runs_is_refused(tmp_path: Path):
    folder, config = model(tmp_path, model_type="abacus", architectures=["AbacusForCounting"])
    with pytest.raises(ModelError, match="no backend runs it"):
        check_some_run(folder, config)
