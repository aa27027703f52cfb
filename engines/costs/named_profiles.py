"""Finds a profile by its name: a preset of real hardware, or the path of a file that ``mesh profile`` wrote."""

from pathlib import Path

from engines.costs.presets import load_preset
from engines.costs.profiles import EngineProfile, read_profile_file
from mesh.topology.schema import EngineSpec

SUFFIX = ".toml"


def load_profile(name: str) -> EngineProfile:
    """A preset, or a file if the name ends in ``.toml``. Raise `ProfileError` if there is none or it is malformed."""
    if name.endswith(SUFFIX):
        return read_profile_file(Path(name)).profile()
    return load_preset(name)


def num_devices_of(engine: EngineSpec) -> int:
    """Return the number of devices: what the topology says, else its profile, else one of each engine that it spans,
    else 1.
    """
    if engine.num_devices is not None:
        return engine.num_devices
    return load_profile(engine.profile).num_devices if engine.profile is not None else max(1, len(engine.spans))
