"""Holds what a simulation models besides the costs of engines."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class SmQuota:
    """The part of a device's SMs that an engine may use, in steps with chunks of prompts and in those of decodes."""

    prefill: float
    decode: float


@dataclass(frozen=True, slots=True)
class Physics:
    """Engines of one host slow each other down: see `simulation.engines.host`. With ``sm_quotas``, by engine, they are
    processes on one device: see `simulation.engines.device`.
    """

    latency_s: float = 2e-4  # of a control message
    kv_bytes_per_s: float = 25e9  # between two engines
    kv_message_s: float = 1e-4  # to begin to copy a message of KV blocks
    host_bytes_per_s: float = 20e9  # between one device and its host's memory: PCIe 4.0 x16, less its overhead
    disk_bytes_per_s: float = 3.5e9  # of a host's KV tier on disk: half of an NVMe drive on four lanes of PCIe 4.0
    tier_block_s: float = 1e-4  # to open the file of a block in a KV tier
    weight_bytes_per_s: float | None = None  # of one device that a service is loaded on; None: what its profile says
    boot_s: float = 10.0  # of an engine's process, before the weights of its services come
    noise: float = 0.0  # standard deviation of the logarithm of step times
    late_masks: float = 0.0  # probability that what a grammar allows is not known when a token is to be sampled
    forced_tokens: float = 0.0  # probability that a structured answer's next token is the one that its grammar allows
    draft_acceptance: float = 0.6  # probability that a draft is right if those before it are, mean over requests
    step_s: float = 0.0  # that an engine's process spends between two steps
    shared_decode: float = 1.0  # times as long as alone: steps of decodes while another engine of the host computes
    shared_prefill: float = 1.0  # the same for steps with chunks of prompts
    sm_quotas: Mapping[str, SmQuota] = field(default_factory=dict)  # of all engines, or of none

    @property
    def is_shared(self) -> bool:
        return max(self.shared_decode, self.shared_prefill) > 1.0 or bool(self.sm_quotas)
