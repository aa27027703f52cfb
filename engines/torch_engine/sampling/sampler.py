"""Draws tokens from logits.

Order: bias, penalties, forbidden ends, what a grammar allows, temperature, then min_p and top_k cut, then top_p cuts
what they left. The draw inverts the distribution function over token ids with one uniform number per (seed, position):
tiny differences between batches, engines and machines move its steps by as little, so the token is the same.

A row whose largest number is not finite has no distribution: it fails its own request and no other. The request is to
blame if the model's logits were finite. Ids are checked against the vocabulary before they are used as indices: on a
GPU, one beyond it would end the process.
"""

from collections.abc import Iterable, Sequence
from math import gcd
from pathlib import Path

import msgspec
import torch
from torch import Tensor

from engines.grammars.masks import Allowed, AnswerSoFar, Masks
from engines.grammars.process import WALL_S, Vocabulary
from engines.models.files.model_config import ModelConfig
from engines.scheduling.batch import Chunk, ChunkResult, Draw, Unsampled
from engines.torch_engine.sampling.histories import Histories, Tally
from engines.torch_engine.sampling.randomness import uniform
from mesh.wire.requests import FailureCode, Sampling

NOT_FINITE = Unsampled("the model's output for it is not a number", FailureCode.STEP)
NOTHING_LEFT = Unsampled(
    "logit_bias, penalties, stop tokens and min_tokens leave no token to draw, or are too large", FailureCode.SAMPLING
)

GREEDY_BELOW = 1e-5  # temperature
HOTTEST = 3e38  # temperature: float32 holds it
WIDEST_PART, NARROWEST_PART = 256, 16  # of a row, tokens; vocabularies are mostly multiples of 64
LIKELY = (1e-3, 1e-5, 0.0)  # of the likeliest token's weight: those from there on are looked at, more if need be


class Sampler:
    """Draws for one model. ``eos_token_ids`` are forbidden while a request has fewer than ``min_tokens``."""

    def __init__(self, eos_token_ids: Sequence[int], masks: Masks) -> None:
        self._eos_token_ids = list(eos_token_ids)
        self._masks = masks
        self._histories = Histories()

    @classmethod
    def of(cls, folder: Path, config: ModelConfig, patience_s: float = WALL_S) -> "Sampler":
        """Make the sampler of the model in ``folder``. ``patience_s``: how long a batch waits for what its grammars
        allow.
        """
        vocabulary = Vocabulary(folder, config.vocab_size, tuple(config.eos_token_ids))
        return cls(config.eos_token_ids, Masks(vocabulary, patience_s))

    def expect(self, draws: Sequence[Draw]) -> None:
        """Announce what will be sampled, so that what its grammars allow is worked out meanwhile."""
        self._masks.ask(draws)

    def forced(
        self, chunks: Sequence[Chunk], results: Sequence[ChunkResult], most: int, step_s: float
    ) -> list[ChunkResult]:
        """Return the results of a step of ``step_s`` with what grammars force next, at most ``most`` tokens each."""
        answers = {
            place: AnswerSoFar(draw.request, draw.sampling.grammar, tokens)
            for place, (chunk, result) in enumerate(zip(chunks, results, strict=True))
            if (draw := chunk.draw) is not None
            and draw.sampling.grammar
            and self._goes_on(draw.sampling, tokens := [*draw.generated, *result.drawn])
        }
        told = list(results)
        if answers:
            forced = self._masks.forced(list(answers.values()), most, step_s, len(chunks))
            for place, found in zip(answers, forced, strict=True):
                told[place] = msgspec.structs.replace(told[place], forced=found)
        return told

    def _goes_on(self, sampling: Sampling, tokens: Sequence[int]) -> bool:
        """Whether an answer with these tokens, of which the last was drawn just now, is not known to be over."""
        ends = (*sampling.stop_token_ids, *self._eos_token_ids)
        return bool(tokens) and len(tokens) < sampling.max_tokens and tokens[-1] not in ends

    def draw(self, logits: Tensor, draws: Sequence[Draw]) -> list[int | Unsampled]:
        """One token per row of ``logits`` [rows, vocabulary] (float32; changed in place), or why there is none."""
        masks = self._masks.take(draws)
        adjusted = [i for i, draw in enumerate(draws) if _is_adjusted(draw)]
        was_finite = _finite_rows(logits[adjusted]) if adjusted else []
        for i in adjusted:
            self._adjust(logits[i], draws[i], masks[i])
        self._histories.forget_beyond(len(draws))
        tokens = _greedy(logits)
        for i, mask in enumerate(masks):
            if isinstance(mask, Unsampled):
                tokens[i] = mask
        for i, is_finite in zip(adjusted, was_finite, strict=True):
            if is_finite and tokens[i] is NOT_FINITE:
                tokens[i] = NOTHING_LEFT
        random = [i for i, draw in enumerate(draws) if _is_random(draw) and not isinstance(tokens[i], Unsampled)]
        if random:
            picked = logits if len(random) == len(draws) else logits[random]
            for i, token in zip(random, _draw_random(picked, [draws[i] for i in random]), strict=True):
                tokens[i] = token
        return tokens

    def _adjust(self, row: Tensor, draw: Draw, allowed: Allowed | None) -> None:
        sampling = draw.sampling
        if sampling.logit_bias:
            biases = {token: bias for token, bias in sampling.logit_bias.items() if 0 <= token < len(row)}
            ids = torch.tensor(list(biases), dtype=torch.long, device=row.device)
            row[ids] += torch.tensor(list(biases.values()), device=row.device)
        if sampling.repetition_penalty != 1.0:
            seen = self._histories.of(draw, row).seen.plus(draw.drafts)
            _penalise_repetition(row, sampling.repetition_penalty, seen.ids)
        if (sampling.presence_penalty or sampling.frequency_penalty) and draw.num_generated:
            _penalise_generated(row, sampling, self._histories.of(draw, row).generated.plus(draw.drafts))
        if draw.num_generated < sampling.min_tokens:
            ends = [*sampling.stop_token_ids, *(() if sampling.ignore_eos else self._eos_token_ids)]
            row[_known(ends, len(row))] = float("-inf")
        if allowed is not None and not isinstance(allowed, Unsampled):
            _constrain(row, torch.from_numpy(allowed).to(row.device))


