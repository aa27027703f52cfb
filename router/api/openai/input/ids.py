"""Names of an API call: its ``x-request-id``, the ``id`` of its answer, and the ids of its choices inside the mesh."""

from hashlib import blake2b
from os import urandom

import msgspec

_PREFIXES = ("chatcmpl-", "cmpl-", "resp_", "msg_")


class CallId(msgspec.Struct, frozen=True):
    """The names of a call. ``request_id`` is the client's own or ours, and may come twice; ``token`` is sampled for
    each call.
    """

    request_id: str
    token: str

    @classmethod
    def draw(cls, request_id: str) -> "CallId":
        return cls(request_id, urandom(8).hex())

    def answer(self, prefix: str) -> str:
        """Return the id of the answer. ``prefix`` is its API's."""
        return f"{prefix}{self.token}"

    def tool_call(self, choice: int, index: int, length: int = 24) -> str:
        """Return the id of a call of a tool. One of 9 characters is all that some models' templates take back."""
        name = blake2b(f"{self.token}-{choice}-{index}".encode(), digest_size=16).hexdigest()
        return name[:length] if length < 24 else f"call_{name[:length]}"

    def choice(self, index: int) -> str:
        return f"{self.request_id}-{self.token}-{index}"


def is_meant(choice: str, asked: str) -> bool:
    """Return whether somebody who asks for ``asked`` means this choice: by its own id, its call's, or that of the
    answer.
    """
    if choice == asked:
        return True
    for prefix in _PREFIXES:
        asked = asked.removeprefix(prefix)
    request_id, token, index = ["", "", *choice.rsplit("-", 2)][-3:]
    return asked in (request_id, token, f"{token}-{index}", f"{request_id}-{token}") and bool(asked)
