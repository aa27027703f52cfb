"""Keeps which services an engine has: those it serves, those it is to load, and those it is to give up.

A service that is unloaded takes nothing new; what decodes moves to other engines that have it, or ends here if there
are none, and then its weights and KV memory go. The others notice nothing of either.
"""

from collections.abc import Callable, Collection, Mapping

import structlog

from engines.effects import DropModel, LoadModel
from engines.scheduling.forecast import EngineForecast
from engines.scheduling.scheduler import Limits, LocalScheduler
from engines.status import Service
from mesh.wire.status import FailedLoad

MOST_FAILED = 16  # that are told of: whoever sends orders may name services that there are not

log = structlog.get_logger()


class Residency:
    """Keeps which services an engine holds. ``loadable``: names of the services that may be loaded. ``services`` and
    ``schedulers`` change in place.
    """

    def __init__(self, services: Mapping[str, Service], limits: Limits, loadable: Collection[str]) -> None:
        self.services: dict[str, Service] = {}
        self.schedulers: dict[str, LocalScheduler] = {}
        self.loading: list[str] = []
        self.num_errors = 0
        self.failed: dict[str, FailedLoad] = {}  # the newest last
        self._unwanted: set[str] = set()  # on their way all the same
        self._limits = limits
        self._loadable = loadable
        for service in services.values():
            self._open(service)

    def offer(self, name: str) -> None:
        """One more service may be loaded."""
        self._loadable = {*self._loadable, name}

    def load(self, name: str) -> list[LoadModel]:
        """Begin to; nothing if it is here or on its way. One that is being unloaded stays."""
        service = self.services.get(name)
        self._unwanted.discard(name)
        if service is not None:
            service.is_leaving = False
        elif name not in self._loadable:
            known = ", ".join(sorted(self._loadable)) or "none"
            self._failed(name, f"this engine's topology has no such service; it has: {known}")
        elif name not in self.loading:
            log.info("loads a service", service=name)
            self.loading.append(name)
            return [LoadModel(name)]
        return []

    def loaded(self, service: Service) -> None:
        self.loading.remove(service.name)
        self.failed.pop(service.name, None)
        log.info("loaded a service", service=service.name)
        service.is_leaving = service.name in self._unwanted
        self._open(service)

    def not_loaded(self, name: str, reason: str) -> None:
        self.loading.remove(name)
        self._failed(name, reason)

    def unload(self, name: str) -> None:
        """Let it go once it is empty: at once when it comes if it is on its way."""
        service = self.services.get(name)
        if name in self.loading:
            self._unwanted.add(name)
        elif service is not None and not service.is_leaving:
            log.info("unloads a service", service=name, num_running=len(service.queue.running))
            service.is_leaving = True

    def leaving(self) -> list[Service]:
        return [service for service in self.services.values() if service.is_leaving]

    def drop(self, is_empty: Callable[[Service], bool]) -> list[DropModel]:
        """Drop a service that was to leave and is empty."""
        gone = [service.name for service in self.leaving() if is_empty(service)]
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
