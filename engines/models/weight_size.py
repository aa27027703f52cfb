"""The size of a model's weights as its files have them: what backends load that take a checkpoint as it is."""

import math
from pathlib import Path

from engines.models.files.block_kinds import BLOCKS_FILE
from engines.models.files.safetensors_header import read_header
from engines.models.store import weight_files

FLOATS = ("F64", "F32", "F16", "BF16")  # which are loaded in the service's dtype; codes stay as they are


def stored_bytes(folder: Path, item_bytes: int) -> int:
    """Return the bytes of all weights once loaded, floats in ``item_bytes`` each. Raise `ModelError` if they cannot be
    read.
    """
    files = [path for path in weight_files(folder) if path.name != BLOCKS_FILE]
    entries = [entry for path in files for entry in read_header(path).entries.values()]
    in_floats = sum([math.prod(entry.shape) for entry in entries if entry.dtype in FLOATS])
    in_codes = sum(
        [end - begin for entry in entries if entry.dtype not in FLOATS for begin, end in [entry.data_offsets]]
    )
    return in_floats * item_bytes + in_codes
