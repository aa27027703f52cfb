"""The folder in which a mesh keeps what belongs to this host: logs, locks, incarnations."""

from pathlib import Path

from mesh.addresses import runtime_dir
from mesh.errors import UserError
from mesh.process.private_folder import NotPrivateError, make_private_folder
from mesh.topology.schema import Topology


def make_runtime_dir(topology: Topology) -> Path:
    """The mesh's folder on this host, private to the user. Raise `UserError` if somebody else could tamper with it."""
    runtime = runtime_dir(topology)
    try:
        make_private_folder(runtime / "logs")
        make_private_folder(runtime)
    except NotPrivateError as error:
        raise UserError(f"{error}; set MESHSERVE_RUNTIME_DIR to a folder of yours") from None
    except OSError as error:
        raise UserError(
            f"{runtime}: cannot be used as runtime folder ({error.strerror}); set MESHSERVE_RUNTIME_DIR to another one"
        ) from None
    return runtime
