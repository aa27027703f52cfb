"""One call of transformers' ``generate``, held between its steps.

``generate`` returns when its batch is done. An engine wants to hear of each token, to know how long it took, and to end
a batch early. So calls run in a thread of their own, and there ``generate`` waits where it asks after each step whether
to stop (`StoppingCriteria`). One of the two threads computes at a time.

Tokens are sampled as every engine of the mesh samples them, where ``generate`` lets its user change scores
(`LogitsProcessor`): all but the sampled token get none, and its greedy choice is that token.
"""

from collections.abc import Callable, Mapping, Sequence
from queue import SimpleQueue
from threading import Thread

import torch
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessorList, PreTrainedModel, StoppingCriteriaList

from engines.scheduling.batch import Draw
from engines.torch_engine.sampling.rows import SampledToken, sample_tokens
from engines.torch_engine.sampling.sampler import Sampler

Call = Callable[[], None]

PAD = 0  # any token: nobody attends to it


class ComputeThread:
    """A thread that computes one call after the other. It ends with the process, or when it is told to."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._calls: SimpleQueue[Call | None] = SimpleQueue()
        Thread(target=self._run, name="generate", daemon=True).start()

    def begin(self, call: Call) -> None:
        """Begin a generation once all that began before have ended."""
        self._calls.put(call)

    def end(self) -> None:
        """End once all that began has ended."""
        self._calls.put(None)

    def _run(self) -> None:
        torch.set_num_threads(self._threads)  # of this thread
        while (call := self._calls.get()) is not None:
            with torch.inference_mode():
                call()
            del call  # and with it what it holds, while the next one is waited for


class BatchGeneration:
    """One call of ``generate``. ``prompts`` as left-padded rows of one batch that generates up to ``most_tokens``
    tokens a row.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        sampler: Sampler,
        prompts: Sequence[Sequence[int]],
        most_tokens: int,
        caller: ComputeThread,
    ) -> None:
        self._model = model
        self._sampler = sampler
        self._prompts = prompts
        self._most_tokens = self._num_left = most_tokens
        self._draws: Mapping[int, Draw] | None = None  # by row, of the step that runs; None: no further step is wanted
        self._tokens: Mapping[int, SampledToken] = {}
        self._wanted: SimpleQueue[Mapping[int, Draw] | None] = SimpleQueue()
        self._answers: SimpleQueue[Mapping[int, SampledToken] | Exception] = SimpleQueue()
        caller.begin(self._generate)

    def __repr__(self) -> str:
        return f"<BatchGeneration of {len(self._prompts)} rows, {self._num_left} of {self._most_tokens} tokens left>"

    @property
    def is_over(self) -> bool:
        """Return whether the call has returned, or failed."""
        return self._num_left == 0

    def step(self, draws: Mapping[int, Draw]) -> Mapping[int, SampledToken]:
        """Return what is sampled for these rows; the others go on, and nobody wants their tokens. Raise what it
        raised.
        """
        self._wanted.put(draws)
        answer = self._answers.get()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def stop(self) -> None:
        """Let it return, and its memory go, before the next one begins."""
        self._num_left = 0
        self._wanted.put(None)

    # --- in the thread of calls ---------------------------------------------------------------------------------------

    def _generate(self) -> None:
        self._draws = self._wanted.get()
        if self._draws is None:
            return
        ids, mask = left_padded(self._prompts, self._model.device)
        config = GenerationConfig(  # type: ignore[no-untyped-call]
            max_new_tokens=self._most_tokens, do_sample=False, pad_token_id=PAD
        )
        try:
            self._model.generate(  # type: ignore[operator]
                ids,
                attention_mask=mask,
                generation_config=config,
                logits_processor=LogitsProcessorList([self._choose]),
                stopping_criteria=StoppingCriteriaList([self._is_enough]),
            )
        except Exception as error:
            self._num_left = 0
            self._answers.put(error)

    def _choose(self, _ids: Tensor, scores: Tensor) -> Tensor:
        """``scores`` [rows, vocabulary] (float32; changed in place)."""
        draws = self._draws or {}
        rows = list(draws)
        sampled = sample_tokens(self._sampler, scores[rows], list(draws.values()))
        self._tokens = dict(zip(rows, sampled, strict=True))
        chosen = torch.full((len(scores), 1), PAD, device=scores.device)
        chosen[rows, 0] = torch.tensor(
            [PAD if one.token is None else one.token for one in sampled], device=scores.device
        )
        return scores.fill_(float("-inf")).scatter_(1, chosen, 0.0)

    def _is_enough(self, ids: Tensor, _scores: object, **_: object) -> Tensor:
        """Whether to stop, of each row: all of them do. Waits to be told, unless it was the last step anyway."""
        self._num_left -= 1
        is_last = self._num_left == 0
        self._answers.put(self._tokens)
        self._draws = None if is_last else self._wanted.get()
        return torch.full((len(ids),), self._draws is None, dtype=torch.bool, device=ids.device)


def left_padded(prompts: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Token ids and attention mask, [rows, longest]."""
    longest = max(map(len, prompts))
    missing = [longest - len(prompt) for prompt in prompts]
    ids = [[PAD] * gap + list(prompt) for gap, prompt in zip(missing, prompts, strict=True)]
    mask = [[0] * gap + [1] * (longest - gap) for gap in missing]
    return torch.tensor(ids, device=device), torch.tensor(mask, device=device)
