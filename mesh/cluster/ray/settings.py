"""Settings that all processes of a Ray cluster need for a mesh to be well on it, and the name of its actor."""

from collections.abc import Mapping
from typing import Final

KEEPER: Final = "keeper"  # the actor's name, in the namespace of its mesh

RAY_SETTINGS: Mapping[str, str] = {
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # hosts without GPUs leave the variables alone
    "RAY_worker_niceness": "0",  # else all that Ray starts yields to everything else on a machine
    "RAY_gcs_rpc_server_reconnect_timeout_s": "86400",  # for as long, processes go on without a head
}
