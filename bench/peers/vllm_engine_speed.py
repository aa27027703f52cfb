"""Child of `bench.peers.engines`, under an interpreter that has vLLM: its engine core here, with no server around it.

    python -m bench.peers.vllm_engine_speed MODEL_FOLDER eager|compiled DTYPE [ngram]

Needs nothing of this project but `bench.peers.rounds`. Tokens stay ids: no time goes into text.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence

from bench.peers.rounds import Answers

MOST_DRAFTS = 5  # of a decode at a time, as in vLLM's own examples


class VllmEngine:
    def __init__(self, folder: str, mode: str, dtype: str, speculation: str = "") -> None:
        drafts = {"method": speculation, "num_speculative_tokens": MOST_DRAFTS, "prompt_lookup_max": 4}
        import vllm  # prints while it is imported: after Answers

        self._vllm = vllm
        llm = vllm.LLM(
            model=folder,
            dtype=dtype,
            enforce_eager=mode == "eager",
            skip_tokenizer_init=True,
            max_model_len=1024,
            max_num_seqs=32,
            enable_prefix_caching=False,
            speculative_config=drafts | {"prompt_lookup_min": 2} if speculation else None,
        )
        self._engine = llm.llm_engine
        self._num_requests = 0

    def generate(self, prompts: Sequence[list[int]], num_tokens: int, grammar: str = "") -> Iterator[Mapping[str, int]]:
        if grammar:
            raise ValueError("answers with a grammar are not measured in this engine")
        parameters = self._vllm.SamplingParams(
            temperature=0.0,
            max_tokens=num_tokens,
            ignore_eos=True,
            detokenize=False,
            output_kind=self._vllm.sampling_params.RequestOutputKind.DELTA,
        )
        for prompt in prompts:
            self._num_requests += 1
            self._engine.add_request(str(self._num_requests), {"prompt_token_ids": prompt}, parameters)
        while self._engine.has_unfinished_requests():
            yield {output.request_id: len(output.outputs[0].token_ids) for output in self._engine.step()}


if __name__ == "__main__":
    answers = Answers()
    answers.serve(VllmEngine(*sys.argv[1:]))
