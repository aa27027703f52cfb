"""The engine core: whatever happens in whatever order, right tokens or an answer, and no block lost."""

import msgspec
import pytest

from engines.engine_request import MOST_SAID_AGAIN
from engines.memory.block_pool import BlockPool
from engines.scheduling.batch import Batch, ChunkResult, StepResult, Unsampled
from kvtransfer.protocol import Send
from mesh.topology.schema import Scheduling
from mesh.wire.control import Role
from mesh.wire.messages import Message
from mesh.wire.requests import (
    Accepted,
    Cancel,
    Delta,
    Epoch,
    Failed,
    FailureCode,
    FinishReason,
    Held,
    Holding,
    NotHeld,
    Probe,
    ProbeQuestion,
    Recall,
    RefusalCode,
    Refused,
    Sampling,
    StepTokens,
    TokenLogprobs,
)
from mesh.wire.transfers import Abort, Blocks, Commit, Committed, Reserved, Taken
from tests.engines.conftest import MakeSequence, MakeSpec
from tests.engines.virtual import GATEWAY, SERVICE, HashingExecutor, VirtualMemory, VirtualMesh, continuation
from tests.seeds import each_seed

SEEDS = range(25)


def two_engines(seed: int = 0, **options: object) -> VirtualMesh:
    mesh = VirtualMesh(seed, **options)  # type: ignore[arg-type]
    mesh.add("prefill", Role.PREFILL)
    mesh.add("decode")
    return mesh


def pool(mesh: VirtualMesh, engine: str) -> BlockPool:
    return mesh.engines[engine].core._services[SERVICE].pool


def refusals(mesh: VirtualMesh) -> list[RefusalCode]:
    return [answer.code for answer in mesh.answers if isinstance(answer, Refused)]


def test_one_engine_runs_a_request_from_prompt_to_end(make_spec: MakeSpec):
    mesh = VirtualMesh()
    mesh.add("only")
    spec = make_spec("r", 21, max_tokens=9)
    mesh.submit("only", spec)
    mesh.settle()
    assert mesh.streams["r"] == continuation(spec.prompt, 9)
    assert mesh.finished == {"r": "length"}
    assert mesh.answers == [Accepted("r", Epoch(1), 1)]


@each_seed(SEEDS)
def test_many_requests_prefilled_here_and_decoded_there(make_spec: MakeSpec, seed: int):
    mesh = two_engines(seed)
    specs = [make_spec(f"r{index}", 3 + 5 * index, max_tokens=1 + 3 * index, first=index % 3) for index in range(6)]
    for spec in specs:
        mesh.submit("prefill", spec, decode="decode")
    mesh.settle()
    for spec in specs:
        assert mesh.streams[spec.id] == continuation(spec.prompt, spec.sampling.max_tokens)
    assert refusals(mesh) == []


@each_seed(SEEDS)
def test_a_pool_too_small_for_all_preempts_and_still_gives_the_same_tokens(make_spec: MakeSpec, seed: int):
    mesh = VirtualMesh(seed)
    mesh.add("small", num_blocks=9)
    specs = [make_spec(f"r{index}", 6, max_tokens=20, first=100 * index) for index in range(4)]
    for spec in specs:
        mesh.submit("small", spec)
    mesh.settle()
    for spec in specs:
        assert mesh.streams[spec.id] == continuation(spec.prompt, 20)
    assert mesh.engines["small"].core.status(0.0).preemptions_total > 0


@each_seed(SEEDS)
@pytest.mark.parametrize("kind", [Blocks, Taken])
def test_lost_blocks_are_computed_again_at_the_destination(make_spec: MakeSpec, seed: int, kind: type):
    lost: list[Message] = []

    def lose(sender: str, to: str, message: Message) -> bool:
        if isinstance(message, kind) and len(lost) < 2:
            lost.append(message)
            return True
        return False

    mesh = two_engines(seed, lose=lose)
    spec = make_spec("r", 40, max_tokens=6)
    mesh.submit("prefill", spec, decode="decode")
    mesh.settle()
    assert lost
    if refusals(mesh):  # the sender got stuck, and leaves it to the gateway, which knows the tokens so far
        assert refusals(mesh) == [RefusalCode.TRANSFER_FAILED]
        mesh.submit("decode", msgspec.structs.replace(spec, generated=list(mesh.streams["r"])), attempt=2)
        mesh.settle()
    assert mesh.streams["r"] == continuation(spec.prompt, 6)


