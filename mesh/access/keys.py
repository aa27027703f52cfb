"""Access keys: what one looks like, what is kept of it, and what it allows."""

import hashlib
import hmac
import re
import secrets
from typing import Annotated

import msgspec

SECRET_BYTES = 32
SALT_BYTES = 16
ID_BYTES = 6

_TEXT = re.compile(r"ms-([0-9a-f]{12})-([A-Za-z0-9_-]{43})")

Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
Hex = Annotated[str, msgspec.Meta(pattern=r"^([0-9a-f]{2})+$", max_length=128)]
Count = Annotated[int, msgspec.Meta(ge=1, le=10**12)]
Milliseconds = Annotated[float, msgspec.Meta(gt=0, le=3.6e6)]
Priority = Annotated[int, msgspec.Meta(ge=-1000, le=1000)]


class KeyLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a key may do; None: the deployment's default, and without one no limit.

    ``max_priority``, ``min_ttft_ms`` and ``min_tpot_ms`` take the place of the service's own bounds.
    """

    requests_per_minute: Count | None = None
    tokens_per_minute: Count | None = None  # of prompts and answers
    in_flight: Count | None = None  # requests for answers at a time
    services: tuple[str, ...] | None = None
    max_priority: Priority | None = None
    min_ttft_ms: Milliseconds | None = None  # the tightest promise that it may ask for
    min_tpot_ms: Milliseconds | None = None

    def over(self, defaults: "KeyLimits") -> "KeyLimits":
        """Return these limits, and those of ``defaults`` where these say nothing."""
        given = {name: getattr(self, name) for name in self.__struct_fields__}
        return msgspec.structs.replace(defaults, **{name: one for name, one in given.items() if one is not None})


UNLIMITED = KeyLimits()


class AccessKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One key as its file keeps it: a salted SHA-256 of its secret, never the secret itself."""

    name: Name
    id: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{12}$")]
    salt: Hex
    hash: Hex
    created: float  # seconds since the epoch
    expires: float | None = None  # likewise; None: never
    admin: bool = False  # may also see metrics and what the mesh tells of itself
    limits: KeyLimits = UNLIMITED

    def __repr__(self) -> str:
        return f"<AccessKey {self.name} {self.id}>"

    def matches(self, secret: str) -> bool:
        """Compare a secret with the key's hash, in a time that does not depend on how much of it is right."""
        return hmac.compare_digest(_hash(self.salt, secret), self.hash)

    def has_expired(self, wall_s: float) -> bool:
        return self.expires is not None and wall_s >= self.expires


def make_key(
    name: str, limits: KeyLimits, wall_s: float, expires: float | None = None, *, admin: bool = False
) -> tuple[AccessKey, str]:
    """Return what the file keeps, and the key itself: ``ms-<id>-<secret>``, with a secret of 256 random bits."""
    id_, secret, salt = secrets.token_hex(ID_BYTES), secrets.token_urlsafe(SECRET_BYTES), secrets.token_hex(SALT_BYTES)
    return AccessKey(name, id_, salt, _hash(salt, secret), wall_s, expires, admin, limits), f"ms-{id_}-{secret}"


def split_key(text: str) -> tuple[str, str] | None:
    """Id and secret; None: it is no key."""
    found = _TEXT.fullmatch(text)
    return None if found is None else (found[1], found[2])


def _hash(salt: str, secret: str) -> str:
    return hashlib.sha256(f"{salt}{secret}".encode()).hexdigest()
