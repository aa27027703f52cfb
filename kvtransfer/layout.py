"""How the KV blocks of one service lie in memory: block after block, each opaque bytes to everything but its engine."""

from dataclasses import dataclass

from mesh.messages import KVShape

ALIGNMENT = 64  # bytes; every block starts on a cache line
DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


def align(num_bytes: int) -> int:
    return -(-num_bytes // ALIGNMENT) * ALIGNMENT


def block_bytes(shape: KVShape) -> int:
    """Bytes of one block: K and V of ``block_size`` tokens in all layers. Raise ValueError on an unknown dtype."""
    itemsize = DTYPE_BYTES.get(shape.dtype)
    if itemsize is None:
        raise ValueError(f"KV dtype {shape.dtype!r} is unknown: want one of {', '.join(DTYPE_BYTES)}")
    return shape.num_layers * 2 * shape.block_size * shape.num_kv_heads * shape.head_dim * itemsize


@dataclass(frozen=True, slots=True)
class KVLayout:
    """A pool of ``num_blocks`` blocks of one shape."""

    shape: KVShape
    num_blocks: int

    @classmethod
    def fitting(cls, shape: KVShape, memory_bytes: int) -> "KVLayout":
        """As many blocks as fit. Raise ValueError if not even one does."""
        stride = align(block_bytes(shape))
        if memory_bytes < stride:
            raise ValueError(f"{memory_bytes} bytes of KV memory hold no block of {stride} bytes: give more memory")
        return cls(shape, memory_bytes // stride)

    @property
    def block_bytes(self) -> int:
        return block_bytes(self.shape)

    @property
    def stride_bytes(self) -> int:
        """Distance between the starts of neighbouring blocks."""
        return align(self.block_bytes)

    @property
    def num_tokens(self) -> int:
        """What the whole pool holds."""
        return self.num_blocks * self.shape.block_size

    def num_blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.shape.block_size)
