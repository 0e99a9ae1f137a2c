"""Exit codes, and error messages without tracebacks."""

import contextlib
import sys
from collections.abc import Iterator
from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of every verb."""

    ENDED = 0
    NOTHING_COMPLETED = 1
    WRONG_SETTINGS = 2
    INTERRUPTED = 130


@contextlib.contextmanager
def exit_on_errors() -> Iterator[None]:
    """Print a user's error as one message without a traceback, and exit."""
    from tune_tf.errors import DiskFullError, TuneTfError

    try:
        yield
    except DiskFullError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(ExitCode.NOTHING_COMPLETED)
    except TuneTfError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(ExitCode.WRONG_SETTINGS)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(ExitCode.INTERRUPTED)
