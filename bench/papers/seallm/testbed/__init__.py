"""SeaLLM's testbed in simulation: many services on a cluster, by system, load, density, skew and error of profiles."""
