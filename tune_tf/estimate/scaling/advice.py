"""Advice from scaling measurements, with settings for the sweep file."""

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from tune_tf.estimate.scaling.candidates import Measurement, ScalingCandidate, scaling_curves

EFFICIENT = 0.7
"""Least efficiency at which more devices are recommended."""

_CLEAR = 0.05  # least relative difference to report
_MUCH_INPUT = 0.25
_RESTLESS = 0.2
_OTHERS = 0.3  # cores in use by other processes to report; Ray and the system need some


@dataclass(frozen=True)
class Advice:
    """Advice in sentences, the recommended candidate, and its lines for the sweep file."""

    sentences: tuple[str, ...]
    chosen: ScalingCandidate
    settings: str


def advise(measurements: Sequence[Measurement], *, on_gpus: bool) -> Advice:
    """Derive advice from measurements; the first is the reference, one replica on one device."""
    reference, *others = measurements
    good = [reference, *(each for each in others if not each.error)]
    curves = scaling_curves(measurements)
    families = {
        family: members[1:]
        for (dimension, family), members in curves.items()
        if dimension == "devices"
    }
    spread = [each for members in families.values() for each in members]
    chosen = max(filter(_pays, spread), key=lambda each: each.speed_up, default=reference)
    device = "GPU" if on_gpus else "core"
    sentences = [
        f"One replica on one {device} trains {reference.rows_per_s:,.0f} rows a second "
        f"in batches of {reference.batch_size}.",
        *(
            f"{family.capitalize()}: {_of_family(members, device)}."
            for family, members in families.items()
        ),
        "There is no GPU here: replicas, workers and threads share the machine's cores, and "
        "gain only where one replica leaves cores idle. On GPUs, measure again."
        if spread and not on_gpus
        else "",
        _of_choice(reference, chosen, spread, device),
        _of_batches(*curves["batch", ""]),
        _of_data(*curves["data", ""]),
        _of_input(good),
        _of_others(good),
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
    return f"parallelism: {_flow(values)}\nresources: {_flow(resources)}"


def _pays(measurement: Measurement) -> bool:
    clear = _is_clear(measurement.speed_up, measurement)
    return clear and measurement.efficiency >= EFFICIENT


def _is_clear(ratio: float, measurement: Measurement) -> bool:
    """Return whether a gain exceeds a small threshold and the spread of the rounds."""
    return ratio > 1 + max(_CLEAR, measurement.doubt / measurement.speed_up)


def _of_family(members: Sequence[Measurement], device: str) -> str:
    """Describe up to how many devices more devices pay."""
    last = members[-1]
    best = max(members, key=lambda each: each.speed_up)
    if not _is_clear(best.speed_up, best):
        return f"does not pay; {_gain(last, device)}"
    paying = [each for each in members if _pays(each)]
    if not paying:
        return f"faster, but wastes much of the devices; {_gain(best, device)}"
    text = f"pays up to {_gain(paying[-1], device, joint=', which')}"
    return text if paying[-1] is last else f"{text}; beyond that, {_gain(last, device)}"


def _gain(measurement: Measurement, device: str, joint: str = "") -> str:
    num, efficiency = measurement.candidate.num_devices, measurement.efficiency
    return (
        f"{_on(measurement, device)}{joint} train {measurement.speed_up:.2f} times the rows of "
        f"one {device} ({efficiency:.0%} of what {num} single ones would)"
    )


def _of_choice(
    reference: Measurement, chosen: Measurement, spread: Sequence[Measurement], device: str
) -> str:
    fastest = max(spread, key=lambda each: each.speed_up, default=reference)
    if chosen is not reference:
        text = f"Choose {chosen.candidate.label}."
    else:
        text = (
            f"Choose one {device} per trial, and let a sweep run as many concurrent trials as "
            f"there are {device}s: that uses them all."
        )
    faster = fastest is not reference and fastest is not chosen
    if faster and _is_clear(fastest.speed_up / chosen.speed_up, fastest):
        faster_by = f"{fastest.speed_up / chosen.speed_up:.2f} times"
        text += (
            f" If a single trial must finish sooner: {fastest.candidate.label} "
            f"({fastest.candidate.family}), {faster_by} as fast, at {fastest.efficiency:.0%} of "
            f"what its {device}s could do."
        )
    return text


def _of_batches(reference: Measurement, *others: Measurement) -> str:
    if not others:
        return ""
    best = max(others, key=lambda each: each.speed_up)
    if not _is_clear(best.speed_up, best):
        return f"Other batch sizes are no faster than {reference.batch_size}."
    text = f"A batch of {best.batch_size} trains {best.speed_up:.2f} times the rows a second"
    if best.batch_size > reference.batch_size:
        text += (
            "; it also makes fewer updates per epoch, so search the learning rate again if you "
            "choose it"
        )
    return f"{text}."


def _of_data(reference: Measurement, *others: Measurement) -> str:
    if not others:
        return ""
    least = min(others, key=lambda each: each.num_rows)
    slower = 1 / least.speed_up
    if abs(slower - 1) <= max(_CLEAR, least.doubt / least.speed_up):
        return (
            f"A row takes as long among {least.num_rows:,} rows as among "
            f"{reference.num_rows:,}: more data take longer in proportion."
        )
    why = (
        "an epoch has a fixed cost, which more rows share"
        if slower > 1
        else "fewer rows fit into caches nearer to the processor"
    )
    return (
        f"A row takes {slower:.2f} times the time among {least.num_rows:,} rows that it takes "
        f"among {reference.num_rows:,}: {why}."
    )


def _of_input(good: Sequence[Measurement]) -> str:
    worst = max(good, key=lambda each: each.input_share or 0)
    share = worst.input_share
    if share is None:
        return ""
    if share <= _MUCH_INPUT:
        return f"Input is not the bottleneck: preparing rows takes at most {share:.0%} of the time."
    return (
        f"Preparing rows takes up to {share:.0%} of the time ({worst.candidate.label}, batch "
        f"{worst.batch_size}): larger batches, or less work in per_example, help more than "
        "devices."
    )


def _of_others(good: Sequence[Measurement]) -> str:
    others = statistics.median(each.other_cores for each in good)
    if others > _OTHERS:
        return (
            f"Other processes kept {others:.1f} cores of this machine busy meanwhile: measure "
            "again when it is quiet."
        )
    if statistics.median(each.noise for each in good) > _RESTLESS:
        return "The rounds vary widely: measure again when the machine is quiet."
    return ""


def _on(measurement: Measurement, device: str) -> str:
    candidate = measurement.candidate
    if candidate.family == candidate.parallelism.kind.replace("_", " "):
        return candidate.label
    return f"{candidate.num_devices} {device}s"


def _flow(values: dict[str, Any]) -> str:
    """Format a mapping in YAML's flow style."""
    texts = (
        f"{key}: {value if isinstance(value, str) else json.dumps(value)}"
        for key, value in values.items()
    )
    return "{" + ", ".join(texts) + "}"
