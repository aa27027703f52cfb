"""Whether a process has ended, asked in one call: between two, it may end."""

import psutil


def has_ended(process: int | psutil.Process) -> bool:
    """Tell whether this one, or the one of this id, is gone or only waits for its parent."""
    try:
        asked = psutil.Process(process) if isinstance(process, int) else process
        return not asked.is_running() or asked.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
