"""Static batches: who is in one, what it computes, and when its requests leave."""

import pytest

from engines.core import EngineCore
from engines.effects import Effect
from engines.scheduling.batch import Batch, Rows
from kvtransfer.protocol import Send
from mesh.topology.schema import Scheduling
from mesh.wire.control import Role
from mesh.wire.requests import Cancel, Epoch, RequestSpec, Sampling, SlicesEnded, StepTokens, Submit, SubmitBatch
from mesh.wire.transfers import Declined, Reserve
from tests.engines.scheduling.disciplines.test_engines import engine
from tests.engines.virtual_memory import GATEWAY, SHAPE, HashingExecutor, VirtualContent, continuation

STATIC, PADDED = Scheduling.STATIC, Scheduling.PADDED


def spec(name: str, num_prompt: int, num_answer: int, generated: tuple[int, ...] = ()) -> RequestSpec:
    sampling = Sampling(max_tokens=num_answer, seed=1, ignore_eos=True)
    prompt = [ord(name[-1]) + index for index in range(num_prompt)]
    return RequestSpec(name, GATEWAY, "small", prompt, sampling, 1.0, 0.1, generated=list(generated))


class Served:
    """An engine and all that it said."""

    def __init__(self, scheduling: Scheduling) -> None:
        self.core: EngineCore = engine(scheduling, Role.MULTIPLEX, is_strict=False, num_pages=200)
        content = self.core._services["small"].pool._content
        assert isinstance(content, VirtualContent)
        self._executor = HashingExecutor(content.memory)
        self.batches: list[Batch] = []
        self.said: list[tuple[int, str, str]] = []  # (after how many steps, what, of which request)
        self.streams: dict[str, list[int]] = {}

    def send(self, *specs: RequestSpec, slice_tokens: int | None = None, attempt: int = 1) -> None:
        submits = [Submit(each, Epoch(attempt), slice_tokens=slice_tokens) for each in specs]
        self._hear(self.core.receive(GATEWAY, SubmitBatch(submits), (), 0.0))

    def send_alone(self, each: RequestSpec) -> None:
        self._hear(self.core.receive(GATEWAY, Submit(each, Epoch(1)), (), 0.0))

    def run(self, num_steps: int = 1000) -> None:
        for _ in range(num_steps):
            batch, effects = self.core.next_batch(0.0)
            self._hear(effects)
            if batch is None:
                return
            self.batches.append(batch)
            self._hear(self.core.finish_step(self._executor.execute(batch), 0.0))

    @property
    def sizes(self) -> list[int]:
        return [len(batch.chunks) for batch in self.batches]

    def _hear(self, effects: list[Effect]) -> None:
        self.core.check_invariants()
        for message in [effect.message for effect in effects if isinstance(effect, Send)]:
            if isinstance(message, StepTokens):
                for delta in message.deltas:
                    what = "tokens" if delta.finish is None else "end"
                    self.said.append((len(self.batches), what, delta.request))
                    self.streams.setdefault(delta.request, []).extend(delta.tokens)
            elif isinstance(message, SlicesEnded):
                self.said += [(len(self.batches), "slice", request) for request, _ in message.requests]

    def ends(self) -> list[tuple[int, str, str]]:
        return [one for one in self.said if one[1] != "tokens"]


@pytest.mark.parametrize("scheduling", [STATIC, PADDED])
def test_nobody_joins_a_batch_that_runs(scheduling: Scheduling):
    served = Served(scheduling)
    served.send(spec("a", 5, 4), spec("b", 9, 4))
    served.run(2)
    served.send(spec("c", 5, 2))
    served.run()
    assert [sorted(chunk.request for chunk in batch.chunks) for batch in served.batches] == [["a", "b"]] * 4 + [
        ["c"]
    ] * 2


def test_requests_that_come_alone_are_batched_in_their_order_up_to_the_engines_size():
    served = Served(STATIC)
    for name in "abcdefghij":
        served.send_alone(spec(name, 2, 1))
    served.run()
    assert ["".join(chunk.request for chunk in batch.chunks) for batch in served.batches] == ["abcdef", "ghij"]


def test_a_batch_that_came_as_one_is_not_cut():
    served = Served(STATIC)
    served.send(*(spec(name, 2, 2) for name in "abcdefghijkl"))
    served.run()
    assert served.sizes == [12, 12]


