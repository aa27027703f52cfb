"""Parameters of sampling at each edge of what numbers can be, and stop strings that nearly match all the time."""

import json
from collections.abc import Iterator
from functools import partial

from bench.harm.harm import Harm
from bench.harm.siege.attack import Requests, complete, shoot
from bench.harm.siege.ground import COMPLETIONS, Ground

# As text: JSON's writers make none of these.
EDGES = (
    "1e-323", "1e-40", "1.5e-45", "-0.0", "1e308", "1e309", "-1e309", "NaN", "Infinity", "-Infinity",
    "9223372036854775807", "9223372036854775808", "-9223372036854775809", "1" + "0" * 400, "0.1e-400",
    "true", '"1"', "[]", "{}", "1e-7", "2.0000000000000004",
)  # fmt: skip
NUMBERS = (
    "temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty",
    "max_tokens", "top_k", "seed", "min_tokens", "n", "logprobs",
)  # fmt: skip
PENALTIES = {"presence_penalty": -2, "frequency_penalty": -2, "repetition_penalty": 1e-3}
UNKNOWN = (
    {"chat_template_kwargs": {"tokenize": True, "chat_template": "{{ 1 }}"}},
    {"chat_template": "{% for i in range(10**9) %}{{ i }}{% endfor %}"},
    {"prompt_embeds": "gASVAAAAAAAAAA==" * 4000},
    {"n_discard": -1, "kv_transfer_params": {"tp_size": 10**12}, "prompt_logprobs": -1},
    {"truncate_prompt_tokens": -(2**40), "guided_regex": "foo**", "use_beam_search": True},
)
CRASHED_PEERS = "GHSA-69j4-grxj-j64p, GHSA-mrw7-hf4f-83pf, CVE-2026-21869"
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "something", "pattern": "((a+)+"}}}
CRASHED_BY_TOOLS = "vllm-project/vllm GHSA-vrq3-r879-7m65, GHSA-w6q7-j642-7c25"
WIDE = {"n": 128, "logprobs": 20, "max_tokens": 64, "echo": True, "ignore_eos": True}


def edges(name: str) -> Requests:
    """One parameter at every edge."""

    def requests(ground: Ground) -> Iterator[bytes]:
        fields = ground.fields({"temperature": 1.0, "max_tokens": 2})
        fields.pop(name, None)
        head = json.dumps(fields)[:-1]
        return (ground.post(COMPLETIONS, f'{head}, "{name}": {edge}}}'.encode()) for edge in EDGES)

    return requests


def many_fields(ground: Ground) -> list[bytes]:
    """Names that nobody knows, and the same name again and again."""
    twice = json.dumps(ground.fields({}))[:-1] + ', "n": 128' * 200_000 + ', "n": 1}'
    unknown = {f"field-{n}": n for n in range(150_000)}
    return [ground.completion(unknown), ground.post(COMPLETIONS, twice.encode())]


def tools(ground: Ground) -> list[bytes]:
    return [ground.chat({"tools": [TOOL]}), ground.chat({"tools": TOOL}), ground.chat({"functions": [1]})]


_n = partial(Harm, "sampling")
_s = partial(Harm, "stops")

ATTACKS = (
    *(_n(f"edges-of-{name}", shoot(edges(name)), in_short=name == "repetition_penalty") for name in NUMBERS),
    _n("repetition-penalty-subnormal", complete({"repetition_penalty": 1e-40, "max_tokens": 16}), in_short=True),
    _n(
        "repetition-penalty-tiny-sampled", complete({"repetition_penalty": 1e-38, "temperature": 0.0, "max_tokens": 16})
    ),
    _n("temperature-tiny", complete({"temperature": 1e-40, "max_tokens": 16})),
    _n("top-p-tiny", complete({"top_p": 1e-45, "temperature": 2.0, "max_tokens": 16})),
    _n("min-p-one", complete({"min_p": 1.0, "top_k": 1, "top_p": 1e-9, "max_tokens": 16})),
    _n("penalties-all", complete({**PENALTIES, "temperature": 1e-3, "max_tokens": 32})),
    _n("logit-bias-all-banned", complete({"logit_bias": {str(n): -100 for n in range(258)}, "max_tokens": 8})),
    _n(
        "logit-bias-out-of-range",
        complete({"logit_bias": {"191222": -100, "99999999": 5}}),
        "vllm-project/vllm#16529, #6866",
        in_short=True,
    ),
    _n("logit-bias-negative-id", complete({"logit_bias": {"-1": 5}})),
    _n("logit-bias-many", complete({"logit_bias": {str(n): 1 for n in range(200_000)}})),
    _n("logit-bias-odd-keys", complete({"logit_bias": {"": 1, "x": 1, "1e3": 1, "9" * 5000: 1, "٣": 1}})),
    _n("stop-tokens-out-of-range", complete({"stop_token_ids": [-1, 2**63, 10**30]})),
    _n("stop-tokens-many", complete({"stop_token_ids": [1] * 400_000})),
    _n(
        "min-tokens-and-stops",
        complete({"min_tokens": 8, "max_tokens": 8, "stop_token_ids": list(range(256))}),
        "vllm-project/vllm#4360",
    ),
    _n("best-of-huge", complete({"best_of": 10**9, "n": 1}), "CVE-2024-8939"),
    _n("n-huge", complete({"n": 10**12}), "GHSA-3mwp-wvh9-7528", in_short=True),
    _n("echo-no-tokens", complete({"echo": True, "logprobs": 1, "max_tokens": 0}), "vllm-project/vllm#6521"),
    _n("echo-logprobs", complete({"echo": True, "logprobs": 20, "prompt": "a " * 500}), "vllm-project/vllm#5890"),
    _n("logprobs-negative", complete({"logprobs": -1}), "vllm-project/vllm#16836"),
    _n("n-times-logprobs", complete(WIDE), load=32),
    _n("parameters-unknown", complete(*UNKNOWN), CRASHED_PEERS),
    _n("fields-many", shoot(many_fields)),
    _n("tools-malformed", shoot(tools), CRASHED_BY_TOOLS, in_short=True),
    _s("stop-long", complete({"stop": "a" * 40_000, "max_tokens": 64, "ignore_eos": True}), in_short=True),
    _s("stop-4-mib", complete({"stop": "ab" * 2_000_000})),
    _s("stop-list-long", complete({"stop": ["x" * 100_000 + str(n) for n in range(16)], "max_tokens": 32})),
    _s("stop-list-many", complete({"stop": [f"s{n}" for n in range(100_000)]})),
    _s("stop-nearly", complete({"stop": ["a" * 255 + "b", "aa" * 120 + "c"], "prompt": "a" * 300, "max_tokens": 64})),
    _s("stop-odd", complete({"stop": ["\x00", "\ud800", "\ufffd", "\U0010ffff", "\u202e"], "max_tokens": 32})),
    _s("stop-empty", complete({"stop": ["", "a"]})),
    _s("stop-not-strings", complete({"stop": [1, None, {}, []]})),
    _s("stop-per-choice", complete({"n": 128, "stop": ["ab" * 500] * 16, "max_tokens": 4}), load=16),
)
