"""``python -m mesh.cli``: the command of this interpreter's environment."""

import sys

from mesh.cli.entry import main

sys.exit(main())
