"""Manifests of a mesh in pods: one StatefulSet for each table of hosts."""