@each_seed(SEEDS)
@pytest.mark.parametrize("kind", [Reserved, Commit, Committed])
def test_a_lost_word_of_the_handshake_is_answered_with_a_refusal_and_nothing_leaks(
    make_spec: MakeSpec, seed: int, kind: type
):
    mesh = two_engines(seed, lose=lambda sender, to, message: isinstance(message, kind | Abort))
    mesh.submit("prefill", make_spec("r", 20, max_tokens=400), decode="decode")
    mesh.settle()
    if kind is Committed:  # the request lives on at the decode engine; the gateway's stream is whole
        assert mesh.finished == {"r": "length"}
    else:
        assert refusals(mesh) in ([RefusalCode.PEER_SILENT], [RefusalCode.TRANSFER_FAILED])


@each_seed(SEEDS)
def test_an_owner_whose_word_was_lost_says_again_that_it_is_one(make_spec: MakeSpec, seed: int):
    lost: list[Message] = []

    def lose(sender: str, to: str, message: Message) -> bool:
        if isinstance(message, Committed) and len(lost) < 2:
            lost.append(message)
            return True
        return False

    mesh = two_engines(seed, lose=lose)
    spec = make_spec("r", 20, max_tokens=60)
    mesh.submit("prefill", spec, decode="decode")
    mesh.settle()
    assert len(lost) == 2
    assert refusals(mesh) == []
    assert mesh.streams["r"] == continuation(spec.prompt, 60)


@each_seed(SEEDS)
@pytest.mark.parametrize("steps", [0, 1, 3, 6, 10, 15, 25])
def test_a_cancelled_request_frees_everything_at_any_moment(make_spec: MakeSpec, seed: int, steps: int):
    mesh = two_engines(seed)
    mesh.submit("prefill", make_spec("r", 30, max_tokens=500), decode="decode")
    for _ in range(steps):
        mesh.step()
    for engine in mesh.engines:
        mesh.deliver(GATEWAY, engine, Cancel("r", Epoch(1, 9)))
    mesh.settle()
    assert "r" not in mesh.finished


@each_seed(SEEDS)
@pytest.mark.parametrize(("victim", "survivor"), [("prefill", "decode"), ("decode", "prefill"), (GATEWAY, "decode")])
@pytest.mark.parametrize("steps", [2, 8, 20])
def test_a_dead_peer_leaves_nothing_behind(make_spec: MakeSpec, seed: int, victim: str, survivor: str, steps: int):
    mesh = two_engines(seed)
    mesh.submit("prefill", make_spec("r", 30, max_tokens=500), decode="decode")
    for _ in range(steps):
        mesh.step()
    if victim == GATEWAY:
        for name, engine in mesh.engines.items():
            mesh.perform(name, engine.core.lose_peer(GATEWAY, mesh.now))
    else:
        mesh.kill(victim)
    mesh.settle()
    assert pool(mesh, survivor).num_held == 0


@each_seed(SEEDS)
@pytest.mark.parametrize("steps", [4, 8, 12, 16, 20])
def test_a_hand_over_that_ends_late_does_not_replace_a_newer_attempt(make_spec: MakeSpec, seed: int, steps: int):
    mesh = two_engines(seed)
    spec = make_spec("r", 30, max_tokens=40)
    mesh.submit("prefill", spec, decode="decode")
    for _ in range(steps):
        mesh.step()
    mesh.submit("decode", spec, attempt=2)
    mesh.settle()
    assert mesh.streams["r"] == continuation(spec.prompt, 40)
    assert mesh.finished_under["r"].attempt == 2


