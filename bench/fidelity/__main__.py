"""``python -m bench.fidelity``: see `bench.fidelity.whole_mesh`."""

from bench.fidelity.whole_mesh import main

main()
