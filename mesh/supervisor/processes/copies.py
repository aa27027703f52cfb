"""The text of a topology as its supervisor read it, for the processes that are started later.

Somebody may edit the file while the mesh runs. A process that is started again must not read half of the change.
"""

import os
from pathlib import Path

import structlog

from mesh.supervisor.digests import digest_of_text

log = structlog.get_logger()


def copy_file(runtime: Path, digest: str) -> Path:
    return runtime / f"topology-{digest}.toml"


class TopologyCopy:
    """A file in the runtime folder, named by what is in it."""

    def __init__(self, runtime: Path, text: str) -> None:
        self.digest = digest_of_text(text)
        self.path = copy_file(runtime, self.digest)
        self._text = text

    def __repr__(self) -> str:
        return f"<TopologyCopy {self.path}>"

    def keep(self) -> None:
        """Make it if it is not there, or was changed. Raise `OSError`."""
        text = self._text.encode()
        try:
            if self.path.read_bytes() == text:
                return
        except OSError:
            log.info("writing a copy of the topology", path=str(self.path))
        draft = self.path.with_suffix(".toml.new")
        draft.write_bytes(text)
        os.replace(draft, self.path)

    def remove_others(self) -> None:
        """Remove the copies that no process will be started with."""
        for path in self.path.parent.glob(copy_file(Path(), "*").name):
            if path != self.path:
                path.unlink(missing_ok=True)
