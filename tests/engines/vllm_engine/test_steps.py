"""What vLLM is told must be what it then holds: its runner's books, modelled, check every step of random schedules."""

import random

import pytest

from engines.scheduling.batch import Batch, Chunk, Draw
from engines.vllm_engine.executor import StepOutput, VllmExecutor, VllmService
from engines.vllm_engine.steps import StepPlanner, VllmStep
from mesh.wire.requests import Sampling
from mesh.wire.transfers import KVShape
from tests.seeds import each_seed

BLOCK_SIZE = 4
GREEDY = Sampling(max_tokens=64, seed=0, temperature=0.0)


def drawn_after(tokens):
    """A token that depends on all tokens before it."""
    return sum((index + 1) * token for index, token in enumerate(tokens)) % 997


class Books:
    """vLLM's model runner, as far as its books go. KV is kept by block and slot: what token was computed there.

    Raises AssertionError if a step is told of something else than it holds.
    """

    def __init__(self):
        self.requests, self.kv, self.steps, self.fails = {}, {}, [], False

    def compute(self, step: VllmStep) -> StepOutput:
        self.steps.append(step)
        for name in step.forgotten:
            self.requests.pop(name, None)
        for request in step.new:
            assert request.id not in self.requests, "a request that it holds is told as new"
            self.requests[request.id] = [list(request.tokens), list(request.blocks), 0]
        for request in step.known:
            _, blocks, num_sampled = self.requests[request.id]
            assert num_sampled == request.num_sampled
            blocks.extend(request.new_blocks)
        computed = {request.id: request.num_computed for request in (*step.new, *step.known)}
        assert computed.keys() == step.num_tokens.keys() == step.draws.keys()
        assert set(self.requests) == set(computed), "it holds requests that are not in the batch"
        if self.fails:
            raise RuntimeError("out of luck")
        sampled = {}
        for name, start in computed.items():
            tokens, blocks, num_sampled = self.requests[name]
            end = start + step.num_tokens[name]
            assert len(tokens) == end
            assert len(blocks) == -(-end // BLOCK_SIZE)
            for position in range(start, end):
                self.kv[blocks[position // BLOCK_SIZE], position % BLOCK_SIZE] = tokens[position]
            seen = [self.kv[blocks[position // BLOCK_SIZE], position % BLOCK_SIZE] for position in range(end)]
            if step.draws[name] is not None:
                sampled[name] = drawn_after(seen)
            self.requests[name] = [[*tokens, sampled.get(name, 0)], blocks, num_sampled + 1]  # it always draws
        return StepOutput(sampled, {}, {})


class Request:
    def __init__(self, name, prompt):
        self.name, self.tokens, self.num_prompt = name, list(prompt), len(prompt)
        self.computed, self.blocks = 0, []

    def chunk(self, num_tokens):
        end = self.computed + num_tokens
        draw = Draw(GREEDY, self.tokens, self.num_prompt, end) if end == len(self.tokens) else None
        return Chunk(self.name, self.tokens[self.computed : end], self.computed, self.blocks, draw)


@each_seed(range(30))
def test_tokens_are_those_of_lonely_requests_whatever_happens_to_them(seed):
    """Requests pause, are preempted, come back under their names, are given spare blocks; steps fail."""
    draw = random.Random(seed)
    books = Books()
    service = VllmService(
        "s", KVShape(1, 1, 4, BLOCK_SIZE, "float32"), books, (lambda block: 3 * block) if seed % 2 else None
    )
    free = list(range(400))
    draw.shuffle(free)
    requests = [Request(f"r{i}", [draw.randrange(97) for _ in range(draw.randrange(1, 20))]) for i in range(6)]
    for _ in range(120):
        batch, sizes = [], []
        for request in draw.sample(requests, draw.randrange(1, 7)):
            if draw.random() < 0.1:  # preempted, or begun anew by another engine's death
                request.computed, request.blocks = 0, []
            num_tokens = min(len(request.tokens) - request.computed, draw.randrange(1, 9))
            while len(request.blocks) * BLOCK_SIZE < request.computed + num_tokens + draw.choice((0, 0, 9)):
                request.blocks.append(free.pop() if free else draw.randrange(10**6, 10**9))
            batch.append(request)
            sizes.append(num_tokens)
        books.fails = draw.random() < 0.1
        chunks = [request.chunk(size) for request, size in zip(batch, sizes, strict=True)]
        if books.fails:
            with pytest.raises(RuntimeError):
                service.compute(chunks)
            continue
        results = service.compute(chunks)
        for request, size, result in zip(batch, sizes, results, strict=True):
            request.computed += size
            assert (result.token is not None) == (request.computed == len(request.tokens))
            if result.token is not None:
                assert result.token == drawn_after(request.tokens)
                request.tokens.append(result.token)
    assert sum(len(step.known) for step in books.steps) > 10


def decode(tokens, blocks, num_prompt=3, name="r"):
    return Chunk(name, tokens[-1:], len(tokens) - 1, blocks, Draw(GREEDY, tokens, num_prompt, len(tokens)))


def test_a_decode_that_goes_on_is_a_few_numbers():
    planner, tokens, blocks = StepPlanner(BLOCK_SIZE), [5, 6, 7], [9]
    first = Chunk("r", tokens, 0, blocks, Draw(GREEDY, tokens, 3, 3))
    step = planner.plan([first])
    assert [request.tokens for request in step.new] == [[5, 6, 7]]
    planner.drew([first], {"r": 8})
    step = planner.plan([decode([5, 6, 7, 8], [9])])
    assert not step.new
    [known] = step.known
    assert (known.num_computed, known.num_sampled, list(known.new_blocks)) == (3, 1, [])
    planner.drew([decode([5, 6, 7, 8], [9])], {"r": 2})
    [known] = planner.plan([decode([5, 6, 7, 8, 2], [9, 4])]).known
    assert (known.num_computed, known.num_sampled, list(known.new_blocks)) == (4, 2, [4])


@pytest.mark.parametrize(
    "chunk",
    [
        decode([5, 6, 7, 3], [9]),  # another token than it drew: a continuation of another attempt
        decode([5, 6, 7, 8], [3]),  # its blocks are others now
        decode([5, 6, 7, 8, 8], [9, 4]),  # it went on elsewhere in between
        Chunk("r", [5, 6], 0, [9]),  # begun anew
    ],
)
def test_whatever_does_not_follow_is_new(chunk):
    planner, tokens = StepPlanner(BLOCK_SIZE), [5, 6, 7]
    first = Chunk("r", tokens, 0, [9], Draw(GREEDY, tokens, 3, 3))
    planner.plan([first])
    planner.drew([first], {"r": 8})
    step = planner.plan([chunk])
    assert [request.id for request in step.new] == ["r"]
    assert step.forgotten == {"r"}
    assert list(step.new[0].tokens[chunk.start :]) == list(chunk.tokens)


def test_an_empty_batch_is_not_told():
    books = Books()
    executor = VllmExecutor()
    executor.add(VllmService("s", KVShape(1, 1, 4, BLOCK_SIZE, "float32"), books))
    assert executor.execute(Batch("s", [])).chunks == []
    assert books.steps == []


def test_vllm_is_told_of_places_instead_of_blocks():
    planner, tokens = StepPlanner(BLOCK_SIZE, lambda block: 10 * block + 1), [5, 6, 7]
    first = Chunk("r", tokens, 0, [9], Draw(GREEDY, tokens, 3, 3))
    assert [list(request.blocks) for request in planner.plan([first]).new] == [[91]]
    planner.drew([first], {"r": 8})
    planner.plan([second := decode([5, 6, 7, 8], [9])])
    planner.drew([second], {"r": 2})
    assert [list(request.new_blocks) for request in planner.plan([decode([5, 6, 7, 8, 2], [9, 4])]).known] == [[41]]
