"""A folder on a disk whose files are encrypted, and that holds no others."""

from collections.abc import Sequence
from pathlib import Path

from kvtransfer.tiers.encryption import FileCipher
from kvtransfer.tiers.folder import BlockFile, ListedFolder, Written
from mesh.errors import UserError


class EncryptedFolder(ListedFolder):
    """Files get their names as elsewhere, so one that another key encrypted is found, and told from a damaged one."""

    def __init__(self, path: Path, capacity_bytes: int, cipher: FileCipher) -> None:
        """Remove what the folder has, unless this key encrypted it. Raise `UserError` if that cannot be."""
        self._cipher, self.key_id = cipher, cipher.key_id.hex()
        super().__init__(path, capacity_bytes)

    def read(self, name: str) -> bytes | None:
        """Return the decrypted content. Raise OSError or `BlockFileError`."""
        file = super().read(name)
        return None if file is None else self._cipher.decrypt(name, file)

    def write(self, files: Sequence[BlockFile]) -> Written:
        """Encrypt what is not there, and write it."""
        new = self._missing(files)
        return super().write([BlockFile(file.name, [self._cipher.encrypt(file.name, file.parts)]) for file in new])

    def _begin(self) -> None:
        try:
            self._keep_own()
        except OSError as error:
            problem = f"what this key did not encrypt there cannot be removed: {error.strerror}"
            raise UserError(f"{self.path}: {problem}") from None
