"""Budget section of a sweep file."""

from typing import Annotated

from pydantic import Field

from tune_tf.config.settings import Settings


class BudgetSettings(Settings):
    """Budget and stopping criteria of a sweep.

    The sweep ends at the first limit that it reaches. Trials running then are stopped after their
    current iteration, keep their checkpoints and end as ``out_of_budget``.

    Args:
        num_samples: Number of trials.
        time_budget_s: Seconds until the sweep ends, not counting those between an interruption and
            the resume; None for no limit.
        epochs: Iterations of all trials together, retries and resumes included; None for no limit.
        cpu_hours: Hours of reserved CPUs, of all trials together; None for no limit.
        gpu_hours: Hours of reserved GPUs, of all trials together; None for no limit.
        target: Value of the leading metric to reach: the trial that reports it or a better one,
            within the constraints, completes, and the sweep ends; None for none.
        patience: Trials in a row that may end without an improvement of the best; None for any
            number.
    """

    num_samples: Annotated[int, Field(ge=1)]
    time_budget_s: Annotated[float, Field(gt=0)] | None = None
    epochs: Annotated[int, Field(ge=1)] | None = None
    cpu_hours: Annotated[float, Field(gt=0)] | None = None
    gpu_hours: Annotated[float, Field(gt=0)] | None = None
    target: float | None = None
    patience: Annotated[int, Field(ge=1)] | None = None
