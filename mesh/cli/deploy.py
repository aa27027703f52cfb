"""``mesh deploy render``: make of a topology what starts it on a cluster, in containers, or as services of machines."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from mesh import __version__
from mesh.cli.arguments import add_topology
from mesh.errors import UserError

if TYPE_CHECKING:
    from mesh.cli.arguments import Subparsers
    from mesh.deploy.deployment import RenderedFile

COMMAND = "/opt/meshserve/bin/mesh"
TARGETS = ("kubernetes", "ray", "slurm", "compose", "systemd")


def register(subparsers: "Subparsers") -> None:
    parser = subparsers.add_parser("deploy", help="make manifests, scripts or units of a topology")
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    render = actions.add_parser("render", help="write what starts the deployment elsewhere; nothing is started")
    add_topology(render)
    render.add_argument("--to", choices=TARGETS, required=True, help="what it is for")
    render.add_argument(
        "--out", type=Path, metavar="DIR", help="write files there (default: print them, if all are YAML)"
    )
    image = f"meshserve:{__version__}"
    render.add_argument("--image", default=image, metavar="NAME", help=f"the image of containers (default: {image})")
    render.add_argument("--namespace", default="default", metavar="NAME", help="kubernetes, ray (default: default)")
    render.add_argument("--storage", metavar="SIZE", help="kubernetes: a volume of each host, such as 50Gi, for models")
    render.add_argument("--with-secret", action="store_true", help="kubernetes, ray: put the mesh's key in, too")
    render.add_argument(
        "--keda", metavar="SECRET", help="kubernetes: pods follow [scaling]; the Secret's token is an operator's key"
    )
    render.add_argument(
        "--inference-pool", metavar="SERVICE", help="kubernetes: an InferencePool with this endpoint picker"
    )
    render.add_argument(
        "--mesh", default=COMMAND, metavar="PATH", help=f"slurm, systemd: the command (default: {COMMAND})"
    )
    render.add_argument("--time", default="1-00:00:00", metavar="LIMIT", help="slurm: of the job (default: one day)")
    render.set_defaults(run=_render)


def _render(options: argparse.Namespace) -> int:
    from mesh.deploy.deployment import RenderSettings, read_deployment
    from mesh.deploy.targets import TARGETS as RENDERERS

    deployment = read_deployment(options.file, with_secret=options.with_secret)
    settings = RenderSettings(
        image=options.image,
        command=options.mesh,
        time_limit=options.time,
        namespace=options.namespace,
        storage=options.storage,
        with_secret=options.with_secret,
        keda_secret=options.keda,
        endpoint_picker=options.inference_pool,
    )
    rendering = RENDERERS[options.to](deployment, settings)
    if options.out is None:
        sys.stdout.write(_stream(rendering.files, options.to))
    else:
        _write(rendering.files, options.out)
    for note in rendering.notes:
        sys.stderr.write(f"note: {note}\n")
    return 0


def _stream(files: "tuple[RenderedFile, ...]", target: str) -> str:
    """All manifests as one, for a pipe; a kustomization is of files."""
    texts = [file.text for file in files if file.path != "kustomization.yaml"]
    if not all(file.path.endswith(".yaml") for file in files):
        raise UserError(f"--to {target} makes several files; say where with --out DIR")
    return "".join(texts)


def _write(files: "tuple[RenderedFile, ...]", folder: Path) -> None:
    try:
        for file in files:
            path = folder / file.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(file.text)
            path.chmod(file.mode)
            sys.stdout.write(f"{path}\n")
    except OSError as error:
        raise UserError(f"{folder}: cannot be written: {error.strerror}") from None
