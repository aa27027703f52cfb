"""Child of `bench.peers.engines`: llama.cpp on one thread, by the bindings of llama-cpp-python, which it needs alone.

python -m bench.peers.llama_cpp_speed GGUF_FILE
"""

import ctypes
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import llama_cpp
import numpy as np

from bench.peers.rounds import Answers

MOST_TOKENS = 2**14  # of KV, enough for every round
BATCH_TOKENS = 2048  # of prompts and decodes, in one call: its default
MOST_REQUESTS = 16


@dataclass(slots=True)
class Running:
    """A request: ``pending`` tokens from ``position`` on are to be computed."""

    number: int
    pending: list[int]
    position: int = 0
    num_generated: int = 0


class LlamaCpp:
    """Decodes of all requests, then as much of their prompts as fits, in each call of ``llama_decode``."""

    def __init__(self, path: str) -> None:
        llama_cpp.llama_backend_init()
        self._model = llama_cpp.llama_model_load_from_file(path.encode(), llama_cpp.llama_model_default_params())
        parameters = llama_cpp.llama_context_default_params()
        parameters.n_ctx = MOST_TOKENS
        parameters.n_batch = BATCH_TOKENS
        parameters.n_seq_max = MOST_REQUESTS
        parameters.n_threads = parameters.n_threads_batch = 1
        parameters.kv_unified = True
        self._context = llama_cpp.llama_init_from_model(self._model, parameters)
        if not self._context:
            raise RuntimeError(f"{path}: llama.cpp cannot load it")
        self._vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self._model))
        self._batch = llama_cpp.llama_batch_init(BATCH_TOKENS, 0, 1)

    def generate(self, prompts: Sequence[list[int]], num_tokens: int, grammar: str = "") -> Iterator[Mapping[str, int]]:
        if grammar:
            raise ValueError("answers with a grammar are not measured in this engine")
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self._context), True)
        running = [Running(number, list(prompt)) for number, prompt in enumerate(prompts)]
        while running:
            drawn = self._step(sorted(running, key=lambda one: not one.num_generated))
            yield {str(one.number): 1 for one in drawn}
            running = [one for one in running if one.num_generated < num_tokens]

    def _step(self, requests: Sequence[Running]) -> list[Running]:
        """Compute what fits of what is pending. Who got a token."""
        self._batch.n_tokens = 0
        rows: list[tuple[Running, int]] = []
        for one in requests:
            chunk = one.pending[: BATCH_TOKENS - self._batch.n_tokens]
            for token in chunk:
                self._add(one.number, token, one.position)
                one.position += 1
            del one.pending[: len(chunk)]
            if chunk and not one.pending:
                self._batch.logits[self._batch.n_tokens - 1] = 1
                rows.append((one, self._batch.n_tokens - 1))
        if llama_cpp.llama_decode(self._context, self._batch) != 0:
            raise RuntimeError("llama_decode failed")
        for one, row in rows:
            one.pending.append(self._likeliest(row))
            one.num_generated += 1
        return [one for one, _ in rows]

    def _add(self, request: int, token: int, position: int) -> None:
        batch, index = self._batch, self._batch.n_tokens
        batch.token[index], batch.pos[index] = token, position
        batch.n_seq_id[index], batch.seq_id[index][0] = 1, request
        batch.logits[index] = 0
        batch.n_tokens += 1

    def _likeliest(self, row: int) -> int:
        logits = llama_cpp.llama_get_logits_ith(self._context, row)
        address = ctypes.cast(logits, ctypes.POINTER(ctypes.c_float))
        return int(np.argmax(np.ctypeslib.as_array(address, shape=(self._vocabulary,))))


if __name__ == "__main__":
    answers = Answers()
    answers.serve(LlamaCpp(sys.argv[1]))
