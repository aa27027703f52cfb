"""The errors that end a command with one line, not with a stack trace."""


class UserError(Exception):
    """Something that only the user can put right. Its text says what, where, and what would be right, one line a fault.

    Commands and processes print it as it is, without a stack trace, and exit with `EXIT_CONFIGURATION`.
    """


class CommandError(Exception):
    """What was asked for rightly could not be done now. Its text says why; commands exit with `EXIT_FAILURE`."""


EXIT_FAILURE = 1
EXIT_CONFIGURATION = 2  # starting again would not help
EXIT_INTERRUPTED = 130
