"""TLS of a gateway: its certificate, read again when the files change."""

import os
import ssl
from pathlib import Path

import structlog

from mesh.errors import UserError

log = structlog.get_logger()

Stamp = tuple[tuple[int, int], ...]  # inode and time of change, of each file


class Certificate:
    """A context for connections. `refresh` it now and then: connections that come later see the files of now."""

    def __init__(self, cert: Path, key: Path) -> None:
        """Raise `UserError` if the files cannot be used."""
        self._cert = cert
        self._key = key
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.context.set_alpn_protocols(["http/1.1"])
        self._stamp = self._look()
        if reason := self._load(self.context):
            raise UserError(reason)

    def refresh(self) -> None:
        """A pair that cannot be used is logged, and the one before stays."""
        stamp = self._look()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        reason = self._load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)) or self._load(self.context)
        if reason:
            log.error("kept the certificate of before", reason=reason)
        else:
            log.info("took a new certificate", cert=str(self._cert))

    def _look(self) -> Stamp:
        found = []
        for file in (self._cert, self._key):
            try:
                status = os.stat(file)
            except OSError:
                found.append((0, 0))
            else:
                found.append((status.st_ino, status.st_mtime_ns))
        return tuple(found)

    def _load(self, context: ssl.SSLContext) -> str:
        """Why the files cannot be used; empty if they are in use now."""
        try:
            context.load_cert_chain(self._cert, self._key, password=_no_password)
        except ssl.SSLError as error:
            return f"{self._cert}, {self._key}: not a certificate and its unencrypted key in PEM ({error.reason})"
        except (OSError, ValueError) as error:
            return f"{self._cert}, {self._key}: cannot be read ({getattr(error, 'strerror', None) or error})"
        return ""


def _no_password() -> str:
    """Else a process without a terminal would ask one for it."""
    return ""
