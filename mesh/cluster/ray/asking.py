"""Questions to Ray actors that Ray may be restarting elsewhere."""

import time
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError

PAUSE_S = 0.2


def ask(actor: Any, method: str, *arguments: object, timeout_s: float) -> Any:
    """Return the answer of an actor, as soon as it is there. It may be asked twice. Raise `ray.exceptions.RayError`."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return ray.get(getattr(actor, method).remote(*arguments), timeout=max(0.0, deadline - time.monotonic()))
        except ActorUnavailableError:
            if time.monotonic() > deadline:
                raise
            time.sleep(PAUSE_S)