def _constrain(row: Tensor, allowed: Tensor) -> None:
    """Where nothing is left of what the grammar allows (an end comes too early, say), the grammar counts."""
    row.masked_fill_(~allowed, float("-inf"))
    if row.amax() == float("-inf"):
        row.masked_fill_(allowed, 0.0)


def _is_random(draw: Draw) -> bool:
    return draw.sampling.temperature >= GREEDY_BELOW


def _is_adjusted(draw: Draw) -> bool:
    """Whether its logits are changed before a token is sampled from them."""
    sampling = draw.sampling
    return bool(
        sampling.logit_bias
        or sampling.repetition_penalty != 1.0
        or sampling.presence_penalty
        or sampling.frequency_penalty
        or draw.num_generated < sampling.min_tokens
        or sampling.grammar
    )


def _known(tokens: Iterable[int], vocab_size: int) -> list[int]:
    """Those that are in the vocabulary."""
    return [token for token in tokens if 0 <= token < vocab_size]


def _finite_rows(logits: Tensor) -> list[bool]:
    """Whether the largest number of each row is finite: it is none if any of the row is none."""
    finite: list[bool] = logits.amax(dim=-1).isfinite().tolist()
    return finite


def _greedy(logits: Tensor) -> list[int | Unsampled]:
    """The likeliest token of each row."""
    best = likeliest(logits)
    is_finite = logits.gather(1, best[:, None]).view(-1).isfinite()
    return [NOT_FINITE if token < 0 else token for token in torch.where(is_finite, best, -1).tolist()]


def likeliest(logits: Tensor) -> Tensor:
    """Return where the largest of each row [rows, vocabulary] is, the first of equals.

    On CPUs torch's argmax of long rows is slow and amax is not: the largest of each part, the part, then where in it.
    """
    width = gcd(logits.shape[-1], WIDEST_PART)
    if logits.device.type != "cpu" or width < NARROWEST_PART:
        return logits.argmax(dim=-1)
    parts = logits.view(len(logits), -1, width)
    part = parts.amax(dim=-1).argmax(dim=-1)
    return part * width + parts[torch.arange(len(parts)), part].argmax(dim=-1)


