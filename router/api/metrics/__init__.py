"""Prometheus metrics of a gateway."""
