"""``python -m bench.models.byte_llama``: see `bench.models.byte_llama.training`."""

from bench.models.byte_llama.training import main

main()
