"""Tropical: SLO attainment against rate, simulated and live."""
