"""Measurements as the tests of this folder make them."""

from dataclasses import replace

from tune_tf.estimate.scaling.candidates import Measurement, ScalingCandidate
from tune_tf.parallelism import Asynchronous, Mirrored, MultiWorker
from tune_tf.resources import TrialResources

_REFERENCE = (1000.0, 1020.0, 980.0)


def measured(speed_up=1.0, *, shaken=0.0, **candidate):
    """Return a measurement that is so much faster than the reference.

    Args:
        speed_up: In the middle round.
        shaken: By how much it is less in the first round and more in the last one.
        candidate: What differs from one replica on one core.
    """
    given = {
        "dimension": "devices",
        "parallelism": Mirrored(),
        "resources": TrialResources(cpus=1),
    } | candidate
    made = ScalingCandidate(**given)
    ratios = (speed_up - shaken, speed_up, speed_up + shaken)
    return Measurement(
        made,
        batch_size=round(32 * made.batch_scale),
        num_rows=round(1000 * made.data_fraction),
        rates=tuple(rate * ratio for rate, ratio in zip(_REFERENCE, ratios, strict=True)),
        reference_rates=_REFERENCE,
        start_s=7.0,
        memory_bytes=900_000_000,
        busy_cores=0.9,
        input_share=0.04,
    )


def replicas(num, speed_up, **how):
    """Return a measurement of replicas in one process."""
    return measured(speed_up, parallelism=Mirrored(num), resources=TrialResources(cpus=num), **how)


def workers(num, speed_up):
    """Return a measurement of workers."""
    return measured(speed_up, parallelism=MultiWorker(num), resources=TrialResources(cpus=num))


def asynchronous(num, speed_up, staleness):
    """Return a measurement of asynchronous workers."""
    made = Asynchronous(num, server_cpus=0)
    measurement = measured(speed_up, parallelism=made, resources=TrialResources(cpus=num))
    return replace(measurement, staleness=staleness)


def cores(num, speed_up):
    """Return a measurement of one replica on several cores."""
    return measured(speed_up, resources=TrialResources(cpus=num))


def batch(scale, speed_up):
    """Return a measurement with another batch size."""
    return measured(speed_up, dimension="batch", batch_scale=scale)


def part(fraction, speed_up):
    """Return a measurement with less data."""
    return measured(speed_up, dimension="data", data_fraction=fraction)


def failed(num, error):
    """Return replicas that could not be measured."""
    return Measurement(
        ScalingCandidate("devices", Mirrored(num), TrialResources(cpus=num)), error=error
    )
