"""What vLLM raises when it starts comes out as one line, with what would help where that is known."""

import pytest

from engines.vllm_engine.starting import in_a_line, said_in_a_line
from mesh.errors import UserError

PYDANTIC = """1 validation error for VllmConfig
  Value error, torch.float32 is not supported for quantization method auto_gptq. [type=value_error, input_value=ArgsKwa]
    For further information visit https://errors.pydantic.dev/2.14/v/value_error"""
FIELD = """2 validation errors for ModelConfig
max_logprobs
  Input should be a valid integer [type=int_type, input_value='x', input_type=str]
seed
  Input should be less [type=int_type]"""
NO_KERNEL = "'_OpNamespace' '_C' object has no attribute 'cpu_gemm_wna16'"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ValueError(PYDANTIC), "ValueError: torch.float32 is not supported for quantization method auto_gptq."),
        (ValueError(FIELD), "ValueError: Input should be a valid integer"),
        (RuntimeError("\n  one\ntwo"), "RuntimeError: one"),
        (KeyError(), "KeyError: it does not say why"),
    ],
)
def test_what_is_wrong_is_one_line(error: Exception, words: str):
    assert in_a_line(error) == words


@pytest.mark.parametrize(
    ("error", "kind", "device", "has_advice"),
    [
        (AttributeError(NO_KERNEL), "gptq", "cpu", True),
        (AttributeError(NO_KERNEL), "gptq", "cuda:0", False),
        (AttributeError(NO_KERNEL), None, "cpu", False),
        (ValueError(PYDANTIC), "gptq", "cpu", False),
    ],
)
def test_processors_that_would_compute_the_weights_are_named(
    error: Exception, kind: str | None, device: str, has_advice: bool
):
    line = r"^/models/a: vLLM does not compute it here: \w+Error: "
    with pytest.raises(UserError, match=line) as caught, said_in_a_line("/models/a", kind, device):
        raise error
    assert ("computes gptq weights with AVX-512" in str(caught.value)) == has_advice
    assert "\n" not in str(caught.value)


def test_what_is_a_line_already_stays_as_it_is():
    mine = UserError("/models/a: vLLM keeps 2 kinds of KV for it")
    with pytest.raises(UserError) as caught, said_in_a_line("/models/a", None, "cpu"):
        raise mine
    assert caught.value is mine
