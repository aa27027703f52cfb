"""The memories of peers, opened once and kept while they are used."""

from collections import OrderedDict
from contextlib import suppress
from threading import Lock

from kvtransfer.gpu.device import MESSAGE_BYTES, Device
from kvtransfer.gpu.device_memory import PeerDeviceMemory
from kvtransfer.gpu.nccl import NcclLimits, NcclLinks
from kvtransfer.memory import MemoryUnreachableError, PeerMemory
from kvtransfer.nixl.links import NixlLinks
from mesh.wire.transfers import MemoryRef

MAX_PEERS = 64


class PeerMemories:
    """The least recently used goes when there are too many. ``device``: this engine's GPU, if it computes on one;
    ``nixl``: its agent, if it was told to use NIXL.

    Safe to use from several threads. A memory that is forgotten while somebody copies from it is unmapped after the
    copy.
    """

    def __init__(self, max_peers: int = MAX_PEERS) -> None:
        self.device: Device | None = None
        self.links: NcclLinks | None = None
        self.nixl: NixlLinks | None = None
        self._max_peers = max_peers
        self._lock = Lock()
        self._pools: OrderedDict[tuple[str, str], tuple[str, PeerMemory | PeerDeviceMemory]] = OrderedDict()

    def __repr__(self) -> str:
        return f"<PeerMemories {[peer for peer, _ in self._pools.values()]}>"

    def __len__(self) -> int:
        return len(self._pools)

    def equip(self, device: Device, page_bytes: int) -> None:
        """This engine's KV lies on ``device``, in pages of so many bytes. Before any peer is heard."""
        self.device = device
        if device.has_nccl:
            self.links = NcclLinks(device, NcclLimits(slot_bytes=max(MESSAGE_BYTES, page_bytes)))

    def open(self, peer: str, ref: MemoryRef) -> PeerMemory | PeerDeviceMemory:
        """Raise `MemoryUnreachableError` if the pool of process ``peer`` cannot be mapped here."""
        key = ref.path, ref.token
        with self._lock:
            found = self._pools.get(key)
            pool = self._map(ref) if found is None else found[1]
            self._pools[key] = peer, pool
            self._pools.move_to_end(key)
            if len(self._pools) > self._max_peers:
                self._pools.popitem(last=False)
            return pool

    def open_host(self, peer: str, ref: MemoryRef) -> PeerMemory:
        """Open a memory whose pages this process can read; see `open`."""
        memory = self.open(peer, ref)
        if not isinstance(memory, PeerMemory):
            raise MemoryUnreachableError("the peer's KV memory lies on a GPU")
        return memory

    def open_device(self, peer: str, ref: MemoryRef) -> PeerDeviceMemory:
        """Open a memory whose pages this engine's GPU can read; see `open`."""
        memory = self.open(peer, ref)
        if not isinstance(memory, PeerDeviceMemory):
            raise MemoryUnreachableError("the peer's KV memory does not lie on a GPU")
        return memory

    def _map(self, ref: MemoryRef) -> PeerMemory | PeerDeviceMemory:
        if ref.device is None:
            return PeerMemory(ref)
        if self.device is None:
            raise MemoryUnreachableError("the peer's KV memory lies on a GPU, and this engine has none")
        return PeerDeviceMemory(ref, ref.device, self.device)

    def can_open(self, peer: str, ref: MemoryRef) -> bool:
        with suppress(MemoryUnreachableError):
            self.open(peer, ref)
            return True
        return False

    def forget(self, peer: str) -> None:
        """Drop the pools of a process that died."""
        with self._lock:
            for key in [key for key, (owner, _) in self._pools.items() if owner == peer]:
                del self._pools[key]
        if self.links is not None:
            self.links.forget(peer)
        if self.nixl is not None:
            self.nixl.forget(peer)
