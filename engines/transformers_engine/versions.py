"""Finds which transformers is installed beside this interpreter, and whether the backend was made for it."""

import importlib.metadata

from mesh.errors import UserError

MAJOR = 5
EXTRA = "pip install 'meshserve[transformers]'"


def installed_transformers() -> str:
    """Return the version of transformers. Raise `UserError` if there is none or it has another major version."""
    try:
        version = importlib.metadata.version("transformers")
    except importlib.metadata.PackageNotFoundError:
        raise UserError(
            'backend = "transformers" needs transformers, which is not installed for this interpreter; '
            f"install the extra: {EXTRA}"
        ) from None
    if version.split(".")[0] != str(MAJOR):
        raise UserError(
            f'transformers {version} is installed, and backend = "transformers" is made for transformers {MAJOR}; '
            f"install the extra: {EXTRA}"
        )
    return version
