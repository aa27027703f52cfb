"""Faults of one simulated engine, as a run asks for them."""

from typing import Final

from mesh.wire.frames import Sender
from simulation.kernel import Kernel


class EngineFailures:
    """``load_part``: of loads of a service's weights that fail, found out when they should be here. ``step_part``: of
    steps that fail, found out when they should have ended. ``stall_s``: by which the next step is longer.
    """

    def __init__(self, kernel: Kernel, me: Sender) -> None:
        self.load_part = self.step_part = 0.0
        self.stall_s = 0.0
        self._loads: Final = kernel.random(f"loads of {me.process}@{me.incarnation}")
        self._steps: Final = kernel.random(f"failures of {me.process}@{me.incarnation}")

    def fails_load(self) -> bool:
        """Return whether the load that ends now fails."""
        return self._loads.random() < self.load_part

    def fails_step(self) -> bool:
        """Return whether the step that ends now fails."""
        return bool(self.step_part) and self._steps.random() < self.step_part

    def take_stall_s(self) -> float:
        """Return by how much the step that begins is longer. The next one is not."""
        stall_s, self.stall_s = self.stall_s, 0.0
        return stall_s
