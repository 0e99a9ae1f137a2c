"""The section of a sweep file that says how much a sweep may spend."""

from typing import Annotated

from pydantic import Field

from tune_tf.config.settings import Settings


class BudgetSettings(Settings):
    """How much a sweep may spend, and when it has found enough.

    The sweep ends with the first limit that it meets. Trials that run then are stopped after the
    iteration that they are in, keep their checkpoints and end as ``out_of_budget``.

    Args:
        num_samples: Trials to start.
        time_budget_s: Seconds after which the sweep ends, those not counted in which nothing drove
            it; None for no limit.
        epochs: Iterations of all trials together, retries and resumes included; None for no limit.
        cpu_hours: Hours of reserved CPUs, of all trials together; None for no limit.
        gpu_hours: Hours of reserved GPUs, of all trials together; None for no limit.
        target: Value of the leading metric that is good enough: the trial that reports it or a
            better one, within the constraints, completes, and the sweep ends; None for none.
        patience: Trials in a row that may end without a better best trial; None for any number.
    """

    num_samples: Annotated[int, Field(ge=1)]
    time_budget_s: Annotated[float, Field(gt=0)] | None = None
    epochs: Annotated[int, Field(ge=1)] | None = None
    cpu_hours: Annotated[float, Field(gt=0)] | None = None
    gpu_hours: Annotated[float, Field(gt=0)] | None = None
    target: float | None = None
    patience: Annotated[int, Field(ge=1)] | None = None