@pytest.mark.parametrize("steps", [2, 8, 20])
def test_a_gateway_that_was_only_silent_hears_that_its_request_ended(make_spec: MakeSpec, steps: int):
    mesh = two_engines()
    mesh.submit("prefill", make_spec("r", 30, max_tokens=500), decode="decode")
    for _ in range(steps):
        mesh.step()
    for name, engine in mesh.engines.items():
        mesh.perform(name, engine.core.lose_peer(GATEWAY, mesh.now))
    mesh.settle()
    assert refusals(mesh)
    assert set(refusals(mesh)) <= {RefusalCode.GATEWAY_SILENT, RefusalCode.TRANSFER_FAILED}


def test_a_new_attempt_at_the_same_engine_replaces_the_old_one(make_spec: MakeSpec):
    mesh = two_engines()
    spec = make_spec("r", 20, max_tokens=5)
    mesh.submit("decode", spec)
    mesh.step()
    mesh.submit("decode", spec, attempt=2)
    mesh.deliver(GATEWAY, "decode", Cancel("r", Epoch(1)))  # late, of the first attempt
    mesh.settle()
    assert mesh.streams["r"] == continuation(spec.prompt, 5)


def test_a_continuation_gives_the_tokens_that_were_missing(make_spec: MakeSpec):
    mesh = two_engines()
    tokens = continuation(list(range(1, 9)), 10)
    mesh.streams["r"] = tokens[:4]
    mesh.submit("prefill", make_spec("r", 8, max_tokens=10, generated=tokens[:4]), decode="decode")
    mesh.settle()
    assert mesh.streams["r"] == tokens


def test_the_second_transfer_of_a_prompt_sends_only_what_is_not_there(make_spec: MakeSpec):
    sent: list[Blocks] = []

    def lose(sender: str, to: str, message: Message) -> bool:
        if isinstance(message, Blocks):
            sent.append(message)
        return False

    mesh = two_engines(lose=lose)
    for request in ("first", "second"):
        mesh.submit("prefill", make_spec(request, 18), decode="decode")
        mesh.settle()
    assert sum(message.num_tokens for message in sent if message.transfer.startswith("first")) == 18
    assert sum(message.num_tokens for message in sent if message.transfer.startswith("second")) == 2


def test_a_prefill_that_the_running_decodes_cannot_afford_is_refused(make_spec: MakeSpec):
    mesh = VirtualMesh()
    mesh.add("busy", num_blocks=64)
    mesh.submit("busy", make_spec("decoding", 4, max_tokens=50, slo_tpot_s=0.03))
    for _ in range(8):
        mesh.step()
    mesh.submit("busy", make_spec("long", 200), multiplex=True)
    mesh.submit("busy", make_spec("short", 2, first=500), multiplex=True)
    mesh.settle()
    assert refusals(mesh) == [RefusalCode.NO_SLACK]
    assert set(mesh.finished) == {"decoding", "short"}


def test_an_engine_that_batches_continuously_takes_it_all_the_same(make_spec: MakeSpec):
    mesh = VirtualMesh()
    mesh.add("busy", num_blocks=64, scheduling=Scheduling.CONTINUOUS)
    mesh.submit("busy", make_spec("decoding", 4, max_tokens=50, slo_tpot_s=0.03))
    for _ in range(8):
        mesh.step()
    mesh.submit("busy", make_spec("long", 200), multiplex=True)
    mesh.settle()
    assert refusals(mesh) == []
    assert set(mesh.finished) == {"decoding", "long"}


@pytest.mark.parametrize(
    ("overrides", "code"),
    [
        ({"service": "other"}, RefusalCode.UNKNOWN_SERVICE),
        ({"num_prompt": 128}, RefusalCode.NO_MEMORY),
    ],
)
def test_what_cannot_run_here_is_refused_with_the_reason(
    make_spec: MakeSpec, overrides: dict[str, object], code: RefusalCode
):
    mesh = two_engines()
    mesh.submit("decode", make_spec("r", **overrides))
    mesh.settle()
    assert refusals(mesh) == [code]


