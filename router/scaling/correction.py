"""Learns from attainment what the arithmetic of `router.scaling.need` leaves out (k5 of Aladdin's equation 7)."""

from dataclasses import dataclass

LEAST_ENDED = 30  # requests to judge by
STEP_UP = 1.1
STEP_DOWN = 0.98
ABOVE_FAILED = 1.03  # what was too little is not tried again, for long
FORGETS = 0.999  # of that, with each judgement
LEAST, MOST = 0.5, 4.0


@dataclass(slots=True)
class Correction:
    """Engines that are needed, in engines that were reckoned. ``too_small``: the largest such number that failed."""

    factor: float = 1.0
    too_small: float = 0.0

    def judge(self, num_ended: int, num_late: int, attainment: float, tried: float) -> bool:
        """Compare what was reckoned with what was achieved. ``tried``: engines that ran, in engines that were reckoned.
        Whether there were enough requests to judge by.

        More engines than the factor asks for say nothing of it, unless they were too few all the same.
        """
        if num_ended < LEAST_ENDED:
            return False
        self.too_small *= FORGETS
        achieved = 1 - num_late / num_ended
        if achieved < attainment:
            self.too_small = max(self.too_small, min(tried, MOST / ABOVE_FAILED))
            self.factor = min(MOST, max(STEP_UP * self.factor, ABOVE_FAILED * self.too_small))
        elif achieved >= (1 + attainment) / 2:
            self.factor = min(self.factor, max(LEAST, ABOVE_FAILED * self.too_small, STEP_DOWN * self.factor))
        return True
