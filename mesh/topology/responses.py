"""The settings of stored responses: ``[responses]`` of a topology."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

DAY_S: Final = 86400.0


@dataclass(frozen=True, slots=True)
class ResponsesSpec:
    """Where gateways keep responses, how much of them and how long. ``folder`` None: in the user's state folder."""

    keep: bool = True
    folder: Path | None = None
    max_bytes: int = 2**30
    max_age_days: int = 30

    @property
    def max_age_s(self) -> float:
        return self.max_age_days * DAY_S


KEPT: Final = ResponsesSpec()
