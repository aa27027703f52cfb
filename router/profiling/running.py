"""Carries experiments out."""

import asyncio
from collections.abc import Callable, Sequence

from router.profiling.client import ModelClient
from router.profiling.experiments import Aim, Answered, AskedLengths, LoadExperiment, SeenExperiment

STEADY = 6  # tokens of each answer before a prompt joins them, and between two that do


class _Progress:
    """How many pieces of each answer have come. Whoever waits for more is woken."""

    def __init__(self, num_answers: int) -> None:
        self.counts = [0] * num_answers
        self.ended = [False] * num_answers
        self._changed = asyncio.Event()

    def teller(self, index: int) -> Callable[[], None]:
        def tell() -> None:
            self.counts[index] += 1
            self._changed.set()

        return tell

    def end(self, index: int) -> None:
        self.ended[index] = True
        self._changed.set()

    async def until_all_have(self, counts: Sequence[int]) -> bool:
        """Whether they came to have so many; False: one ended before."""
        while any(have < want for have, want in zip(self.counts, counts, strict=True)):
            if any(self.ended):
                return False
            self._changed.clear()
            await self._changed.wait()
        return True


async def run_experiment(client: ModelClient, experiment: LoadExperiment) -> SeenExperiment:
    """Raise `AnswerError` if a request fails."""
    if experiment.aim is Aim.TWICE:
        [ask] = experiment.asks
        prompt = client.prompt(ask.num_input)
        return SeenExperiment(experiment, [await client.ask(prompt, ask.num_output) for _ in range(2)])
    prompts = [client.prompt(ask.num_input) for ask in experiment.asks]
    joining = [client.prompt(ask.num_input) for ask in experiment.joins]
    progress = _Progress(len(prompts))

    async def answer(index: int) -> Answered:
        try:
            num_output = experiment.asks[index].num_output
            return await client.ask(prompts[index], num_output, progress.teller(index))
        finally:
            progress.end(index)

    try:
        async with asyncio.TaskGroup() as tasks:
            asked = [tasks.create_task(answer(index)) for index in range(len(prompts))]
            joined = tasks.create_task(_join(client, experiment.joins, joining, progress))
    except* Exception as errors:
        raise errors.exceptions[0] from None
    return SeenExperiment(experiment, [one.result() for one in asked], joined.result())


async def _join(
    client: ModelClient, asks: Sequence[AskedLengths], prompts: Sequence[str | list[int]], progress: _Progress
) -> list[Answered]:
    """One after the other, each when the answers have gone on for a while; none once one of them has ended."""
    joined: list[Answered] = []
    for ask, prompt in zip(asks, prompts, strict=True):
        if not await progress.until_all_have([count + STEADY for count in progress.counts]):
            break
        joined.append(await client.ask(prompt, ask.num_output))
    return joined
