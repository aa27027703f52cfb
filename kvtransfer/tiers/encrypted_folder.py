"""A folder on a disk whose files are encrypted, and that holds no others."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import structlog

from kvtransfer.tiers.encryption import FileCipher
from kvtransfer.tiers.folder import MARK, BlockFile, ListedFolder, Written
from mesh.errors import UserError

log = structlog.get_logger()


class EncryptedFolder(ListedFolder):
    """Files get their names as elsewhere, so one that another key encrypted is found, and told from a damaged one."""

    def __init__(self, path: Path, capacity_bytes: int, cipher: FileCipher) -> None:
        """Remove what the folder has, unless all of it is encrypted. Raise `UserError` if that cannot be."""
        self._cipher = cipher
        super().__init__(path, capacity_bytes)

    def read(self, name: str) -> bytes | None:
        """Return the decrypted content. Raise OSError or `BlockFileError`."""
        file = super().read(name)
        return None if file is None else self._cipher.decrypt(name, file)

    def write(self, files: Sequence[BlockFile]) -> Written:
        """Encrypt what is not there, and write it."""
        new = [file for file in files if not self.has(file.name)]
        return super().write([BlockFile(file.name, [self._cipher.encrypt(file.name, file.parts)]) for file in new])

    def _mark(self) -> None:
        try:
            with self._locked():
                if not (self.path / MARK).exists():
                    self._remove_all()
                    (self.path / MARK).touch(0o600)
        except OSError as error:
            raise UserError(f"{self.path}: what is not encrypted there cannot be removed: {error.strerror}") from None

    def _remove_all(self) -> None:
        places = [Path(place) for _, _, place in self._files()]
        for place in places:
            with suppress(FileNotFoundError):
                place.unlink()
        if places:
            log.info("removed KV blocks that were not encrypted", folder=str(self.path), blocks=len(places))
