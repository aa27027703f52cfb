"""What an engine refuses from whoever asks."""

import pytest

from engines.admission.validity import fault_of
from engines.scheduling.service import Service
from mesh.wire.requests import Failed, FailureCode, Refused, Sampling
from tests.engines.conftest import MakeSpec
from tests.engines.virtual import VirtualMesh
from tests.engines.virtual_engine import make_service
from tests.engines.virtual_memory import SERVICE, VirtualMemory

VOCABULARY = 100


@pytest.fixture
def service() -> Service:
    service = make_service(SERVICE, "e", VirtualMemory(8))
    service.vocab_size, service.context_limit = VOCABULARY, 64
    return service


def test_what_the_model_has_is_no_fault(make_spec: MakeSpec, service: Service):
    assert fault_of(make_spec("r", prompt=[0, VOCABULARY - 1]), service) is None
    assert fault_of(make_spec("r", prompt=[1] * 63), service) is None


@pytest.mark.parametrize("token", [-1, -(2**63), VOCABULARY, 2**31, 2**32 - 1, 2**63])
def test_tokens_beyond_the_vocabulary_are(make_spec: MakeSpec, service: Service, token: int):
    def sampled(**changes: object) -> Sampling:
        return Sampling(max_tokens=4, seed=1, **changes)  # type: ignore[arg-type]

    for overrides in (
        {"prompt": [1, token, 2]},
        {"generated": [token]},
        {"sampling": sampled(stop_token_ids=(token,))},
        {"sampling": sampled(logit_bias={token: 1.0})},
    ):
        fault = fault_of(make_spec("r", **overrides), service)
        assert fault is not None
        assert f"token {token}, and the model's vocabulary has 100" in fault


@pytest.mark.parametrize(
    ("overrides", "fault"),
    [
        ({"prompt": []}, "the prompt has no token"),
        ({"prompt": [1] * 64}, "64 tokens leave no room for an answer in a context of 64"),
        ({"prompt": [1] * 60, "generated": [1] * 5}, "65 tokens leave no room for an answer in a context of 64"),
        ({"max_tokens": 0}, "max_tokens is 0: there is nothing to generate"),
    ],
)
def test_lengths_that_leave_nothing_to_do_are(
    make_spec: MakeSpec, service: Service, overrides: dict[str, object], fault: str
):
    assert fault_of(make_spec("r", **overrides), service) == fault


def test_a_wild_request_fails_before_it_is_computed_and_harms_nobody(make_spec: MakeSpec):
    mesh = VirtualMesh()
    engine = mesh.add("e")
    engine.core._services[SERVICE].vocab_size = VOCABULARY
    mesh.submit("e", make_spec("honest"))
    mesh.submit("e", make_spec("wild", prompt=[5, VOCABULARY]))
    mesh.settle()
    [failed] = [answer for answer in mesh.answers if isinstance(answer, Failed)]
    assert (failed.request, failed.code) == ("wild", FailureCode.INVALID)
    assert set(mesh.finished) == {"honest"}
    assert engine.core.is_idle


@pytest.mark.parametrize("different", [False, True])
def test_an_engine_takes_over_only_what_its_own_model_made(make_spec: MakeSpec, different: bool):
    mesh = VirtualMesh()
    for name in ("here", "there"):
        mesh.add(name).core._services[SERVICE].identity = name if different else "one"
    mesh.submit("here", make_spec("r", 20), decode="there")
    mesh.settle()
    refused = [answer.reason for answer in mesh.answers if isinstance(answer, Refused)]
    assert refused == (["'tiny' is another model here: its weights or its tokenizer differ"] if different else [])