def test_a_full_queue_and_a_draining_engine_refuse(make_spec: MakeSpec):
    mesh = VirtualMesh()
    engine = mesh.add("e", max_waiting=1)
    for index in range(2):
        mesh.submit("e", make_spec(f"r{index}"))
    mesh.perform("e", engine.core.drain(0.0))
    mesh.submit("e", make_spec("late"))
    mesh.settle()
    assert refusals(mesh) == [RefusalCode.FULL, RefusalCode.DRAINING]
    assert mesh.finished == {"r0": "length"}


def test_a_decode_engine_without_room_declines_and_the_gateway_hears_why(make_spec: MakeSpec):
    mesh = VirtualMesh()
    mesh.add("prefill", Role.PREFILL)
    mesh.add("decode", num_blocks=4)
    mesh.submit("prefill", make_spec("r", 40), decode="decode")
    mesh.settle()
    assert refusals(mesh) == [RefusalCode.NO_MEMORY]


def test_a_submit_that_comes_again_after_the_end_brings_nothing_back(make_spec: MakeSpec):
    mesh = two_engines()
    mesh.submit("prefill", make_spec("r"), decode="decode")
    mesh.settle()
    num_answers = len(mesh.answers)
    for engine in ("prefill", "decode"):
        mesh.submit(engine, make_spec("r"))
    assert mesh.engines["prefill"].core.is_idle
    assert mesh.engines["decode"].core.is_idle
    assert len(mesh.answers) == num_answers
    mesh.submit("prefill", make_spec("r"), attempt=2)
    assert not mesh.engines["prefill"].core.is_idle


def test_an_answer_that_outgrows_the_pool_ends_with_length(make_spec: MakeSpec):
    mesh = VirtualMesh()
    mesh.add("tiny", num_blocks=3)
    mesh.submit("tiny", make_spec("r", 6, max_tokens=100))
    mesh.settle()
    assert mesh.finished == {"r": "length"}
    assert mesh.streams["r"] == continuation(list(range(1, 7)), len(mesh.streams["r"]))


def test_a_step_that_fails_fails_its_requests_only(make_spec: MakeSpec):
    mesh = VirtualMesh()
    engine = mesh.add("e")
    mesh.submit("e", make_spec("bad"))
    engine.core.next_batch(0.0)
    mesh.perform("e", engine.core.fail_step("out of memory", 0.0))
    mesh.submit("e", make_spec("good"))
    mesh.settle()
    assert [type(answer).__name__ for answer in mesh.answers] == ["Accepted", "Failed", "Accepted"]
    assert set(mesh.finished) == {"good"}


class PoisonedError(Exception):
    """A batch that cannot be computed."""


class PoisonedExecutor(HashingExecutor):
    """Fails every batch with one of these requests in it."""

    def __init__(self, memory: VirtualMemory, *poison: str) -> None:
        super().__init__(memory)
        self.poison = poison
        self.num_failures = 0

    def execute(self, batch: Batch) -> StepResult:
        if any(chunk.request in self.poison for chunk in batch.chunks):
            self.num_failures += 1
            raise PoisonedError
        return super().execute(batch)


def settle_poisoned(mesh: VirtualMesh) -> None:
    while True:
        try:
            mesh.settle()
        except PoisonedError:
            mesh.perform("e", mesh.engines["e"].core.fail_step("poisoned", mesh.now))
        else:
            return


@pytest.mark.parametrize("poison", [("r3",), ("r0", "r6"), ()])
def test_a_step_that_fails_fails_the_guilty_request_only(make_spec: MakeSpec, poison: tuple[str, ...]):
    mesh = VirtualMesh()
    engine = mesh.add("e", num_blocks=64, chunk_tokens=64)
    engine.executor = executor = PoisonedExecutor(engine.memory)
    requests = [make_spec(f"r{index}", 5 + index, max_tokens=12) for index in range(7)]
    for spec in requests:
        mesh.submit("e", spec)
    while len(mesh.streams) < 7:
        mesh.step()
    executor.poison = poison
    settle_poisoned(mesh)
    failed = [answer.request for answer in mesh.answers if isinstance(answer, Failed)]
    assert sorted(failed) == sorted(poison)
    for spec in requests:
        if spec.id not in poison:
            assert mesh.streams[spec.id] == continuation(spec.prompt, 12)
    assert executor.num_failures <= 7, "a batch of seven is halved three times for each"


