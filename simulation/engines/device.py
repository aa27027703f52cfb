"""Engines that are processes on the same device, each with a bound on the part of its SMs (MuxServe, by MPS).

Prompts take as long as the SMs allow, decodes as long as the memory's bandwidth allows. `SmQuota.decode` is a bound of
decodes alone, as MuxServe starts other processes for them.
"""

from collections.abc import Mapping

from simulation.engines.hardware import SharedHardware, SharedStep
from simulation.engines.physics import SmQuota
from simulation.kernel import Kernel

ENOUGH_SMS = 0.4  # assumed: so many of a device's SMs read its memory as fast as all do


def bandwidth(sms: float) -> float:
    """The part of a device's memory bandwidth that a part of its SMs reaches."""
    return min(1.0, sms / ENOUGH_SMS)


class SharedDevice(SharedHardware):
    """Steps that want more SMs together than there are have parts of them in proportion, and decodes that want more
    bandwidth than there is, of that. Prompts are taken to want none. A step that is alone has its quota.
    """

    def __init__(self, kernel: Kernel, quotas: Mapping[str, SmQuota]) -> None:
        super().__init__(kernel)
        self._quotas = quotas

    def _sms(self, step: SharedStep) -> float:
        quota = self._quotas[step.engine]
        return quota.prefill if step.work.has_prompts else quota.decode

    def _speed(self, step: SharedStep) -> float:
        granted = 1.0 / max(1.0, sum(map(self._sms, self._running)))
        if step.work.has_prompts:
            return granted
        reached = {one: bandwidth(granted * self._sms(one)) for one in self._running if not one.work.has_prompts}
        return reached[step] / max(1.0, sum(reached.values())) / bandwidth(self._sms(step))
