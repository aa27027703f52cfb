"""Identifies a folder's model: two engines must agree on it for one to continue with the other's KV and tokens."""

from hashlib import blake2b
from pathlib import Path

import msgspec

from engines.models.files.model_config import ModelConfig
from engines.models.files.safetensors_header import read_header
from engines.models.store import weight_files

SAMPLE_BYTES = 4096  # out of the middle of each tensor


def identity_of(folder: Path) -> str:
    """A digest of shape, tokenizer and weights. Of the weights, it knows the names, types and shapes of all tensors and
    some bytes of each, so it costs a short read a tensor. Another model, revision or fine-tune has another identity,
    the same one in other files has the same; damage between the samples is not seen. Raise `ModelError`.
    """
    digest = blake2b(msgspec.json.encode(ModelConfig.load(folder), order="sorted"), digest_size=16)
    digest.update(blake2b((folder / "tokenizer.json").read_bytes()).digest())
    samples = {name: sample for path in weight_files(folder) for name, sample in samples_of(path).items()}
    for name, sample in sorted(samples.items()):
        digest.update(msgspec.json.encode([name, sample.hex()]))
    return digest.hexdigest()


def samples_of(path: Path) -> dict[str, bytes]:
    """Return the digest of some bytes of each tensor of a file, by its name. Raise `ModelError`."""
    header, samples = read_header(path), dict[str, bytes]()
    with path.open("rb") as file:
        for name, entry in header.entries.items():
            begin, end = entry.data_offsets
            size = min(SAMPLE_BYTES, end - begin)
            file.seek(header.data_at + (begin + end - size) // 2)
            sample = msgspec.json.encode([entry.dtype, entry.shape]) + file.read(size)
            samples[name] = blake2b(sample, digest_size=16).digest()
    return samples
