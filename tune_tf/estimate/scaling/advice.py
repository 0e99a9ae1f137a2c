"""Advice from scaling measurements, with settings for the sweep file."""

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from operator import attrgetter
from typing import Any

from tune_tf.estimate.scaling.candidates import Measurement, ScalingCandidate, scaling_curves

_MIN_EFFICIENCY = 0.7  # at which more devices are recommended
_MIN_GAIN = 0.05  # relative difference to report
_HIGH_INPUT_SHARE = 0.25
_HIGH_NOISE = 0.2
_OTHER_CORES = 0.3  # in use by other processes to report; Ray and the system need some


@dataclass(frozen=True)
class Advice:
    """Advice in sentences, the recommended candidate, and its lines for the sweep file."""

    sentences: tuple[str, ...]
    chosen: ScalingCandidate
    settings: str


def advise(measurements: Sequence[Measurement], *, on_gpus: bool) -> Advice:
    """Derive advice from measurements; the first is the reference, one replica on one device."""
    reference = measurements[0]
    successful = [each for each in measurements if not each.error]
    curves = scaling_curves(measurements)
    families = {family: members[1:] for family, members in curves["devices"].items()}
    parallel = [each for members in families.values() for each in members]
    chosen = max(filter(_pays, parallel), key=attrgetter("speed_up"), default=reference)
    sooner = _sooner(reference, chosen, parallel)
    device = "GPU" if on_gpus else "core"
    sentences = [
        f"One replica on one {device} trains {reference.rows_per_s:,.0f} rows a second "
        f"in batches of {reference.batch_size}.",
        *(
            f"{family.capitalize()}: {_family_text(members, device)}."
            for family, members in families.items()
        ),
        "There is no GPU here: replicas, workers and threads share the machine's cores, and "
        "gain only where one replica leaves cores idle. On GPUs, measure again."
        if parallel and not on_gpus
        else "",
        *(_staleness_text(reference, each, parallel) for each in (chosen, sooner)),
        _choice_text(reference, chosen, sooner, device),
        _batches_text(*curves["batch"][""]),
        _data_text(*curves["data"][""]),
        _input_text(successful),
        _noise_text(successful),
    ]
    settings = settings_of(chosen.candidate)
    return Advice(tuple(filter(None, sentences)), chosen.candidate, settings)


def settings_of(candidate: ScalingCandidate) -> str:
    """Return the sweep file lines for a candidate's parallelism and resources."""
    parallelism = candidate.parallelism
    defaults = {field.name: field.default for field in fields(parallelism)}
    values = {"kind": parallelism.kind} | {
        name: value
        for name, value in asdict(parallelism).items()
        if value != defaults[name] or name.startswith("num_")
    }
    resources: dict[str, Any] = {"cpus": candidate.resources.cpus}
    if candidate.resources.gpus:
        resources["gpus"] = candidate.resources.gpus
    if candidate.resources.accelerator_type is not None:
        resources["accelerator_type"] = candidate.resources.accelerator_type
    if candidate.resources.custom:
        resources["custom"] = dict(candidate.resources.custom)
    return f"parallelism: {_flow(values)}\nresources: {_flow(resources)}"


def _pays(measurement: Measurement) -> bool:
    is_clear = _is_clear(measurement.speed_up, measurement)
    return is_clear and measurement.efficiency >= _MIN_EFFICIENCY


def _is_clear(ratio: float, measurement: Measurement) -> bool:
    """Return whether a gain exceeds a small threshold and the spread of the rounds."""
    return ratio > 1 + max(_MIN_GAIN, measurement.speed_up_spread / measurement.speed_up)


def _family_text(members: Sequence[Measurement], device: str) -> str:
    last = members[-1]
    best = max(members, key=attrgetter("speed_up"))
    if not _is_clear(best.speed_up, best):
        return f"does not pay; {_gain_text(last, device)}"
    paying = [each for each in members if _pays(each)]
    if not paying:
        return f"faster, but wastes much of the devices; {_gain_text(best, device)}"
    text = f"pays up to {_gain_text(paying[-1], device, joint=', which')}"
    return text if paying[-1] is last else f"{text}; beyond that, {_gain_text(last, device)}"


def _gain_text(measurement: Measurement, device: str, joint: str = "") -> str:
    candidate, num = measurement.candidate, measurement.candidate.num_devices
    subject = f"{num} {device}s" if candidate.is_multicore_replica else candidate.label
    return (
        f"{subject}{joint} train {measurement.speed_up:.2f} times the rows of one {device} "
        f"({measurement.efficiency:.0%} of what {num} single ones would)"
    )


