"""Dispatch policies: one small file each, chosen by name in the topology."""
