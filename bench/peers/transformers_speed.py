"""Child of `bench.peers.engines`: transformers, by ``generate`` or by its continuous batching.

python -m bench.peers.transformers_speed MODEL_FOLDER generate|continuous DTYPE
"""

import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from queue import SimpleQueue

import torch
import transformers
from transformers import AutoModelForCausalLM, ContinuousBatchingConfig, GenerationConfig

from bench.peers.rounds import Answers, Generator

BLOCK_TOKENS = 256  # its default
MOST_TOKENS = 2**14  # of KV, enough for every round; by default it takes 60 % of all memory
BATCH_TOKENS = 2048  # of prompts and decodes, in one iteration


def load_model(folder: str, dtype: str) -> torch.nn.Module:
    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype))
    model.train(False)
    return model


def greedy(num_tokens: int) -> GenerationConfig:
    """So many, whatever the model would end with."""
    return GenerationConfig(  # type: ignore[no-untyped-call]
        do_sample=False, max_new_tokens=num_tokens, eos_token_id=-1, pad_token_id=0
    )


class Generate:
    """``model.generate`` with the prompts of a round as one batch; they are equally long, so nothing is padded."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model

    def generate(self, prompts: Sequence[list[int]], num_tokens: int) -> Iterator[Mapping[str, int]]:
        """It returns when all is done: it runs in a thread, and says after each step that it was."""
        steps: SimpleQueue[bool] = SimpleQueue()

        def stepped(input_ids: torch.Tensor, scores: torch.Tensor, **_: object) -> torch.Tensor:
            steps.put(True)
            return torch.zeros(len(input_ids), dtype=torch.bool)

        def run() -> None:
            try:
                ids = torch.tensor(prompts)
                self._model.generate(  # type: ignore[operator]
                    ids,
                    attention_mask=torch.ones_like(ids),
                    generation_config=greedy(num_tokens),
                    stopping_criteria=transformers.StoppingCriteriaList([stepped]),
                )
            finally:
                steps.put(False)

        thread = threading.Thread(target=run)
        thread.start()
        while steps.get():
            yield {str(index): 1 for index in range(len(prompts))}
        thread.join()


class Continuous:
    """Its manager of continuous batches, which computes in a thread of its own."""

    def __init__(self, model: torch.nn.Module) -> None:
        config = ContinuousBatchingConfig(
            num_blocks=MOST_TOKENS // BLOCK_TOKENS,
            max_batch_tokens=BATCH_TOKENS,
            allow_block_sharing=False,  # no two prompts of a round share a beginning
        )
        self._manager = model.init_continuous_batching(greedy(1), config)  # type: ignore[operator]
        self._manager.start()

    def stop(self) -> None:
        """End its thread, which the process would wait for."""
        self._manager.stop()

    def generate(self, prompts: Sequence[list[int]], num_tokens: int) -> Iterator[Mapping[str, int]]:
        names = self._manager.add_requests(prompts, max_new_tokens=num_tokens, streaming=True)
        got = dict.fromkeys(names, 0)
        num_running = len(names)
        while num_running:
            output = self._manager.get_result(timeout=1.0)
            if output is None:
                if not self._manager.is_running():
                    raise RuntimeError("its thread ended")
                continue
            if output.error is not None:
                raise RuntimeError(output.error)
            num_new = len(output.generated_tokens) - got[output.request_id]
            got[output.request_id] += num_new
            num_running -= output.is_finished()
            yield {output.request_id: num_new}


WAYS: dict[str, Callable[[torch.nn.Module], Generator]] = {"generate": Generate, "continuous": Continuous}


def main(folder: str, way: str, dtype: str) -> None:
    answers = Answers()
    engine = WAYS[way](load_model(folder, dtype))
    answers.serve(engine)
    if isinstance(engine, Continuous):
        engine.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
