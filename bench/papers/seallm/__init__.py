"""SeaLLM: services that share engines, by simulation and live."""
