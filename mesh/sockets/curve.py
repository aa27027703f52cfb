"""CURVE between hosts: one key pair, in one file, makes a process a member of its mesh.

Every listening socket proves that it holds the pair's secret, encrypts, and lets in only peers that hold the same pair.
"""

import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import zmq
from zmq.auth.thread import ThreadAuthenticator

from mesh.access.private_file import is_private
from mesh.errors import UserError
from mesh.process.lazy_log import LazyLog
from mesh.process.rare_warnings import RareWarnings

ZAP_DOMAIN = "meshserve"

log = LazyLog()


class CurveKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A CURVE key pair in Z85."""

    public: str
    secret: str

    def __repr__(self) -> str:
        return f"<CurveKey {self.public}>"

    @classmethod
    def load(cls, path: Path) -> "CurveKey":
        """Raise `UserError` if there is no such key or others can read it."""
        try:
            text = path.read_bytes()
            found = path.stat()
        except OSError as error:
            raise UserError(
                f"{path}: cannot read the mesh's key ({error.strerror}); `mesh curve-key {path}` makes one"
            ) from None
        if not is_private(found):
            raise UserError(f"{path}: others can read the mesh's key; run `chmod 600 {path}`")
        try:
            return cls.of(text)
        except ValueError:
            raise UserError(f"{path}: is not a key of a mesh; `mesh curve-key` makes one in a new file") from None

    @classmethod
    def of(cls, text: bytes) -> "CurveKey":
        """Raise `ValueError` if it is no key."""
        try:
            return msgspec.json.decode(text, type=cls)
        except msgspec.DecodeError as error:
            raise ValueError(str(error)) from None

    @classmethod
    def make(cls) -> "CurveKey":
        """Make a new key pair."""
        public, secret = zmq.curve_keypair()
        return cls(public.decode(), secret.decode())


def make_key_file(path: Path) -> None:
    """Write a new key pair, readable by its owner alone. Raise `UserError` if the file exists or cannot be written."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise UserError(f"{path}: exists already; a mesh that uses this key would no longer know itself") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror}") from None
    with os.fdopen(descriptor, "wb") as file:
        file.write(msgspec.json.encode(CurveKey.make()) + b"\n")


def secure_client(socket: "zmq.Socket[Any]", key: CurveKey) -> None:
    """Encrypt a client's socket. Call it before ``connect``."""
    socket.curve_serverkey = key.public.encode()
    _set_pair(socket, key)


def _set_pair(socket: "zmq.Socket[Any]", key: CurveKey) -> None:
    socket.curve_publickey = key.public.encode()
    socket.curve_secretkey = key.secret.encode()


@dataclass(frozen=True, slots=True)
class _OnlyMembers:
    key: CurveKey
    warnings: RareWarnings = field(default_factory=RareWarnings)

    def callback(self, domain: str, key: bytes) -> bool:
        is_member = key == self.key.public.encode()
        if not is_member:
            num_silent = self.warnings.admit("another key", time.monotonic())
            if num_silent is not None:
                found = key.decode(errors="replace")
                log.warning("refused a peer that has another key", key=found, not_logged_before=num_silent)
        return is_member


class _Authenticator(ThreadAuthenticator):
    async def handle_zap_message(self, msg: list[bytes]) -> None:
        """A failure is that handshake's, which then does not end; without this thread nobody could ever come in."""
        try:
            await super().handle_zap_message(msg)
        except Exception:
            log.exception("could not tell whether a peer is a member")


class Curve:
    """Secures the sockets of one context with a mesh's key."""

    def __init__(self, key: CurveKey, context: "zmq.Context[Any]") -> None:
        self._key = key
        self._authenticator = _Authenticator(context)
        self._authenticator.start()
        self._authenticator.configure_curve_callback(ZAP_DOMAIN, _OnlyMembers(key))

    def secure_server(self, socket: "zmq.Socket[Any]") -> None:
        """Encrypt a server's socket. Call it before ``bind``. Without an authenticator nobody would be let in."""
        socket.curve_server = True
        socket.zap_domain = ZAP_DOMAIN.encode()
        socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
        _set_pair(socket, self._key)

    def secure_client(self, socket: "zmq.Socket[Any]") -> None:
        """Encrypt a client's socket. Call it before ``connect``."""
        secure_client(socket, self._key)

    def close(self) -> None:
        """Stop authenticating. Call it after the sockets are closed and before the context ends."""
        self._authenticator.stop()
