"""Holds what a gateway knows of the mesh: engines, gateways, reservations, prefixes."""
