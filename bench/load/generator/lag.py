"""Is the load generator itself too slow? It measures its own lag, and says when its figures are not the server's."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

MOST_CPU = 0.8  # of a core, of each process
MOST_LAG_S = 0.020  # at the 99th percentile
MOST_SHARE = 0.05  # of the median TTFT; a lag that is small beside what is measured does no harm
LEAST_LAG_S = 0.002


@dataclass(frozen=True, slots=True)
class Health:
    """Of the generator. ``cpu_shares``: of a core, by process. Lags in seconds, at the 99th percentile and the most."""

    cpu_shares: tuple[float, ...]
    send_lag_p99_s: float
    send_lag_max_s: float
    loop_lag_p99_s: float
    loop_lag_max_s: float

    @classmethod
    def of(cls, cpu_shares: Sequence[float], send_lags_s: Sequence[float], loop_lags_s: Sequence[float]) -> "Health":
        return cls(tuple(cpu_shares), *_extremes(send_lags_s), *_extremes(loop_lags_s))

    def warnings(self, median_ttft_s: float | None) -> list[str]:
        """One line each; none if the figures are the server's."""
        limit_s = min(MOST_LAG_S, max(LEAST_LAG_S, MOST_SHARE * (median_ttft_s or MOST_LAG_S)))
        lines = []
        busiest = max(self.cpu_shares, default=0.0)
        if busiest > MOST_CPU:
            lines.append(f"a client process used {busiest:.0%} of a core")
        if self.send_lag_p99_s > limit_s:
            lines.append(f"1 % of the requests were sent {1e3 * self.send_lag_p99_s:.1f} ms late")
        if self.loop_lag_p99_s > limit_s:
            lines.append(f"tokens were noted up to {1e3 * self.loop_lag_p99_s:.1f} ms late (99 % of the time)")
        return lines

    def json(self) -> dict[str, object]:
        return {
            "cpu_shares": list(self.cpu_shares),
            "p99_send_lag_ms": 1e3 * self.send_lag_p99_s,
            "max_send_lag_ms": 1e3 * self.send_lag_max_s,
            "p99_loop_lag_ms": 1e3 * self.loop_lag_p99_s,
            "max_loop_lag_ms": 1e3 * self.loop_lag_max_s,
        }


def _extremes(values_s: Sequence[float]) -> tuple[float, float]:
    return (float(np.percentile(values_s, 99)), max(values_s)) if values_s else (0.0, 0.0)