def test_what_ends_while_its_step_is_tried_again_is_not_computed(make_spec: MakeSpec):
    mesh = VirtualMesh()
    engine = mesh.add("e", num_blocks=64, chunk_tokens=64)
    engine.executor = executor = PoisonedExecutor(engine.memory)
    for index in range(4):
        mesh.submit("e", make_spec(f"r{index}", 5, max_tokens=12))
    while len(mesh.streams) < 4:
        mesh.step()
    executor.poison = ("r1",)
    with pytest.raises(PoisonedError):
        mesh.settle()
    mesh.perform("e", engine.core.fail_step("poisoned", mesh.now))
    for request in ("r0", "r1"):
        mesh.deliver("gateway", "e", Cancel(request, Epoch(1)))
    settle_poisoned(mesh)
    assert set(mesh.finished) == {"r2", "r3"}
    assert executor.num_failures == 1


class UndrawingExecutor(HashingExecutor):
    """Samples no token for some requests: ``why`` says for how many of their next draws, and why not."""

    def __init__(self, memory: VirtualMemory, why: dict[str, list[Unsampled]]) -> None:
        super().__init__(memory)
        self.why = why

    def execute(self, batch: Batch) -> StepResult:
        result = super().execute(batch)
        chunks = [
            ChunkResult(unsampled=self.why[chunk.request].pop(0))
            if chunk.draw and self.why.get(chunk.request)
            else given
            for chunk, given in zip(batch.chunks, result.chunks, strict=True)
        ]
        return StepResult(chunks, result.elapsed_s)


def test_a_request_whose_mask_is_late_is_computed_again_and_answers_alike(make_spec: MakeSpec):
    mesh = VirtualMesh()
    engine = mesh.add("e", num_blocks=64, chunk_tokens=4)
    engine.executor = UndrawingExecutor(engine.memory, {"r1": [Unsampled()] * 5, "r2": [Unsampled()]})
    requests = [make_spec(f"r{index}", 5 + index, max_tokens=12) for index in range(4)]
    for spec in requests:
        mesh.submit("e", spec)
    mesh.settle()
    for spec in requests:
        assert mesh.streams[spec.id] == continuation(spec.prompt, 12)


@pytest.mark.parametrize("num_sampled", [0, 3])
def test_a_request_that_nothing_can_be_sampled_for_fails_alone(make_spec: MakeSpec, num_sampled: int):
    mesh = VirtualMesh()
    engine = mesh.add("e", num_blocks=64, chunk_tokens=64)
    requests = [make_spec(f"r{index}", 5 + index, max_tokens=12) for index in range(4)]
    for spec in requests:
        mesh.submit("e", spec)
    while num_sampled and len(mesh.streams["r2"]) < num_sampled:
        mesh.step()
    engine.executor = UndrawingExecutor(engine.memory, {"r2": [Unsampled("too dear", FailureCode.GRAMMAR)]})
    mesh.settle()
    [failed] = [answer for answer in mesh.answers if isinstance(answer, Failed)]
    assert (failed.request, failed.reason, failed.code) == ("r2", "too dear", FailureCode.GRAMMAR)
    assert all(mesh.streams[spec.id] == continuation(spec.prompt, 12) for spec in requests if spec.id != "r2")
    assert engine.core.is_idle


def test_kv_that_gave_no_number_is_given_to_nobody_else(make_spec: MakeSpec):
    mesh = VirtualMesh()
    engine = mesh.add("e", num_blocks=64, chunk_tokens=4)
    engine.executor = UndrawingExecutor(engine.memory, {"bad": [Unsampled("not a number", FailureCode.STEP)]})
    mesh.submit("e", make_spec("bad", 20))
    mesh.settle()
    assert [answer.code for answer in mesh.answers if isinstance(answer, Failed)] == [FailureCode.STEP]
    assert pool(mesh, "e").match(list(range(1, 21)), 20) == []


