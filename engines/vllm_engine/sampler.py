"""Our sampler in vLLM's model runner: keyed by seed and position, so a request that goes on elsewhere samples alike.

vLLM's own keeps a generator for each request, whose state depends on what it sampled before and does not travel.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from vllm.v1.outputs import LogprobsTensors, SamplerOutput
from vllm.v1.sample.sampler import Sampler as VllmSampler

from engines.scheduling.batch import Unsampled
from engines.torch_engine.sampling.logprobs import of_tokens
from engines.torch_engine.sampling.rows import sample_tokens
from engines.torch_engine.sampling.sampler import Sampler
from engines.vllm_engine.steps import NewRequest, VllmStep
from mesh.wire.requests import TokenLogprobs

MAX_TAILS = 256  # prompts in the middle of being computed
UNSAMPLED = -1  # in place of a token; the request is not computed any further, or begins anew


@dataclass(frozen=True, slots=True)
class StepLogprobs:
    """Log-probabilities by request: of the sampled token, and of the first token of a chunk of a prompt."""

    sampled: dict[str, TokenLogprobs]
    first: dict[str, TokenLogprobs]


class MeshSampler(VllmSampler):  # type: ignore[misc]  # vLLM is not there when types are checked
    """Samples for vLLM's runner. ``rows`` names the requests of the runner's batch, in the order of its logits."""

    def __init__(self, sampler: Sampler, rows: Callable[[], Sequence[str]], **options: Any) -> None:
        super().__init__(**options)
        self.logprobs = StepLogprobs({}, {})
        self.unsampled: dict[str, Unsampled] = {}  # by request
        self._sampler = sampler
        self._rows = rows
        self._step: VllmStep | None = None
        self._tails: OrderedDict[str, tuple[int, Tensor]] = OrderedDict()  # position, and logits of the token there

    def begin(self, step: VllmStep) -> None:
        """The next call samples for this step."""
        self._step = step
        self.logprobs, self.unsampled = StepLogprobs({}, {}), {}
        self._sampler.expect([draw for draw in step.draws.values() if draw is not None])
        for request in step.new:
            if request.prompt_logprobs is not None:
                self._find_first(request, request.prompt_logprobs)

    def forward(self, logits: Tensor, sampling_metadata: Any, *arguments: Any, **options: Any) -> Any:
        step, self._step = self._step, None
        if step is None:  # vLLM warms up
            return super().forward(logits, sampling_metadata, *arguments, **options)
        names = self._rows()[: len(logits)]
        logits = logits.to(torch.float32)
        self._keep_tails(step, names, logits)
        rows, draws = [], []
        for row, name in enumerate(names):
            draw = step.draws[name]
            if draw is not None:
                rows.append(row)
                draws.append(draw)
        tokens = torch.zeros(len(logits), 1, dtype=torch.int32)
        if draws:
            sampled = sample_tokens(self._sampler, logits if len(rows) == len(logits) else logits[rows], draws)
            for row, one in zip(rows, sampled, strict=True):
                tokens[row] = UNSAMPLED if one.token is None else one.token
                if one.logprobs is not None:
                    self.logprobs.sampled[names[row]] = one.logprobs
                if one.unsampled is not None:
                    self.unsampled[names[row]] = one.unsampled
        return SamplerOutput(sampled_token_ids=tokens.to(logits.device), logprobs_tensors=None)

    @staticmethod
    def gather_logprobs(logprobs: Tensor, num_logprobs: int, token_ids: Tensor) -> Any:
        """Gather log-probabilities of prompts as vLLM does, but without ranks: nobody asks for them, and counting them
        compiles.
        """
        values, ids = logprobs.topk(num_logprobs, dim=-1)
        own = token_ids[:, None]
        return LogprobsTensors(
            torch.cat([own, ids], dim=1).to(torch.int32),
            torch.cat([logprobs.gather(-1, own), values], dim=1),
            torch.zeros(len(logprobs), dtype=torch.int32, device=logprobs.device),
        )

    def _keep_tails(self, step: VllmStep, names: Sequence[str], logits: Tensor) -> None:
        """The last token of a chunk predicts the first one of the next."""
        for request in step.new:
            if request.prompt_logprobs is not None and step.draws[request.id] is None:
                self._tails[request.id] = len(request.tokens), logits[names.index(request.id)].clone()
        while len(self._tails) > MAX_TAILS:
            self._tails.popitem(last=False)

    def _find_first(self, request: NewRequest, num_top: int) -> None:
        position, logits = self._tails.pop(request.id, (0, None))
        if logits is not None and position == request.num_computed:
            [first] = of_tokens(logits[None], [request.tokens[position]], [num_top])
            self.logprobs.first[request.id] = first
