"""For tests of what the kernels do."""

import pytest

from engines.torch_engine.layers.cpu_kernels import kernel_sets

compiled = pytest.mark.skipif(not kernel_sets(), reason="the kernels were not compiled: no C compiler")
