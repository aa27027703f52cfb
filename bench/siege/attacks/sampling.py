"""Parameters of sampling at each edge of what numbers can be."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from bench.siege.answers import LIKE_ANYONE, TURNED_AWAY, Answer
from bench.siege.attack import Family, attack, shots
from bench.siege.ground import COMPLETIONS, Ground

# As text: JSON's writers make none of these.
EDGES: Final = (
    "1e-323", "1e-40", "1.5e-45", "-0.0", "1e308", "1e309", "-1e309", "NaN", "Infinity", "-Infinity",
    "9223372036854775807", "9223372036854775808", "-9223372036854775809", "1" + "0" * 400, "0.1e-400",
    "true", '"1"', "[]", "{}", "1e-7", "2.0000000000000004",
)  # fmt: skip
FLOATS: Final = ("temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty")
INTEGERS: Final = ("max_tokens", "top_k", "seed", "min_tokens", "n", "logprobs")


async def _edges(ground: Ground, name: str) -> list[Answer]:
    """One parameter at every edge."""
    usual = json.dumps(ground.completion({"temperature": 1.0, "max_tokens": 2}))
    fields = json.loads(usual)
    fields.pop(name, None)
    head = json.dumps(fields)[:-1]
    return [await ground.post(COMPLETIONS, f'{head}, "{name}": {edge}}}'.encode()) for edge in EDGES]


def _add_edges(name: str) -> None:
    @attack(f"edges-of-{name}", Family.SAMPLING, fast=name in ("temperature", "repetition_penalty"))
    async def edges(ground: Ground) -> Sequence[Answer]:
        return await _edges(ground, name)


for _name in (*FLOATS, *INTEGERS):
    _add_edges(_name)

ROWS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "repetition-penalty-subnormal": ("", {"repetition_penalty": 1e-40, "max_tokens": 16}),
    "repetition-penalty-tiny-sampled": ("", {"repetition_penalty": 1e-38, "temperature": 0.0, "max_tokens": 16}),
    "temperature-tiny": ("", {"temperature": 1e-40, "max_tokens": 16}),
    "top-p-tiny": ("", {"top_p": 1e-45, "temperature": 2.0, "max_tokens": 16}),
    "min-p-one": ("", {"min_p": 1.0, "top_k": 1, "top_p": 1e-9, "max_tokens": 16}),
    "penalties-all": (
        "",
        {
            "presence_penalty": -2,
            "frequency_penalty": -2,
            "repetition_penalty": 1e-3,
            "temperature": 1e-3,
            "max_tokens": 32,
        },
    ),
    "logit-bias-all-banned": ("", {"logit_bias": {str(n): -100 for n in range(258)}, "max_tokens": 8}),
    "logit-bias-out-of-range": ("vllm-project/vllm#16529, #6866", {"logit_bias": {"191222": -100, "99999999": 5}}),
    "logit-bias-negative-id": ("", {"logit_bias": {"-1": 5}}),
    "logit-bias-many": ("", {"logit_bias": {str(n): 1 for n in range(200_000)}}),
    "logit-bias-odd-keys": ("", {"logit_bias": {"": 1, "x": 1, "1e3": 1, "9" * 5000: 1, "٣": 1}}),
    "stop-tokens-out-of-range": ("", {"stop_token_ids": [-1, 2**63, 10**30]}),
    "stop-tokens-many": ("", {"stop_token_ids": [1] * 400_000}),
    "min-tokens-and-stops": (
        "vllm-project/vllm#4360",
        {"min_tokens": 8, "max_tokens": 8, "stop_token_ids": list(range(256))},
    ),
    "best-of-huge": ("CVE-2024-8939", {"best_of": 10**9, "n": 1}),
    "n-huge": ("GHSA-3mwp-wvh9-7528", {"n": 10**12}),
    "echo-no-tokens": ("vllm-project/vllm#6521", {"echo": True, "logprobs": 1, "max_tokens": 0}),
    "echo-logprobs": ("vllm-project/vllm#5890", {"echo": True, "logprobs": 20, "prompt": "a " * 500}),
    "logprobs-negative": ("vllm-project/vllm#16836", {"logprobs": -1}),
}
shots(Family.SAMPLING, ROWS, fast=("repetition-penalty-subnormal", "n-huge", "logit-bias-out-of-range"))


@attack("n-times-logprobs", Family.SAMPLING, right=LIKE_ANYONE, load=32)
async def n_times_logprobs(ground: Ground) -> Sequence[Answer]:
    """A whole answer of 128 choices with 20 alternatives for each token."""
    return [await ground.complete({"n": 128, "logprobs": 20, "max_tokens": 64, "echo": True, "ignore_eos": True})]


@attack("parameters-unknown", Family.SAMPLING, "GHSA-69j4-grxj-j64p, GHSA-mrw7-hf4f-83pf, CVE-2026-21869")
async def parameters_unknown(ground: Ground) -> Sequence[Answer]:
    """What crashed peers by fields that this mesh does not have."""
    return await ground.all_of(
        [
            {"chat_template_kwargs": {"tokenize": True, "chat_template": "{{ 1 }}"}},
            {"chat_template": "{% for i in range(10**9) %}{{ i }}{% endfor %}"},
            {"prompt_embeds": "gASVAAAAAAAAAA==" * 4000},
            {"n_discard": -1, "kv_transfer_params": {"tp_size": 10**12}, "prompt_logprobs": -1},
            {"truncate_prompt_tokens": -(2**40), "guided_regex": "foo**", "use_beam_search": True},
        ]
    )


@attack("fields-many", Family.SAMPLING, right=TURNED_AWAY | LIKE_ANYONE)
async def fields_many(ground: Ground) -> Sequence[Answer]:
    """Names that nobody knows, and the same name again and again."""
    unknown = {f"field-{n}": n for n in range(150_000)}
    twice = json.dumps(ground.completion({}))[:-1] + ', "n": 128' * 200_000 + ', "n": 1}'
    return [await ground.complete(unknown), await ground.post(COMPLETIONS, twice.encode())]


@attack("tools-malformed", Family.SAMPLING, "vllm-project/vllm GHSA-vrq3-r879-7m65, GHSA-w6q7-j642-7c25", fast=True)
async def tools_malformed(ground: Ground) -> Sequence[Answer]:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "something", "pattern": "((a+)+"}}}
    return [
        await ground.chat({"tools": [tool]}),
        await ground.chat({"tools": tool}),
        await ground.chat({"functions": [1]}),
    ]
