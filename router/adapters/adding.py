"""Checks an adapter that an operator wants to add, before any process hears of it."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from engines.adapters.access import AdapterFolders, named
from engines.adapters.folder import AdapterFolder, fault_of
from engines.adapters.places import why_no_place
from engines.backend_rules import why_no_base
from engines.models.errors import ModelError
from engines.models.files.model_config import ModelConfig
from engines.models.store import prepared_dir
from mesh.errors import UserError
from mesh.suggestions import suggestion
from mesh.topology.schema import Topology
from mesh.wire.adapters import AddedAdapter

_NAME: Final = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_.:/-]{0,99}\Z")


class AddingError(UserError):
    """What is wrong. ``param``: with which parameter."""

    def __init__(self, param: str, message: str) -> None:
        super().__init__(message)
        self.param = param


def adapter_to_add(
    topology: Topology, served: Mapping[str, AddedAdapter], name: str, path: str, base: str | None
) -> AddedAdapter:
    """Return the adapter in the folder ``path`` as the service ``name``. Reads its files: not for an event loop.

    ``base``: None if only one service fits. Raise `AddingError` if it cannot be served.
    """
    _check_name(topology, served, name)
    try:
        folder = AdapterFolder.read(Path(AdapterFolders(topology).resolve(path)))
    except ModelError as error:
        raise AddingError("lora_path", str(error)) from None
    return AddedAdapter(named(name, folder), _base(topology, folder, base), 0)


def _check_name(topology: Topology, served: Mapping[str, AddedAdapter], name: str) -> None:
    if not _NAME.match(name):
        raise AddingError("lora_name", f"{name[:64]!r} is not a usable name; use letters, digits, '.', '-' and '_'")
    taken = {alias: service.name for service in topology.offered for alias in (service.name, *service.aliases)}
    if name in taken:
        raise AddingError("lora_name", f"{name!r} is a service of the deployment's file; use another name")
    most = 0 if topology.added is None else topology.added.most
    if name not in served and len(served) >= most > 0:
        raise AddingError("lora_name", f"{most} adapters are served, and [adapters] allows no more; remove one first")


def _base(topology: Topology, folder: AdapterFolder, wanted: str | None) -> str:
    bases = [service.name for service in topology.services if why_no_base(topology, service.name) is None]
    if wanted is not None and wanted not in bases:
        raise AddingError("base_model_name", f"{wanted[:64]!r} is no service; {suggestion(wanted[:64], bases)}")
    faults = {base: _why_not(topology, folder, base) for base in ([wanted] if wanted else bases)}
    fitting = [base for base, fault in faults.items() if fault is None]
    if len(fitting) == 1:
        return fitting[0]
    if not fitting:
        raise AddingError("lora_path", next(iter(faults.values())) or "no service fits it")
    raise AddingError("base_model_name", f"is wanted: it would fit {suggestion('', fitting).removeprefix('use ')}")


def _why_not(topology: Topology, folder: AdapterFolder, base: str) -> str | None:
    model = ModelConfig.load(prepared_dir(topology.service(base).model))
    return fault_of(folder, model, base) or why_no_place(topology, base, folder, model)
