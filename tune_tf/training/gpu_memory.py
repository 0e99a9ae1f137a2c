"""How much of a card's memory a trial may take that reserved a fraction of it."""

import os
import subprocess
from collections.abc import Callable, Mapping

from tune_tf.errors import UnavailableResourcesError

CONTEXT_MIB = 512
"""What CUDA and its libraries take of a card in every process beside TensorFlow's own memory."""

_LEAST_MIB = 256
_QUERY = ("nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits")

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def memory_limit_mib(fraction: float, card_mib: int) -> int:
    """Return the limit of TensorFlow's memory on a card that several trials share.

    ``fraction x card - CONTEXT_MIB``: with all of its trials running, the card is not overdrawn.

    Args:
        fraction: Of the card, between 0 and 1.
        card_mib: The card's memory.

    Raises:
        UnavailableResourcesError: Too little is left to train with.
    """
    limit = int(fraction * card_mib) - CONTEXT_MIB
    if limit < _LEAST_MIB:
        raise UnavailableResourcesError(
            f"the trial reserved {fraction:g} of a GPU with {card_mib} MiB, and CUDA itself takes "
            f"{CONTEXT_MIB} MiB of each share: {limit} MiB are left, at least {_LEAST_MIB} are "
            f"needed; reserve at least {(_LEAST_MIB + CONTEXT_MIB) / card_mib:.2f}"
        )
    return limit


def card_memory_mib(
    *, run: Run = subprocess.run, environment: Mapping[str, str] = os.environ
) -> int:
    """Return the memory of the first GPU that this process may use.

    TensorFlow tells it only once the card is in use, when it is too late for a limit.

    Raises:
        UnavailableResourcesError: The driver does not tell.
    """
    first = environment.get("CUDA_VISIBLE_DEVICES", "").split(",")[0].strip()
    query = [*_QUERY, *(["--id", first] if first else [])]
    try:
        told = run(query, capture_output=True, text=True, check=True, timeout=30)
        return int(told.stdout.splitlines()[0])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        raise UnavailableResourcesError(
            "the trial reserved a fraction of a GPU, but the size of the card is not known, so its "
            f"share cannot be enforced: `{' '.join(query)}` failed ({error}); mend the driver's "
            "installation, or reserve whole GPUs"
        ) from error
