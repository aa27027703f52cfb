"""Judges the requests that gateways send to an engine: each is accepted, refused or found invalid."""

from collections.abc import Mapping

from msgspec.structs import replace

from engines.adapters.room import AdapterRoom
from engines.admission.acceptance import Admission, Refusal
from engines.admission.validity import fault_of
from engines.engine_request import EngineRequest
from engines.scheduling.running_step import RunningStep
from engines.scheduling.service import Service
from engines.settings import EngineSettings
from engines.standing.standing import Standing
from mesh.topology.schema import Scheduling
from mesh.wire.control import PrefillMode, PrefillOrder, ProcessState
from mesh.wire.requests import Failed, FailureCode, RefusalCode, Refused, Submit


class Intake:
    """Judges the requests of one engine, as it stands."""

    def __init__(
        self,
        settings: EngineSettings,
        services: Mapping[str, Service],
        admission: Admission,
        standing: Standing,
        running: RunningStep,
        adapters: AdapterRoom,
    ) -> None:
        self._id = settings.id
        self._is_continuous = settings.scheduling is Scheduling.CONTINUOUS
        self._uses_prefixes = settings.prefix_caching
        self._services = services
        self._admission = admission
        self._standing = standing
        self._running = running
        self._adapters = adapters

    def __repr__(self) -> str:
        return f"<Intake of {self._id}>"

    def judge(self, message: Submit, batch: int, now: float) -> EngineRequest | Refused | Failed:
        """Return the request to queue, or the answer to its gateway. ``batch``: the number of the batch that it came
        in; 0: it came alone.
        """
        spec, epoch = message.spec, message.epoch
        refusal = self._refusal(message, now)
        if refusal is not None:
            return Refused(spec.id, epoch, *refusal)
        service = self._services[spec.service]
        if (fault := fault_of(spec, service)) is not None:
            return Failed(spec.id, epoch, fault, FailureCode.INVALID)
        if (problem := self._adapters.why_not(spec, service.adapter_sizes, now)) is not None:
            return Failed(spec.id, epoch, problem, FailureCode.ADAPTER)
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
        if message.decode_engine != self._id and not spec.is_filler:
            request.decode_engine = message.decode_engine
        return request

    def _refusal(self, message: Submit, now: float) -> Refusal | None:
        if self._standing.state is not ProcessState.READY:
            return RefusalCode.DRAINING, f"engine is {self._standing.state}"
        if self._is_continuous and message.multiplex:  # it computes prompts beside decodes, whatever their slack
            message = replace(message, multiplex=False)
        return self._admission.refusal(message, self._running.step, now)
