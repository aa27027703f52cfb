"""Prometheus metrics of an engine."""
