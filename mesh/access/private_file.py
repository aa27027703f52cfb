"""Files with secrets, and who may read them."""

import os


def is_private(found: os.stat_result) -> bool:
    """Return whether nobody but this user can read or change a file.

    Of a file of root's, a group may read it, too: so Kubernetes hands secrets to those who are not root.
    """
    if found.st_uid == 0 and os.getuid() != 0:
        return not found.st_mode & 0o037
    return not found.st_mode & 0o077
