"""All that a topology can be rendered as."""

from collections.abc import Callable, Mapping

from mesh.deploy import compose, kuberay, slurm, systemd
from mesh.deploy.deployment import Deployment, Rendering, RenderSettings
from mesh.deploy.kubernetes import rendering as kubernetes

TARGETS: Mapping[str, Callable[[Deployment, RenderSettings], Rendering]] = {
    "kubernetes": kubernetes.render,
    "ray": kuberay.render,
    "slurm": slurm.render,
    "compose": compose.render,
    "systemd": systemd.render,
}
