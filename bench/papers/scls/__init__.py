"""SCLS: slice-level scheduling in simulation."""
