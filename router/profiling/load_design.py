"""The load that ``mesh profile --url`` sends: rounds of experiments, from short to long, as far as time allows.

Lengths and numbers grow by doubling, as each term shows where it is largest. The fixed parts show in the smallest, the
part of each token in long prompts, that of each request in many answers, that of context in answers to long prompts.
Prompts that join answers tell an iteration from a request's way, and how many tokens it computes at most. Lengths
between those judge the fit.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from router.profiling.experiments import Aim, AskedLengths, LoadExperiment, SeenExperiment

LENGTHS = (16, 64, 256, 512, 1024, 2048, 4096, 8192, 16384)
TOGETHER = (2, 4, 8, 16, 32, 64, 128, 256, 512)
SHORT, LONG_CONTEXT = 32, 512  # tokens of prompts whose answers are written together
BURSTS = (1024, 4096, 16384)  # tokens in all, of prompts at once
NUM_BURST = 32
ANSWER, WRITTEN, JOINED_ANSWER = 8, 24, 4  # tokens
STEPS_A_JOIN = 24  # of the answers that are joined
TWICE_TOKENS = 1024
ONE_EXPERIMENT = 0.12  # of all the time that one may take
MORE = 1.3  # times as long as expected, for what is not known yet


@dataclass(frozen=True, slots=True)
class LoadLimits:
    """``longest``: tokens of a prompt and its answer. ``most_together``: requests at a time."""

    seconds: float
    longest: int
    most_together: int = 256
    rounds: int = 100


@dataclass(slots=True)
class Expected:
    """Roughly what experiments take, from those that were seen; upper bounds rather than means."""

    request_s: float = 0.0
    token_s: float = 0.0
    step_s: float = 0.0
    per_request_s: float = 0.0

    def learn(self, seen: SeenExperiment) -> None:
        answers = [one for one in seen.answers if len(one.events) > 1]
        if not answers or seen.experiment.aim in (Aim.BURST, Aim.TWICE):
            return
        rate_s = max((one.last_s - one.first_s) / max(1, one.events[-1].num_tokens - 1) for one in answers)
        if len(answers) > 1:
            self.per_request_s = max(0.0, rate_s - self.step_s) / (len(answers) - 1)
            return
        one = answers[0]
        self.step_s = self.step_s or rate_s
        self.request_s = self.request_s or one.ttft_s
        self.token_s = max(0.0, one.ttft_s - self.request_s) / one.num_input or self.token_s

    def duration_s(self, experiment: LoadExperiment) -> float:
        step_s = self.step_s + self.per_request_s * (len(experiment.asks) - 1)
        steps = experiment.num_steps * step_s if experiment.aim is not Aim.BURST else 0.0
        return MORE * (self.request_s + experiment.num_prompt_tokens * self.token_s + steps)


@dataclass(slots=True)
class LoadDesign:
    """Says which experiment is next. Tell it what was seen of each."""

    limits: LoadLimits
    expected: Expected = field(default_factory=Expected)
    num_rounds: int = 0  # that are over
    left_out: set[LoadExperiment] = field(default_factory=set)  # for want of time, in the last round

    def experiments(self) -> Iterator[LoadExperiment]:
        """Yield the experiments of one round. It is over when they are."""
        self.left_out = set()
        for experiment in _round(self.num_rounds):
            if self._fits(experiment):
                yield experiment
        self.num_rounds += 1

    def _fits(self, experiment: LoadExperiment) -> bool:
        too_many = experiment.num_at_once > self.limits.most_together
        if experiment.num_longest > self.limits.longest or too_many:
            return False
        if self.expected.duration_s(experiment) > ONE_EXPERIMENT * self.limits.seconds:
            self.left_out.add(experiment)
            return False
        return True

    def saw(self, seen: SeenExperiment) -> None:
        self.expected.learn(seen)

    def failed(self, experiment: LoadExperiment) -> None:
        """Ask for less from now on: for fewer at a time, or for shorter prompts where it was one alone."""
        if experiment.num_at_once > 1:
            self.limits = replace(self.limits, most_together=experiment.num_at_once // 2)
        else:
            self.limits = replace(self.limits, longest=experiment.num_longest - 1)


def _round(number: int) -> Iterator[LoadExperiment]:
    """The first round goes from short to long, as nothing is known of the server yet; later ones do the same again."""
    for length in LENGTHS[:3]:
        yield _alone(length)
    yield _together(2, SHORT)
    yield _alone(48, is_held_out=True)
    yield _joined(2, (64, 256))
    yield _joined(4, (64,), context=LONG_CONTEXT)
    yield _joined(3, (96,), is_held_out=True)
    for length in LENGTHS[3:]:
        yield _alone(length)
    yield from (_alone(length, is_held_out=True) for length in (384, 1536, 6144))
    yield _joined(2, (1024,))
    if number == 0:
        yield LoadExperiment(Aim.TWICE, (AskedLengths(TWICE_TOKENS, 1),))
    for size in TOGETHER[1:]:
        yield _together(size, SHORT)
        if size in (4, 16, 64, 256):
            yield _together(size, LONG_CONTEXT)
            yield _together(3 * size // 4, 96, is_held_out=True)
            yield _joined(size, (64, 256))
            yield _joined(3 * size // 4, (128,), is_held_out=True)
    yield _joined(8, (256,), context=LONG_CONTEXT)
    for length in (2048, 4096, 8192, 16384):
        yield _joined(2, (length,))
    for tokens in BURSTS:
        yield LoadExperiment(Aim.BURST, (AskedLengths(tokens // NUM_BURST, 1),) * NUM_BURST)


def _alone(length: int, *, is_held_out: bool = False) -> LoadExperiment:
    return LoadExperiment(Aim.PREFILL, (AskedLengths(length, ANSWER),), is_held_out=is_held_out)


def _together(size: int, length: int, *, is_held_out: bool = False) -> LoadExperiment:
    num_output = WRITTEN + size * length // 512  # they begin one after the other
    return LoadExperiment(Aim.DECODE, (AskedLengths(length, num_output),) * size, is_held_out=is_held_out)


def _joined(size: int, lengths: tuple[int, ...], *, context: int = SHORT, is_held_out: bool = False) -> LoadExperiment:
    joins = tuple([AskedLengths(length, JOINED_ANSWER) for length in lengths])
    num_output = STEPS_A_JOIN * (1 + len(lengths)) + (max(lengths) + size * context) // 128
    return LoadExperiment(Aim.JOIN, (AskedLengths(context, num_output),) * size, joins, is_held_out)
