"""SCLS: slice-level scheduling in simulation and live."""
