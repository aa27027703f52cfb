"""What every backend owes the engine core, and which of the rest each has. guides/run-vllm.md shows it as a table."""

import json
import math
from pathlib import Path

import pytest
from llguidance import LLMatcher

from mesh.wire.requests import Sampling
from tests.engines.contract.computers import BLOCK_SIZE, Desk, random_prompts
from tests.engines.contract.conftest import BACKENDS
from tests.engines.contract.features import FEATURES, feature, table
from tests.engines.runner import generate_together

GREEDY = Sampling(max_tokens=64, seed=0, temperature=0.0)
SEEDED = Sampling(max_tokens=64, seed=11, temperature=0.9)
CUT = Sampling(max_tokens=64, seed=12, temperature=1.3, top_p=0.8, top_k=30, min_p=0.02)
PENALISED = Sampling(
    max_tokens=64, seed=13, temperature=0.8, presence_penalty=1.5, frequency_penalty=0.9, repetition_penalty=1.4
)
BIASED = Sampling(max_tokens=64, seed=16, temperature=1.0, logit_bias={101: 4.0, 32: -5.0}, min_tokens=20)
SAMPLINGS = {"greedy": GREEDY, "seeded": SEEDED, "cut": CUT, "penalised": PENALISED, "biased": BIASED}
PROMPT = [256, *b"Return the name of the file"]
COUNT = 24
LENGTHS = (2, 31, 32, 33, 7, 64, 90, 12)
SCHEMA = {
    "type": "object",
    "properties": {"kind": {"enum": ["file", "folder"]}, "count": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["kind", "count"],
    "additionalProperties": False,
    "x-guidance": {"whitespace_flexible": False},
}
GPU_DOC = Path(__file__).parents[3] / "docs/guides/run-vllm.md"


def go_on(runner, name, sampling, known, end=None):
    """Tokens and log-probabilities after ``known``, whose KV is computed anew. ``end`` is the last, if it is given."""
    tokens, computed, logprobs = [*PROMPT, *known], 0, []
    while tokens[-1] != end and (end or len(tokens) < len(PROMPT) + COUNT):
        [result] = runner.execute(runner.chunk(name, list(tokens), computed, sampling, len(PROMPT)))
        if result.unsampled is not None:  # the mask of its grammar is late: its last token is computed again
            assert result.unsampled.code is None, result.unsampled.reason
            computed = len(tokens) - 1
            continue
        computed = len(tokens)
        tokens.append(result.token)
        logprobs.append(result.logprobs)
    return tokens[len(PROMPT) + len(known) :], logprobs


@feature("requests of all lengths in one iteration, prompts in chunks beside decodes", lacks=("transformers",))
@pytest.mark.parametrize("name", ["greedy", "seeded", "cut"])
def test_mixed_batches_give_the_tokens_of_lonely_runs(make_runner, name):
    sampling, prompts = SAMPLINGS[name], random_prompts(LENGTHS, seed=2)
    alone = make_runner()
    expected = [alone.generate(str(i), prompt, sampling, 12) for i, prompt in enumerate(prompts)]
    for chunk_tokens in (6, 100):
        assert generate_together(make_runner(), prompts, sampling, 12, chunk_tokens) == expected


@feature("results in the order of the chunks, nothing sampled in the middle of a prompt", lacks=("transformers",))
def test_results_are_for_the_chunks_that_were_given(make_runner):
    runner, alone = make_runner(), make_runner()
    prompts = random_prompts((4, 1, 40, 3), seed=3)
    expected = [alone.generate(str(i), prompt, GREEDY, 1) for i, prompt in enumerate(prompts)]
    chunks = [runner.chunk(str(i), prompt, 0, GREEDY) for i, prompt in enumerate(prompts)]
    middle = runner.chunk("middle", PROMPT, 0)
    results = runner.execute(*chunks[:2], middle, *chunks[2:])
    assert [[result.token] for result in results if result.token is not None] == expected
    assert (results[2].token, results[2].logprobs, results[2].prompt_logprobs) == (None, None, None)
    assert runner.execute() == []


@feature("a request may pause, begin anew, and come back with other blocks")
def test_requests_come_and_go(make_runner):
    expected = make_runner().generate("whole", PROMPT, SEEDED, 9)
    runner = make_runner()
    tokens = [*PROMPT, *runner.generate("r", PROMPT, SEEDED, 3)]
    runner.generate("other", PROMPT[3:], SEEDED, 2)  # steps without it
    [result] = runner.execute(runner.chunk("r", tokens, len(tokens) - 1, SEEDED, len(PROMPT)))
    tokens.append(result.token)
    runner.blocks.clear()  # preempted
    computed = 0
    while len(tokens) < len(PROMPT) + 9:
        [result] = runner.execute(runner.chunk("r", list(tokens), computed, SEEDED, len(PROMPT)))
        computed = len(tokens)
        tokens.append(result.token)
    assert tokens[len(PROMPT) :] == expected


@feature("prefixes that others computed are reused", lacks=("transformers",))
def test_blocks_of_a_prefix_are_shared(make_runner):
    prompts = [[*random_prompts((2 * BLOCK_SIZE,), seed=4)[0], *end] for end in ([1, 2, 3], [4, 5])]
    alone = make_runner()
    expected = [alone.generate(str(i), prompt, GREEDY, 8) for i, prompt in enumerate(prompts)]
    runner = make_runner()
    assert runner.generate("first", prompts[0], GREEDY, 8) == expected[0]
    runner.blocks["second"] = runner.blocks["first"][:2]
    tokens, computed = list(prompts[1]), 2 * BLOCK_SIZE
    while len(tokens) < len(prompts[1]) + 8:
        [result] = runner.execute(runner.chunk("second", list(tokens), computed, GREEDY, len(prompts[1])))
        computed = len(tokens)
        tokens.append(result.token)
    assert tokens[len(prompts[1]) :] == expected[1]


@feature("a block's bytes are the block: another engine decodes on from them", lacks=("transformers",))
@pytest.mark.parametrize("num_known", [1, 5, 40])
def test_kv_travels_as_bytes(make_runner, desk: Desk, num_known):
    """Half filled blocks, too."""
    expected = make_runner().generate("whole", PROMPT, SEEDED, num_known + 8)
    runner = make_runner()
    known = runner.generate("here", PROMPT, SEEDED, num_known)
    there = make_runner()
    for block in runner.blocks["here"]:
        there.blocks.setdefault("there", []).append(desk.take())
        desk.computer.copy_block(block, there.blocks["there"][-1])
    tokens = [*PROMPT, *known]
    while len(tokens) < len(PROMPT) + num_known + 8:
        [result] = there.execute(there.chunk("there", list(tokens), len(tokens) - 1, SEEDED, len(PROMPT)))
        tokens.append(result.token)
    assert tokens[len(PROMPT) :] == expected


@feature("a continuation draws the tokens that the request would have had")
@pytest.mark.parametrize("cut", [1, 10, 23])
@pytest.mark.parametrize("name", SAMPLINGS)
def test_a_continuation_is_exact(make_runner, name, cut):
    tokens, _ = go_on(make_runner(), "whole", SAMPLINGS[name], [])
    assert len(set(tokens)) > 1, "a draw that is always the same proves nothing"
    rest, _ = go_on(make_runner(), "rest", SAMPLINGS[name], tokens[:cut])
    assert rest == tokens[cut:]


@feature("a seed decides")
def test_seeds(make_runner):
    runner = make_runner()
    one, again, other = (
        runner.generate(str(index), PROMPT, Sampling(max_tokens=64, seed=seed, temperature=1.5), 16)
        for index, seed in enumerate((5, 5, 6))
    )
    assert one == again != other


@feature("temperature, top_p, top_k, min_p", lacks=("simulated",))
def test_cuts_forbid_what_is_unlikely(make_runner):
    greedy = make_runner().generate("greedy", PROMPT, GREEDY, 12)
    for changes in ({"top_k": 1}, {"top_p": 1e-6}, {"min_p": 1.0}, {"temperature": 1e-3}):
        sampling = Sampling(**{"max_tokens": 64, "seed": 3, "temperature": 1.5} | changes)
        assert make_runner().generate("cut", PROMPT, sampling, 12) == greedy, changes
    assert make_runner().generate("free", PROMPT, Sampling(64, seed=3, temperature=1.5), 12) != greedy


@feature("penalties, logit_bias, min_tokens", lacks=("simulated",))
def test_what_is_asked_of_tokens_is_heeded(make_runner):
    banned = Sampling(max_tokens=64, seed=0, temperature=0.0, logit_bias={65: 100.0})
    assert make_runner().generate("bias", PROMPT, banned, 3) == [65, 65, 65]
    both = Sampling(max_tokens=64, seed=0, temperature=0.0, logit_bias={65: 50.0, 66: 49.0}, presence_penalty=2.0)
    assert make_runner().generate("both", PROMPT, both, 2) == [65, 66]
    known = make_runner().generate("known", PROMPT, PENALISED, 12)
    as_prompt = make_runner().generate("prompt", [*PROMPT, *known], PENALISED, 12)
    assert as_prompt != make_runner().generate("whole", PROMPT, PENALISED, 24)[12:], "answers count, prompts do not"
    ends = Sampling(64, seed=0, temperature=0.0, logit_bias={257: 100.0, 65: 50.0}, min_tokens=3)
    assert make_runner().generate("ends", PROMPT, ends, 4) == [65, 65, 65, 257]


@feature("answers keep to a grammar (structured outputs)", lacks=("simulated",))
def test_answers_keep_to_their_grammar(make_runner):
    """Alone, and in a batch with one that is free; one that goes on elsewhere is the same."""
    grammar = LLMatcher.grammar_from_json_schema(json.dumps(SCHEMA))
    sampling = Sampling(max_tokens=64, seed=21, temperature=1.0, grammar=grammar)
    tokens, _ = go_on(make_runner(), "whole", sampling, [], end=257)
    whole = json.loads(bytes(tokens[:-1]))
    assert whole["kind"] in SCHEMA["properties"]["kind"]["enum"]
    assert isinstance(whole["count"], int)
    assert go_on(make_runner(), "rest", sampling, tokens[:7], end=257)[0] == tokens[7:]
    both = generate_together(make_runner(), [PROMPT, PROMPT], sampling, 16, 100)
    assert both == [tokens[:16], tokens[:16]]


@feature("log-probabilities of sampled tokens", lacks=("simulated",))
def test_logprobs(make_runner):
    sampling = Sampling(max_tokens=64, seed=18, temperature=0.8, logprobs=3)
    tokens, logprobs = go_on(make_runner(), "whole", sampling, [])
    rest, rest_logprobs = go_on(make_runner(), "rest", sampling, tokens[:10])
    assert rest == tokens[10:]
    for one, other in zip(logprobs[10:], rest_logprobs, strict=True):
        assert [token for token, _ in one.top] == [token for token, _ in other.top]
        assert one.logprob == pytest.approx(other.logprob, abs=1e-3)
    assert [one.token for one in logprobs] == tokens
    for one in logprobs:
        values = [value for _, value in one.top]
        assert len(values) == 3
        assert values == sorted(values, reverse=True)
        assert one.logprob <= values[0]
        assert sum(math.exp(value) for value in values) < 1.0
    plain, _ = go_on(make_runner(), "plain", Sampling(max_tokens=64, seed=18, temperature=0.8), [])
    assert plain == tokens


@feature("log-probabilities of prompts, however they are cut", lacks=("transformers", "simulated"))
def test_prompt_logprobs(make_runner):
    prompt = [256, *b"Return a list of the names of all files in the folder. If there are none, it is empty."]
    [whole] = (runner := make_runner()).execute(runner.chunk("a", prompt, 0, GREEDY, prompt_logprobs=3))
    split, parts = make_runner(), []
    for start, end in ((0, 1), (1, 40), (40, 41), (41, len(prompt))):
        sampled = GREEDY if end == len(prompt) else None
        [result] = split.execute(split.chunk("a", prompt[:end], start, sampled, prompt_logprobs=3))
        parts += result.prompt_logprobs
        split.generate(f"between-{start}", PROMPT, GREEDY, 1)
    assert (whole.prompt_logprobs[0], parts[0]) == (None, None)
    assert [entry.token for entry in parts[1:]] == prompt[1:]
    for one, other in zip(whole.prompt_logprobs[1:], parts[1:], strict=True):
        assert one.logprob == pytest.approx(other.logprob, abs=1e-3)
        assert [token for token, _ in one.top] == [token for token, _ in other.top]
    bits = [-entry.logprob / math.log(2) for entry in parts[1:]]
    assert 0.1 < sum(bits) / len(bits) < 3.0, "English, for a model that has learnt it"


@feature("a batch that fails leaves nothing behind", lacks=("simulated",))
def test_after_a_batch_that_fails(make_runner):
    expected = make_runner().generate("whole", PROMPT, SEEDED, 6)
    runner = make_runner()
    known = runner.generate("r", PROMPT, SEEDED, 3)
    wrong = Sampling(max_tokens=64, seed=1, logit_bias={1: None})  # which the sampler raises at
    tokens = [*PROMPT, *known]
    chunk = runner.chunk("r", list(tokens), len(tokens) - 1, SEEDED, len(PROMPT))
    with pytest.raises((RuntimeError, IndexError)):
        runner.execute(chunk, runner.chunk("wrong", PROMPT, 0, wrong))
    while len(tokens) < len(PROMPT) + 6:
        [result] = runner.execute(runner.chunk("r", list(tokens), len(tokens) - 1, SEEDED, len(PROMPT)))
        tokens.append(result.token)
    assert tokens[len(PROMPT) :] == expected


def test_the_documentation_has_the_table():
    assert "\n".join(table(FEATURES, BACKENDS)) in GPU_DOC.read_text()
