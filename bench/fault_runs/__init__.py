"""Many seeded simulations in which everything goes wrong that can: see `bench.fault_runs.__main__`."""
