"""csrc/module.c. Addresses are those of contiguous memory, `Tensor.data_ptr`, which nobody checks."""

INTERFACE: int

def names() -> list[str]:
    """Sets of kernels that this processor runs, the fastest first."""

def packed_bytes(form: int, outs: int, ins: int, /) -> int: ...
def pack(form: int, codes: int, scales: int, minima: int, packed: int, outs: int, ins: int, /) -> None: ...
def product(
    kernels: str,
    form: int,
    weights: int,
    x: int,
    out: int,
    stride: int,
    rows: int,
    outs: int,
    ins: int,
    rounds: bool,
    adds: bool,
    threads: int,
    /,
) -> None: ...
def attend(
    kernels: str,
    queries: int,
    stride: int,
    kv: int,
    rows: int,
    tables: int,
    width: int,
    lengths: int,
    requests: int,
    kv_heads: int,
    heads: int,
    block_size: int,
    head_dim: int,
    scale: float,
    window: int,
    softcap: float,
    out: int,
    threads: int,
    /,
) -> None: ...
def attend_chunk(
    kernels: str,
    queries: int,
    stride: int,
    kv: int,
    rows: int,
    table: int,
    before: int,
    num: int,
    kv_heads: int,
    heads: int,
    block_size: int,
    head_dim: int,
    scale: float,
    window: int,
    softcap: float,
    out: int,
    threads: int,
    /,
) -> None: ...
def store(
    kernels: str,
    kv: int,
    source: int,
    stride: int,
    index: int,
    tokens: int,
    heads: int,
    head_dim: int,
    rows: int,
    threads: int,
    /,
) -> None: ...
def normalise(
    kernels: str, x: int, weight: int, epsilon: float, out: int, rows: int, num: int, threads: int, /
) -> None: ...
def rotate(
    kernels: str, x: int, stride: int, rows: int, heads: int, head_dim: int, dims: int, angles: int, threads: int, /
) -> None: ...
def gate(kernels: str, x: int, out: int, rows: int, num: int, threads: int, /) -> None: ...
