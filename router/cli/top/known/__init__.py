"""Folds frames of the gateways' feeds into one picture of the mesh. Pure, and bounded."""
