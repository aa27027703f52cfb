"""Keeps which services an engine has: those it serves, those it is to load or to stage, and those it is to give up.

A service that is unloaded takes nothing new; what decodes moves to other engines that have it, or ends here if there
are none, and then its weights and KV memory go. The others notice nothing of either. One that pauses loses its weights
first, and gets them back if it is loaded before all of its requests have left.
"""

from collections.abc import Callable, Collection, Mapping

import structlog

from engines.effects import DropModel, DropWeights, LoadModel, StageModel, UnstageModel
from engines.scheduling.forecast import EngineForecast
from engines.scheduling.scheduler import Limits, LocalScheduler
from engines.scheduling.service import Service
from mesh.wire.status import FailedLoad

MOST_FAILED = 16  # that are told of: whoever sends orders may name services that there are not

log = structlog.get_logger(__name__)


class Residency:
    """Keeps which services an engine holds. ``loadable``: names of the services that may be loaded. ``services`` and
    ``schedulers`` change in place.
    """

    def __init__(self, services: Mapping[str, Service], limits: Limits, loadable: Collection[str]) -> None:
        self.services: dict[str, Service] = {}
        self.schedulers: dict[str, LocalScheduler] = {}
        self.loading: list[str] = []
        self.staging: list[str] = []  # their weights are on their way to the host's memory
        self.staged: dict[str, int] = {}  # their weights are there, and what these will take once they are loaded
        self.num_errors = 0
        self.failed: dict[str, FailedLoad] = {}  # the newest last
        self._unwanted: set[str] = set()  # on their way all the same
        self._unplanned: set[str] = set()  # likewise, to the host's memory
        self._limits = limits
        self._loadable = loadable
        for service in services.values():
            self._open(service)

    def offer(self, names: Collection[str]) -> None:
        """These services may be loaded from now on, and no others."""
        self._loadable = names

    def load(self, name: str) -> list[LoadModel]:
        """Begin to; nothing if it is here or on its way. One that is being unloaded stays; one that is paused goes on
        once its weights are back.
        """
        service = self.services.get(name)
        self._unwanted.discard(name)
        if service is not None and not service.is_paused:
            service.is_leaving = service.pauses = False
        elif name not in self.loading and self._may_load(name):
            log.info("loads a service", service=name)
            self.loading.append(name)
            return [LoadModel(name)]
        return []

    def _may_load(self, name: str) -> bool:
        if name not in self._loadable:
            known = ", ".join(sorted(self._loadable)) or "none"
            self._failed(name, f"this engine's topology has no such service; it has: {known}")
        return name in self._loadable

    def stage(self, name: str) -> list[StageModel]:
        """Begin to; nothing if its weights are here, there, or on their way."""
        self._unplanned.discard(name)
        service, coming = self.services.get(name), (*self.loading, *self.staging, *self.staged)
        if name in coming or (service is not None and not service.is_paused) or not self._may_load(name):
            return []
        log.info("stages a service", service=name)
        self.staging.append(name)
        return [StageModel(name)]

    def has_staged(self, name: str, num_bytes: int) -> list[UnstageModel]:
        """Its weights are in the host's memory, and will take so many bytes once they are loaded."""
        self.staging.remove(name)
        self.staged[name] = num_bytes
        self.failed.pop(name, None)
        log.info("staged a service", service=name)
        return self._unstage(self._unplanned)

    def not_staged(self, name: str, reason: str) -> None:
        self.staging.remove(name)
        self._unplanned.discard(name)
        self._failed(name, reason)

    def plan(self, services: Collection[str]) -> list[UnstageModel]:
        """Let go what is staged, or on its way there, and is not to be served here by the newest plan."""
        self._unplanned = {name for name in self.staging if name not in services}
        return self._unstage({name for name in self.staged if name not in services})

    def _unstage(self, names: Collection[str]) -> list[UnstageModel]:
        gone = [name for name in self.staged if name in names]
        self.staged = {name: num_bytes for name, num_bytes in self.staged.items() if name not in gone}
        self._unplanned -= set(gone)
        return [UnstageModel(name) for name in gone]

    def loaded(self, service: Service) -> None:
        """Take a service that is new here, or one that was paused."""
        self.loading.remove(service.name)
        self.staged.pop(service.name, None)  # whoever loads them takes them
        self.failed.pop(service.name, None)
        log.info("loaded a service", service=service.name)
        service.is_leaving, service.pauses = service.name in self._unwanted, False
        service.paused_at = None
        if service.name not in self.services:
            self._open(service)

    def not_loaded(self, name: str, reason: str) -> None:
        """Note why, unless nobody wants it any more."""
        self.loading.remove(name)
        if name not in self._unwanted:
            self._failed(name, reason)
        self._unwanted.discard(name)

    def unload(self, name: str, *, pauses: bool = False) -> None:
        """Let it go once it is empty: at once when it comes if it is on its way. ``pauses``: its weights go first.

        That it could not be loaded before is of no interest any more.
        """
        service = self.services.get(name)
        self.failed.pop(name, None)
        if name in self.loading:
            self._unwanted.add(name)
        elif service is not None:
            if not service.is_leaving:
                log.info("unloads a service", service=name, num_running=len(service.queue.running))
            service.is_leaving, service.pauses = True, service.pauses or pauses

    def leaving(self) -> list[Service]:
        return [service for service in self.services.values() if service.is_leaving]

    def pause(self, service: Service, now: float) -> list[DropWeights]:
        """Let its weights go: no step computes it."""
        log.info("paused a service", service=service.name, num_running=len(service.queue.running))
        service.paused_at = now
        return [DropWeights(service.name)]

    def drop(self, is_empty: Callable[[Service], bool]) -> list[DropModel]:
        """Drop a service that was to leave and is empty, unless its weights are on their way back."""
        gone = [one.name for one in self.leaving() if one.name not in self.loading and is_empty(one)]
        for name in gone:
            log.info("unloaded a service", service=name)
            self.services[name].pool.close()
            del self.services[name], self.schedulers[name]
        return [DropModel(name) for name in gone]

    def _open(self, service: Service) -> None:
        service.queue.slice_tokens = self._limits.slice_tokens
        self.services[service.name] = service
        self.schedulers[service.name] = LocalScheduler(self._limits, EngineForecast(service, self.services))

    def _failed(self, name: str, reason: str) -> None:
        log.error("did not load a service", service=name, reason=reason)
        self.num_errors += 1
        self.failed.pop(name, None)
        self.failed[name] = FailedLoad(name, reason, self.num_errors)
        if len(self.failed) > MOST_FAILED:
            del self.failed[next(iter(self.failed))]