def test_at_the_end_of_a_slice_the_rest_goes_back_with_its_tokens():
    served = Served(STATIC)
    short, long = spec("s", 6, 2), spec("l", 7, 9)
    served.send(short, long, slice_tokens=4)
    served.run()
    assert served.ends() == [(2, "end", "s"), (4, "slice", "l")]
    assert served.streams["l"] == continuation(long.prompt, 9)[:4]
    assert served.core.is_idle
    served.send(spec("l", 7, 9, tuple(served.streams["l"])), slice_tokens=4, attempt=2)
    served.run()
    served.send(spec("l", 7, 9, tuple(served.streams["l"])), slice_tokens=4, attempt=3)
    served.run()
    assert served.ends()[2:] == [(8, "slice", "l"), (9, "end", "l")]
    assert served.streams["l"] == continuation(long.prompt, 9)


def test_a_request_whose_answer_ends_with_the_slice_has_ended():
    served = Served(STATIC)
    served.send(spec("a", 6, 4), slice_tokens=4)
    served.run()
    assert served.ends() == [(4, "end", "a")]


def test_padded_rows_stay_until_the_batch_is_over_and_so_do_answers():
    served = Served(PADDED)
    served.send(spec("a", 3, 2), spec("b", 9, 5), spec("c", 5, 9), slice_tokens=6)
    served.run()
    decodes = [Rows(3, 1, 9 + step, 5 - step) for step in range(5)]
    assert [batch.rows for batch in served.batches] == [Rows(3, 9, 0, 6), *decodes]
    assert served.sizes == [3, 3, 2, 2, 2, 1]
    assert {when for when, _, _ in served.said} == {6}
    assert [(what, request) for _, what, request in served.ends()] == [("end", "a"), ("end", "b"), ("slice", "c")]
    assert served.streams["b"] == continuation(spec("b", 9, 5).prompt, 5)


def test_a_padded_batch_that_all_leave_early_ends_early():
    served = Served(PADDED)
    served.send(spec("a", 3, 2), spec("b", 9, 3), slice_tokens=100)
    served.run()
    assert len(served.batches) == 3


def test_a_padded_batch_takes_no_prefix_of_another():
    """It would compute less than it does."""
    served = Served(PADDED)
    for attempt in (1, 2):
        served.send(spec("a", 20, 2), attempt=attempt)
        served.run()
    assert [batch.num_tokens for batch in served.batches] == [20, 1, 20, 1]


@pytest.mark.parametrize("scheduling", [STATIC, PADDED])
def test_a_batch_goes_on_without_who_is_cancelled(scheduling: Scheduling):
    served = Served(scheduling)
    served.send(spec("a", 3, 6), spec("b", 5, 6))
    served.send(spec("c", 5, 1))
    served.run(2)
    for name in "ab":
        served._hear(served.core.receive(GATEWAY, Cancel(name, Epoch(1, 9)), (), 0.0))
    served.run()
    assert served.ends() == [(3, "end", "c")]
    assert served.core.is_idle


def test_a_padded_batch_answers_when_the_last_that_drew_is_cancelled():
    served = Served(PADDED)
    served.send(spec("a", 3, 2), spec("b", 5, 60))
    served.run(4)
    served._hear(served.core.receive(GATEWAY, Cancel("b", Epoch(1, 9)), (), 0.0))
    served.run()
    assert [(what, request) for _, what, request in served.ends()] == [("end", "a")]


def test_nobody_moves_to_static_batches():
    served = Served(STATIC)
    reserve = Reserve("t", spec("a", 3, 3), Epoch(1, 1), 3, SHAPE, None, 1.0, is_migration=True)
    effects = served.core.receive("other", reserve, (), 0.0)
    assert [type(effect.message) for effect in effects if isinstance(effect, Send)] == [Declined]


def test_a_padded_batch_has_as_many_rows_as_memory_holds_to_its_end():
    """Padding and the longest answer count for each row: none of them can be preempted."""
    served = Served(PADDED)
    core = served.core
    pool = core._services["small"].pool
    names = [chr(ord("a") + number) for number in range(12)]
    answer = (pool.num_blocks // 4) * pool.block_size - 12
    served.send(*(spec(name, *((12, answer) if name == "a" else (2, 3))) for name in names))
    served.run()
    assert {name: len(tokens) for name, tokens in served.streams.items()} == {"a": answer} | dict.fromkeys(names[1:], 3)
    assert [batch.rows.num_rows for batch in served.batches if not batch.chunks[0].start] == [3, 9]
    assert core.status(0.0).preemptions_total == 0


def test_what_is_left_of_a_padded_batch_shrinks_as_decodes_are_passed():
    assert Rows(3, 1, 9, 5).after(2) == Rows(3, 1, 11, 3)
