"""Takes requests that gateways send to an engine: each is accepted, refused or found invalid, and queued."""

from collections.abc import Mapping

from msgspec.structs import replace

from engines.adapters.room import AdapterRoom
from engines.admission.acceptance import Admission, Refusal
from engines.admission.validity import fault_of
from engines.effects import Effect
from engines.engine_request import EngineRequest
from engines.requests import OwnedRequests
from engines.scheduling.running_step import RunningStep
from engines.scheduling.service import Service
from engines.settings import EngineSettings
from engines.standing import Standing
from kvtransfer.protocol import Send
from mesh.topology.schema import Scheduling
from mesh.wire.control import PrefillMode, PrefillOrder, ProcessState
from mesh.wire.requests import Accepted, Failed, FailureCode, RefusalCode, Refused, Submit, SubmitBatch


class Intake:
    """Takes requests for one engine."""

    def __init__(
        self,
        settings: EngineSettings,
        services: Mapping[str, Service],
        admission: Admission,
        standing: Standing,
        running: RunningStep,
        requests: OwnedRequests,
        adapters: AdapterRoom,
    ) -> None:
        self._id = settings.id
        self._is_continuous = settings.scheduling is Scheduling.CONTINUOUS
        self._uses_prefixes = settings.prefix_caching
        self._services = services
        self._admission = admission
        self._standing = standing
        self._running = running
        self._requests = requests
        self._adapters = adapters
        self._num_batches = 0  # that came as such

    def __repr__(self) -> str:
        return f"<Intake of {self._id}>"

    def take(self, gateway: str, message: Submit | SubmitBatch, now: float) -> list[Effect]:
        """Take in the requests of a message."""
        if isinstance(message, Submit):
            return self._submit(gateway, message, now)
        self._num_batches += 1
        effects: list[Effect] = []
        for submit in message.submits:
            effects += self._submit(gateway, submit, now, self._num_batches)
        return effects

    def _submit(self, gateway: str, message: Submit, now: float, batch: int = 0) -> list[Effect]:
        spec, epoch = message.spec, message.epoch
        effects = self._requests.make_way(spec.id, epoch, now)
        if effects is None:
            return []  # it was sent twice
        refusal = self._refusal(message, now)
        if refusal is not None:
            return [*effects, Send(gateway, Refused(spec.id, epoch, *refusal))]
        service = self._services[spec.service]
        if (fault := fault_of(spec, service)) is not None:
            return [*effects, Send(gateway, Failed(spec.id, epoch, fault, FailureCode.INVALID))]
        if (problem := self._adapters.why_not(spec, service.adapter_sizes, now)) is not None:
            return [*effects, Send(gateway, Failed(spec.id, epoch, problem, FailureCode.ADAPTER))]
        request = EngineRequest.of(spec, epoch, now, service.eos_token_ids, service.limit_of(spec), service.ttft_s)
        request.is_whole = service.whole_prompts
        if not self._is_continuous:  # else they are as they were made: chunks beside decodes
            request.prefill_mode = message.prefill
        if request.is_whole and request.prefill_mode is not PrefillMode.FIRST:
            request.prefill_mode = PrefillMode.CHUNKED  # slack is filled with parts of prompts, and it has none
        request.prefill_order = PrefillOrder.ARRIVAL if self._is_continuous else message.order
        request.uses_prefixes = self._uses_prefixes
        request.slice_tokens, request.batch = message.slice_tokens, batch
        request.stays, request.prefix_at = message.stays, message.prefix_at
        decodes_here = message.decode_engine is None or message.decode_engine == self._id
        self._requests.add(service, request, None if decodes_here else message.decode_engine)
        return [*effects, Send(gateway, Accepted(spec.id, epoch, self._standing.seq + 1))]

    def _refusal(self, message: Submit, now: float) -> Refusal | None:
        if self._standing.state is not ProcessState.READY:
            return RefusalCode.DRAINING, f"engine is {self._standing.state}"
        if self._is_continuous and message.multiplex:  # it computes prompts beside decodes, whatever their slack
            message = replace(message, multiplex=False)
        return self._admission.refusal(message, self._running.step, now)