def _sooner(
    reference: Measurement, chosen: Measurement, parallel: Sequence[Measurement]
) -> Measurement | None:
    """Return what is clearly faster than the choice, but wastes devices; None if nothing is."""
    fastest = max(parallel, key=attrgetter("speed_up"), default=reference)
    is_clear = _is_clear(fastest.speed_up / chosen.speed_up, fastest)
    return fastest if fastest not in (reference, chosen) and is_clear else None


def _staleness_text(
    reference: Measurement, advised: Measurement | None, parallel: Sequence[Measurement]
) -> str:
    """Return what asynchronous training costs, if it is advised."""
    if advised is None or advised.staleness is None:
        return ""
    mean, largest = advised.staleness
    num = advised.candidate.parallelism.num_workers
    synchronous = [each for each in parallel if each.staleness is None]
    exact = max(synchronous, key=attrgetter("speed_up"), default=reference)
    return (
        f"{advised.candidate.label} train with old gradients: each was computed from weights that "
        f"were {mean:.1f} updates old on average and {largest} at most, as measured here, and "
        f"would be {num - 1} if all were equally fast, which acts like a momentum of about "
        f"{1 - 1 / num:.2f}. Numbers differ from those of one device and from run to run. The "
        f"fastest with the numbers of one device is {exact.candidate.label}, "
        f"{exact.speed_up:.2f} times as fast as one."
    )


def _choice_text(
    reference: Measurement, chosen: Measurement, sooner: Measurement | None, device: str
) -> str:
    text = f"Choose {chosen.candidate.label}."
    if chosen is reference:
        text = (
            f"Choose one {device} per trial, and let a sweep run as many concurrent trials as "
            f"there are {device}s: that uses them all."
        )
    if sooner is not None:
        text += (
            f" If a single trial must finish sooner: {sooner.candidate.label} "
            f"({sooner.candidate.family}), {sooner.speed_up / chosen.speed_up:.2f} times as fast, "
            f"at {sooner.efficiency:.0%} of what its {device}s could do."
        )
    return text


def _batches_text(reference: Measurement, *others: Measurement) -> str:
    if not others:
        return ""
    best = max(others, key=attrgetter("speed_up"))
    if not _is_clear(best.speed_up, best):
        return f"Other batch sizes are no faster than {reference.batch_size}."
    text = f"A batch of {best.batch_size} trains {best.speed_up:.2f} times the rows a second"
    if best.batch_size > reference.batch_size:
        text += (
            "; it also makes fewer updates per epoch, so search the learning rate again if you "
            "choose it"
        )
    return f"{text}."


def _data_text(reference: Measurement, *others: Measurement) -> str:
    if not others:
        return ""
    least = min(others, key=attrgetter("num_rows"))
    slower = 1 / least.speed_up
    if abs(slower - 1) <= max(_MIN_GAIN, least.speed_up_spread / least.speed_up):
        return (
            f"A row takes as long among {least.num_rows:,} rows as among "
            f"{reference.num_rows:,}: more data take longer in proportion."
        )
    reason = (
        "an epoch has a fixed cost, which more rows share"
        if slower > 1
        else "fewer rows fit into caches nearer to the processor"
    )
    return (
        f"A row takes {slower:.2f} times the time among {least.num_rows:,} rows that it takes "
        f"among {reference.num_rows:,}: {reason}."
    )


def _input_text(successful: Sequence[Measurement]) -> str:
    worst = max(successful, key=lambda each: each.input_share or 0)
    share = worst.input_share
    if share is None:
        return ""
    if share <= _HIGH_INPUT_SHARE:
        return f"Input is not the bottleneck: preparing rows takes at most {share:.0%} of the time."
    return (
        f"Preparing rows takes up to {share:.0%} of the time ({worst.candidate.label}, batch "
        f"{worst.batch_size}): larger batches, or less work in per_example, help more than "
        "devices."
    )


def _noise_text(successful: Sequence[Measurement]) -> str:
    others = statistics.median(each.other_cores for each in successful)
    if others > _OTHER_CORES:
        return (
            f"Other processes kept {others:.1f} cores of this machine busy meanwhile: measure "
            "again when it is quiet."
        )
    if statistics.median(each.noise for each in successful) > _HIGH_NOISE:
        return "The rounds vary widely: measure again when the machine is quiet."
    return ""


def _flow(values: dict[str, Any]) -> str:
    texts = (
        f"{key}: {value if isinstance(value, str) else json.dumps(value)}"
        for key, value in values.items()
    )
    return "{" + ", ".join(texts) + "}"
