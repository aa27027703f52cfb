"""The autoscaler and role flips, in simulation, and services to place."""
