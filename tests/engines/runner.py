"""Drives an executor of any backend: keeps each request's blocks, prefills in chunks, decodes."""

from collections.abc import Callable, Sequence

from engines.scheduling.batch import Chunk, ChunkResult, Draw
from mesh.wire.requests import Sampling

Compute = Callable[[Sequence[Chunk]], Sequence[ChunkResult]]


class Runner:
    """``take`` gives a free block of ``block_size`` tokens. Names of requests begin with ``prefix``."""

    def __init__(self, compute: Compute, take: Callable[[], int], block_size: int, prefix: str = "") -> None:
        self.blocks: dict[str, list[int]] = {}
        self._compute = compute
        self._take = take
        self._block_size = block_size
        self._prefix = prefix

    def chunk(
        self,
        request: str,
        tokens: list[int],
        start: int,
        sampling: Sampling | None = None,
        num_prompt: int | None = None,
        prompt_logprobs: int | None = None,
    ) -> Chunk:
        """``tokens[start:]`` are to be computed; with ``sampling`` the token after them is sampled."""
        table = self.blocks.setdefault(request, [])
        while len(table) * self._block_size < len(tokens):
            table.append(self._take())
        num_prompt = len(tokens) if num_prompt is None else num_prompt
        draw = None if sampling is None else Draw(sampling, tokens, num_prompt, len(tokens), self._prefix + request)
        return Chunk(self._prefix + request, tokens[start:], start, table, draw, prompt_logprobs)

    def execute(self, *chunks: Chunk) -> list[ChunkResult]:
        return list(self._compute(list(chunks)))

    def generate(
        self, request: str, prompt: list[int], sampling: Sampling, count: int, split: int = 10**6
    ) -> list[int]:
        """Prefill in chunks of ``split`` tokens, then decode alone."""
        tokens, computed = list(prompt), 0
        while len(tokens) < len(prompt) + count:
            upto = min(len(tokens), computed + split)
            sampled = sampling if upto == len(tokens) else None
            [result] = self.execute(self.chunk(request, tokens[:upto], computed, sampled, len(prompt)))
            computed = upto
            if result.token is not None:
                tokens.append(result.token)
        return tokens[len(prompt) :]


def generate_together(
    runner: Runner, prompts: list[list[int]], sampling: Sampling, count: int, chunk_tokens: int
) -> list[list[int]]:
    """All at once, at most about ``chunk_tokens`` of each a step, so that prefills and decodes mix."""
    tokens, computed = [list(prompt) for prompt in prompts], [0] * len(prompts)
    while active := [i for i, prompt in enumerate(prompts) if len(tokens[i]) < len(prompt) + count]:
        chunks = []
        for i in active:
            upto = min(len(tokens[i]), computed[i] + chunk_tokens + i)
            sampled = sampling if upto == len(tokens[i]) else None
            chunks.append(runner.chunk(str(i), tokens[i][:upto], computed[i], sampled, len(prompts[i])))
            computed[i] = upto
        for i, result in zip(active, runner.execute(*chunks), strict=True):
            if result.unsampled is not None:  # the mask of its grammar is late: its last token is computed again
                assert result.unsampled.code is None, result.unsampled.reason
                computed[i] -= 1
            elif result.token is not None:
                tokens[i].append(result.token)
    return [tokens[i][len(prompt) :] for i, prompt in enumerate(prompts)]
