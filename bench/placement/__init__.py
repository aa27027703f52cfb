"""Placement of services, the autoscaler and role flips, in simulation."""