def not_held(mesh: VirtualMesh, engine: str, *requests: tuple[str, int]) -> list[tuple[str, int]]:
    probe = Probe([ProbeQuestion(request, attempt, 1000) for request, attempt in requests])
    effects = mesh.engines[engine].core.receive(GATEWAY, probe, (), mesh.now)
    said = [effect.message for effect in effects if isinstance(effect, Send)]
    return [request for message in said if isinstance(message, NotHeld) for request in message.requests]


def test_an_engine_says_what_it_does_not_have(make_spec: MakeSpec):
    mesh = two_engines()
    mesh.submit("prefill", make_spec("r", 40, max_tokens=40), decode="decode", attempt=3)
    assert not_held(mesh, "prefill", ("r", 3), ("r", 2), ("nobody", 3)) == [("r", 2), ("nobody", 3)]
    assert not_held(mesh, "decode", ("r", 3)) == [("r", 3)], "nothing is reserved yet"
    while not mesh.engines["decode"].core._handovers.arrivals.machines():
        mesh.step()
    assert not_held(mesh, "decode", ("r", 3), ("r", 4)) == [("r", 4)], "it is expected"
    while mesh.engines["prefill"].core._requests:
        assert not_held(mesh, "prefill", ("r", 3)) == []
        assert not_held(mesh, "decode", ("r", 3)) == []
        mesh.step()
    assert not_held(mesh, "prefill", ("r", 3)) == [("r", 3)], "it was handed over"
    assert not_held(mesh, "decode", ("r", 3)) == []
    mesh.settle()
    assert not_held(mesh, "decode", ("r", 3)) == [("r", 3)], "it has ended"


def held(mesh: VirtualMesh, engine: str, *requests: str) -> list[Holding]:
    probe = Probe([ProbeQuestion(request, 1, 0) for request in requests])
    effects = mesh.engines[engine].core.receive(GATEWAY, probe, (), mesh.now)
    said = [effect.message for effect in effects if isinstance(effect, Send)]
    return [holding for message in said if isinstance(message, Held) for holding in message.requests]


def test_an_engine_says_what_it_has_and_how_many_came_before_it(make_spec: MakeSpec):
    mesh = VirtualMesh()
    mesh.add("e", num_blocks=64, max_running=1)
    for index in range(3):
        mesh.submit("e", make_spec(f"r{index}", 40, max_tokens=12))
    asked = "r2", "r1", "r0", "nobody"
    assert held(mesh, "e", *asked) == [Holding("r2", 1, 2), Holding("r1", 1, 1), Holding("r0", 1, 0)]
    while mesh.engines["e"].core._running.step is None:
        mesh.step()
    assert held(mesh, "e", *asked) == [Holding("r2", 1, 1), Holding("r1", 1, 0), Holding("r0", 1, None)]
    while "r0" not in mesh.streams:
        mesh.step()
    assert held(mesh, "e", "r0") == [], "it says its tokens"
    mesh.settle()
    assert held(mesh, "e", *asked) == []


def resent(mesh: VirtualMesh, engine: str, offset: int, attempt: int = 1) -> list[Delta]:
    effects = mesh.engines[engine].core.receive(GATEWAY, Probe([ProbeQuestion("r", attempt, offset)]), (), mesh.now)
    said = [effect.message for effect in effects if isinstance(effect, Send)]
    return [delta for message in said if isinstance(message, StepTokens) for delta in message.deltas]


def test_an_engine_says_again_what_it_has_said(make_spec: MakeSpec):
    mesh = VirtualMesh()
    mesh.add("e")
    mesh.submit("e", make_spec("r", 6, max_tokens=12))
    while len(mesh.streams["r"]) < 5:
        mesh.step()
    answer = continuation(list(range(1, 7)), 12)
    num_said = mesh.engines["e"].core._requests["r"].num_delivered
    assert [(delta.offset, delta.tokens) for delta in resent(mesh, "e", 2)] == [(2, answer[2:num_said])]
    assert resent(mesh, "e", num_said) == [], "nothing is missing"
    assert resent(mesh, "e", 2, attempt=2) == [], "another attempt's"
    mesh.settle()
    [last] = resent(mesh, "e", 7)
    assert (last.offset, last.tokens, last.finish) == (0, answer, FinishReason.LENGTH)
    assert resent(mesh, "e", 7, attempt=2) == resent(mesh, "e", 13) == []


