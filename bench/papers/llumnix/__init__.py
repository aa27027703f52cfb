"""Llumnix: dispatch alone against rescheduling, auto-scaling, and a small comparison on real processes."""
