"""Encrypts the files of a tier with AES-256-GCM, so that who gets the disk learns nothing from it.

Each file has a key of its own, made from the tier's key and the file's name, so a random nonce never comes twice under
one key. The name is authenticated, too. This module needs the extra ``encryption``.
"""

import os
import struct
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from kvtransfer.protocol import Buffer
from kvtransfer.tiers.block_file import ENCRYPTED, BlockFileError, WrongKeyError

NONCE_BYTES: Final = 12
HEADER: Final = struct.Struct(f"<8s8s{NONCE_BYTES}s")  # magic, which key, nonce


class FileCipher:
    """Encrypts and decrypts with one key, which is made from a secret of any length."""

    def __init__(self, secret: bytes) -> None:
        self._key = blake2b(secret, digest_size=32, person=b"meshserve-kv").digest()
        self.key_id: Final = blake2b(b"id", key=self._key, digest_size=8).digest()

    def __repr__(self) -> str:
        return f"<FileCipher {self.key_id.hex()}>"

    def encrypt(self, name: str, parts: Sequence[Buffer]) -> bytes:
        """Return the content of the file of this name."""
        header = HEADER.pack(ENCRYPTED, self.key_id, os.urandom(NONCE_BYTES))
        encrypted: bytes = self._cipher(name).encrypt(header[-NONCE_BYTES:], b"".join(parts), header)
        return header + encrypted

    def decrypt(self, name: str, file: bytes) -> bytes:
        """Return what was encrypted. Raise `WrongKeyError` if another key did that, or none, `BlockFileError` if the
        file is damaged or another one.
        """
        if len(file) < HEADER.size:
            raise BlockFileError("it is shorter than its header")
        magic, key_id, nonce = HEADER.unpack_from(file)
        if magic != ENCRYPTED:
            raise WrongKeyError("it is not encrypted")
        if key_id != self.key_id:
            raise WrongKeyError("it is encrypted with another key")
        try:
            content: bytes = self._cipher(name).decrypt(nonce, memoryview(file)[HEADER.size :], file[: HEADER.size])
        except InvalidTag:
            raise BlockFileError("it was not encrypted so") from None
        return content

    def _cipher(self, name: str) -> AESGCM:
        return AESGCM(blake2b(name.encode(), key=self._key, digest_size=32).digest())
