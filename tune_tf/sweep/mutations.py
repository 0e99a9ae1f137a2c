"""Which parameters a scheduler may change in running trials."""

import ray

from tune_tf.config import SweepConfig
from tune_tf.config.scheduler_settings import Pb2Settings, PbtSettings, ResourceChangingSettings
from tune_tf.errors import Fault, InvalidSettingsError
from tune_tf.schedulers.mutations import moves, moves_evenly, mutations
from tune_tf.workload import Workload


def allowed_mutations(config: SweepConfig, workload: Workload) -> tuple[str, ...] | None:
    """Return the parameters to change: those named, or all that a checkpoint lets change.

    A parameter that shapes the model cannot change while a trial goes on from its checkpoint. To
    know, models are built by a task on the Ray cluster; this process stays without TensorFlow.

    Returns:
        Paths; None if the scheduler changes nothing, or no cluster is connected to look.

    Raises:
        InvalidSettingsError: A parameter that is named cannot change, or none can.
    """
    settings = config.scheduler
    if isinstance(settings, ResourceChangingSettings):
        settings = settings.base
    if not isinstance(settings, PbtSettings | Pb2Settings) or not ray.is_initialized():
        return None
    refusal = moves_evenly if isinstance(settings, Pb2Settings) else moves
    chosen = mutations(settings.mutations, config.space, refusal, settings.name)
    paths = list(chosen.parameters)
    structural = ray.get(_structural.remote(workload, config.space, paths))
    allowed = tuple(path for path in paths if path not in structural)
    where = "scheduler.mutations"
    told = [f"{path} cannot change while a trial runs: {structural[path]}" for path in structural]
    if settings.mutations and structural:
        raise InvalidSettingsError([Fault(where, f"{each}; leave it out") for each in told])
    if not allowed:
        text = f"no parameter can change while a trial runs: {'; '.join(told)}; use asha"
        raise InvalidSettingsError([Fault(where, text)])
    return allowed


@ray.remote(num_cpus=1, max_retries=0, max_calls=1)  # TensorFlow is set up once a process
def _structural(workload, space, paths):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    from tune_tf.tracking.trial_run import throwaway_run
    from tune_tf.training.mutability import structural_parameters  # TensorFlow loads there

    with throwaway_run():
        return structural_parameters(workload, space, paths)