def _penalise_repetition(row: Tensor, penalty: float, ids: Tensor) -> None:
    """CTRL (Keskar et al., 2019): what has been seen gets less likely, whatever the sign of its logit."""
    seen = row[ids]
    row[ids] = torch.where(seen > 0, seen / penalty, seen * penalty)


def _penalise_generated(row: Tensor, sampling: Sampling, generated: Tally) -> None:
    row[generated.ids] -= sampling.presence_penalty + sampling.frequency_penalty * generated.counts


def _draw_random(logits: Tensor, draws: Sequence[Draw]) -> list[int]:
    def column(values: list[float]) -> Tensor:
        return torch.tensor(values, dtype=torch.float64, device=logits.device)[:, None]

    temperatures = torch.tensor([min(draw.sampling.temperature, HOTTEST) for draw in draws], device=logits.device)
    weights = torch.exp((logits - logits.amax(dim=-1, keepdim=True)) / temperatures[:, None])
    points = [uniform(draw.sampling.seed, draw.position) for draw in draws]
    tokens = [0] * len(draws)
    whole = [i for i, draw in enumerate(draws) if not _filters(draw.sampling)]
    if whole:
        steps = weights[whole].cumsum(dim=-1, dtype=torch.float64)
        at = torch.searchsorted(steps, column([points[i] for i in whole]) * steps[:, -1:], right=True)
        for i, token in zip(whole, at.view(-1).tolist(), strict=True):
            tokens[i] = token
    for i in sorted({*range(len(draws))} - {*whole}):
        ids, kept = _survivors(weights[i], draws[i].sampling)
        steps = kept.cumsum(dim=-1, dtype=torch.float64)
        tokens[i] = int(ids[torch.searchsorted(steps, points[i] * steps[-1], right=True)])
    return tokens


def _filters(sampling: Sampling) -> bool:
    return sampling.top_k > 0 or sampling.top_p < 1.0 or sampling.min_p > 0.0


def _survivors(weights: Tensor, sampling: Sampling) -> tuple[Tensor, Tensor]:
    """Ids, in order, and weights of the tokens that survive the cuts; the likeliest one's weight is 1.

    Likely ones alone are looked at first, which is mostly enough: to sort a vocabulary takes as long as a small model.
    """
    for floor in LIKELY:
        found = _cut(weights, sampling, floor)
        if found is not None:
            return found
    raise AssertionError("among all tokens there are survivors")


def _cut(weights: Tensor, sampling: Sampling, floor: float) -> tuple[Tensor, Tensor] | None:
    """The survivors; None if some may weigh less than ``floor``. Ties survive together."""
    ids = torch.nonzero(weights >= floor).view(-1)
    likely = weights[ids]
    least = weights.new_tensor(min(sampling.min_p, 1.0) if sampling.min_p > 0.0 else 0.0)
    if 0 < sampling.top_k <= len(likely):
        least = torch.maximum(least, likely.topk(sampling.top_k).values[-1])
    elif sampling.top_k > 0 and floor > 0.0:
        return None
    if sampling.top_p < 1.0:
        kept = likely[likely >= least]
        everybody = kept if least >= floor else weights.masked_fill(weights < least, 0.0) if least > 0.0 else weights
        last = _nucleus(kept, everybody.sum(dtype=torch.float64) * sampling.top_p)
        if last is None and floor > 0.0:
            return None
        least = least if last is None else torch.maximum(least, last)
    if least < floor:
        return None
    is_kept = likely >= least
    return ids[is_kept], likely[is_kept]


def _nucleus(weights: Tensor, wanted: Tensor) -> Tensor | None:
    """Weight of the last of the likeliest that together reach ``wanted`` (Holtzman et al., 2020); None: all do not."""
    likeliest = weights.sort(descending=True).values
    sums = likeliest.cumsum(dim=0, dtype=torch.float64)
    if sums[-1] < wanted:
        return None
    return likeliest[int((sums - likeliest < wanted).sum().clamp(min=1)) - 1]
