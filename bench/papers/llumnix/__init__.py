"""Llumnix: dispatch alone against rescheduling, and a small comparison on real processes."""
