"""Whatever bytes come, a decoder answers a message or `WireError`; what it answers has sane numbers."""

import contextlib
import struct
from math import inf, isnan, nan
from random import Random

import msgpack
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mesh.topology.schema import PolicySpec
from mesh.wire.bounds import MAX_BODY_BYTES, MAX_TOKENS
from mesh.wire.control import SetPolicy
from mesh.wire.frames import Sender, WireError
from mesh.wire.messages import (
    BroadcastMessage,
    Codec,
    EngineMessage,
    GatewayMessage,
    Message,
    SupervisorMessage,
    encode,
)
from router.policies.in_force import PolicyInForce
from tests.mesh.strategies import ODD, mutated, places, with_part
from tests.mesh.wire.test_messages import GOLDEN

CODECS = [Codec(union) for union in (EngineMessage, GatewayMessage, SupervisorMessage, BroadcastMessage, Message)]
BODIES = {type(message).__name__: encode(message) for message, _ in GOLDEN}
ALL = Codec(Message)
POLICY = PolicyInForce(PolicySpec("tropical"), Random(0), 0.0)


def part(of, **fields):
    """A valid body of that kind with some fields replaced."""
    return msgpack.packb({**msgpack.unpackb(BODIES[of], strict_map_key=False), **fields})


def policy(parameters: bytes) -> bytes:
    return b"\x82\xa4type\xa9SetPolicy\xa6choice\x82\xa4name\xa1a\xaaparameters" + parameters


def spec(**fields):
    return {**msgpack.unpackb(BODIES["Reserve"])["spec"], **fields}


def service(**fields):
    return [{**msgpack.unpackb(BODIES["EngineStatus"])["services"][0], **fields}]


MALFORMED = {
    "text that is no UTF-8": b"\x82\xa4type\xabLoadService\xa7service\xa2\xff\xff",
    "a type that is no UTF-8": b"\x81\xa4type\xa2\xff\xff",
    "arrays in arrays in an unknown field": b"\x82\xa4type\xa4Stop\xa1x" + b"\x91" * 100_000,
    "maps in maps": policy(b"\x81\xa1a" + b"\x81\xa1a" * 100_000 + b"\xc0"),
    "a list of 2^32": policy(b"\x81\xa1a\xdd\xff\xff\xff\xff"),
    "a map of 2^32": b"\xdf\xff\xff\xff\xff",
    "an unknown extension": policy(b"\x81\xa1a\xd4\x05\x00"),
    "a time": policy(b"\x81\xa1a\xd6\xff\x00\x00\x00\x01"),
    "an impossible time": policy(b"\x81\xa1a\xc7\x0c\xff" + b"\xff" * 12),
    "a list as a key": policy(b"\x81\xa1a\x81\x90\xc0"),
    "NaN in a policy": policy(b"\x81\xa1a\xcb" + struct.pack(">d", nan)),
    "more tokens than memory": part("Reserve", num_tokens=2**62),
    "fewer tokens than none": part("Extend", num_tokens=-1),
    "a wait that never ends": part("Reserve", deadline_s=inf),
    "a wait of NaN": part("Reserve", deadline_s=nan),
    "freeness of NaN": part("Reserve", min_freeness=nan),
    "a negative token": part("Reserve", spec=spec(prompt=[1, -2])),
    "a token of 2^32": part("Commit", generated=[2**32]),
    "a promise of NaN": part("Reserve", spec=spec(slo_ttft_s=nan)),
    "a negative age": part("Commit", age_s=-1.0),
    "slack of NaN": part("EngineStatus", min_slack_s=nan),
    "a negative load": part("EngineStatus", num_tokens=-7),
    "work of NaN": part("EngineStatus", prefill_waiting_s=nan),
    "endless work": part("EngineStatus", decode_step_s=inf),
    "costs of NaN": part("EngineStatus", services=service(prefill_cost={"fixed_s": nan, "per_token_s": 1.0})),
    "negative costs": part("EngineStatus", services=service(decode_cost={"fixed_s": -1.0, "per_request_s": 1.0})),
    "freeness beyond all": part("EngineStatus", services=service(freeness=inf)),
    "a name of a megabyte": part("LoadService", service="x" * 2**20),
    "an offset of 2^63": part("StepTokens", deltas=[["r", [1, 0], 2**63, [1]]]),
    "an epoch below all": part("Cancel", epoch=[-1, 0]),
    "an incarnation of 2^63": part("SupervisorStatus", children=[["e", "engine", None, "running", 0, None, 2**63]]),
}
TOO_LARGE = {  # made when they are needed: each worker of the tests would hold 80 MB of them
    "more than may be": lambda: b"\xc4" * (MAX_BODY_BYTES + 1),
    "more tokens than may be": lambda: part("Commit", generated=[1] * (MAX_TOKENS + 1)),
}


@pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED.keys())
def test_what_no_honest_process_says_is_a_wire_error(body):
    with pytest.raises(WireError, match="malformed body"):
        ALL.decode(body)


@pytest.mark.parametrize("make", TOO_LARGE.values(), ids=TOO_LARGE.keys())
def test_more_than_may_be_is_a_wire_error(make):
    with pytest.raises(WireError, match="malformed body"):
        ALL.decode(make())


def numbers(value):
    if isinstance(value, float):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from numbers(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from numbers(inner)


def decoded(body):
    """By each socket's decoder, which raises nothing but `WireError`."""
    for codec in CODECS:
        with contextlib.suppress(WireError):
            yield codec.decode(body)


@given(st.binary(max_size=200))
def test_any_bytes(body):
    list(decoded(body))


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(mutated(st.sampled_from(list(BODIES.values()))))
def test_mutated_messages(body):
    for message in decoded(body):
        if type(message).__name__ not in ("StepTokens", "Commit"):  # log-probabilities are content
            assert not any(isnan(number) for number in numbers(msgspec.to_builtins(message)))
        assert encode(ALL.decode(encode(message))) == encode(message), "NaN, in log-probabilities, is not itself"


@pytest.mark.parametrize("kind", BODIES)
def test_each_part_of_each_message_may_be_anything(kind):
    plain = msgpack.unpackb(BODIES[kind], strict_map_key=False)
    odd = [None, True, -1, 2**53 + 1, 2**64 - 1, nan, inf, -inf, "x" * 5000, b"\xff", [], {}, [[]], {"a": []}]
    for place in places(plain):
        for one in odd:
            list(decoded(msgpack.packb(with_part(plain, place, one))))


@given(st.dictionaries(st.text(max_size=4), ODD, max_size=3), st.integers(1, 3))
def test_a_choice_of_a_policy_that_arrives_can_be_compared(parameters, version):
    body = msgpack.packb({"type": "SetPolicy", "choice": {"name": "a", "parameters": parameters, "version": version}})
    for message in decoded(body):
        assert isinstance(message, SetPolicy)
        POLICY.is_later(message.choice)


@given(st.binary(max_size=300) | st.from_regex(rb"[a-z.@0-9-]{0,40}@[0-9]{0,30}"))
def test_any_sender_frame(frame):
    with contextlib.suppress(WireError):
        sender = Sender.decode(frame)
        assert Sender.decode(sender.encode()) == sender
        assert sender.incarnation < 2**63
