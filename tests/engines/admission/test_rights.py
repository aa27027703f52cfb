import pytest

from engines.admission.rights import why_not
from mesh.wire.control import Drain
from mesh.wire.prefixes import TellPrefixes
from mesh.wire.requests import Cancel, Epoch, RequestSpec, Sampling, Submit, SubmitBatch
from mesh.wire.transfers import KVShape, Pull, Reserve

GATEWAYS = {"gateway-0", "gateway-1"}


def spec(gateway):
    return RequestSpec("r", gateway, "chat", [1], Sampling(1, 1), 1.0, 1.0)


def submit(gateway):
    return Submit(spec(gateway), Epoch(0))


def reserve(gateway):
    return Reserve("t", spec(gateway), Epoch(0, 1), 1, KVShape(1, 1, 1, 1, "float32"), None, 1.0)


def pull(gateway):
    return Pull("t", "r", gateway, "chat", "", KVShape(1, 1, 1, 1, "float32"), [bytes(16)])


@pytest.mark.parametrize(
    ("sender", "message"),
    [
        ("decode", pull("gateway-1")),
        ("gateway-1", TellPrefixes()),
        ("gateway-0", submit("gateway-0")),
        ("gateway-0", SubmitBatch([submit("gateway-0")] * 2)),
        ("prefill", reserve("gateway-1")),
        ("cli-7", Drain()),
        ("cli-7", Cancel("r", Epoch(0))),
    ],
)
def test_what_members_ask_for_in_their_own_name_is_done(sender, message):
    assert why_not(sender, message, GATEWAYS) is None


@pytest.mark.parametrize(
    ("sender", "message", "reason"),
    [
        ("gateway-1", submit("gateway-0"), "the request is of 'gateway-0'"),
        ("gateway-0", SubmitBatch([submit("gateway-0"), submit("gateway-1")]), "the request is of 'gateway-1'"),
        ("stranger", submit("stranger"), "it is no gateway of this mesh"),
        ("prefill", submit("gateway-0"), "it is no gateway of this mesh"),
        ("prefill", reserve("stranger"), "'stranger' is no gateway of this mesh"),
        ("gateway-0", reserve("gateway-0"), "gateways have no KV"),
        ("decode", pull("stranger"), "'stranger' is no gateway of this mesh"),
        ("gateway-0", pull("gateway-0"), "gateways have no KV"),
        ("decode", TellPrefixes(), "it is no gateway of this mesh"),
    ],
)
def test_nobody_speaks_for_others(sender, message, reason):
    assert why_not(sender, message, GATEWAYS) == reason