def test_a_new_owner_says_again_what_others_have_said(make_spec: MakeSpec):
    mesh, spec = two_engines(), make_spec("r", 40, max_tokens=40)
    mesh.submit("prefill", spec, decode="decode")
    while len(mesh.streams["r"]) < 9:
        mesh.step()
    [delta] = resent(mesh, "decode", 0)
    assert (delta.offset, delta.tokens, delta.epoch) == (0, continuation(spec.prompt, len(delta.tokens)), Epoch(1, 1))
    assert len(delta.tokens) >= 9


def test_the_last_token_ends_a_request_on_the_prefill_engine(make_spec: MakeSpec):
    mesh = two_engines()
    mesh.submit("prefill", make_spec("r", 9, max_tokens=1), decode="decode")
    mesh.settle()
    assert mesh.finished == {"r": "length"}
    assert pool(mesh, "decode").num_held == 0


def test_stop_tokens_end_a_request_unless_told_otherwise(make_spec: MakeSpec):
    prompt = list(range(1, 9))
    third = continuation(prompt, 3)[2]
    for sampling, expected in (
        (Sampling(max_tokens=9, seed=1, stop_token_ids=(third,)), (3, "stop")),
        (Sampling(max_tokens=9, seed=1, stop_token_ids=(third,), min_tokens=4), (9, "length")),
    ):
        mesh = VirtualMesh()
        mesh.add("e")
        mesh.submit("e", make_spec("r", 8, sampling=sampling))
        mesh.settle()
        assert (len(mesh.streams["r"]), mesh.finished["r"]) == expected


def test_what_has_not_begun_can_be_called_back_and_what_has_goes_on(make_spec: MakeSpec):
    """Also what waits for blocks of a decode engine; a later attempt is another request."""
    mesh = two_engines()
    for name in ("running", "waiting", "again"):
        mesh.submit("prefill", make_spec(name, 5, max_tokens=4), decode="decode", attempt=2 if name == "again" else 1)
    prefill = mesh.engines["prefill"].core
    begun = next(iter(prefill._services[SERVICE].queue.running), None)
    assert begun is None or begun.id == "running"
    for name in ("waiting", "again", "unknown"):
        mesh.deliver(GATEWAY, "prefill", Recall(name, Epoch(1)))
    mesh.settle()
    assert [answer.request for answer in mesh.answers if isinstance(answer, Refused)] == ["waiting"]
    assert refusals(mesh) == [RefusalCode.RECALLED]
    assert set(mesh.finished) == {"running", "again"}
    for name in ("running", "again"):
        mesh.deliver(GATEWAY, "decode", Recall(name, Epoch(9)))
    mesh.settle()
    assert refusals(mesh) == [RefusalCode.RECALLED]


def test_log_probabilities_that_were_delivered_are_not_kept_for_ever(make_sequence: MakeSequence):
    request = make_sequence(sampling=Sampling(max_tokens=1000, seed=1, logprobs=1))
    for token in range(400):
        request.append(token, TokenLogprobs(token, -0.5, [(token, -0.5)]), 0.0)
        delta = request.take_delta(None)
        assert [own.token for own in delta.logprobs or ()] == delta.tokens == [token]
        assert len(request.logprobs) <= 2 * MOST_SAID_AGAIN
    again = request.say_again(400 - MOST_SAID_AGAIN)
    assert again is not None
    assert [own.token for own in again.logprobs or ()] == again.tokens == list(range(400 - MOST_SAID_AGAIN, 400))
    assert request.say_again(0) is None
    request.transfer = "t"
    for token in range(300):
        request.append(token, TokenLogprobs(token, -0.5, []), 0.0)
        request.take_delta(None)
    assert request.first_known_offset <= 400, "its new owner repeats what was sampled meanwhile"
