"""TensorBoard events of all trials of a sweep."""

import os
import struct
import time
from pathlib import Path
from typing import Any

from ray.tune import Callback
from ray.tune.experiment import Trial
from tensorboardX.proto.api_pb2 import Status
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.proto.plugin_hparams_pb2 import (
    HParamsPluginData,
    SessionEndInfo,
    SessionStartInfo,
)
from tensorboardX.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboardX.record_writer import masked_crc32c

from tune_tf.atomic_files import append_bytes
from tune_tf.result_keys import TRAINING_ITERATION, training_metrics
from tune_tf.secrets import mask_secrets
from tune_tf.space import flatten
from tune_tf.sweep.callbacks.recorders import trial_name
from tune_tf.tracking.names import is_metric_value

_FILE = "events.out.tfevents"


class TensorBoardWriter(Callback):
    """Tune callback that writes learning curves and hyperparameters for TensorBoard.

    Each process that drives the sweep appends to a file of its own in the trial's folder, before
    Tune saves its state, so a killed driver loses no result that Tune knows. Where a trial reports
    an epoch again, after a restore, an event tells TensorBoard to drop that epoch and later ones.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, Path] = {}
        self._last_steps: dict[str, int] = {}

    def on_trial_result(self, trial: Trial, result: dict[str, Any], **info: Any) -> None:
        """Append the metrics of a result; on a full disk raise OSError, the file unchanged."""
        step = result[TRAINING_ITERATION]
        events = []
        if trial.trial_id not in self._files:
            events.append(Event(file_version="brain.Event:2"))
        if step <= self._last_steps.get(trial.trial_id, step):
            start = SessionLog(status=SessionLog.START)
            events += [Event(step=step, session_log=start), _hparams(_session_start(trial))]
        metrics = {
            name: float(value)
            for name, value in flatten(training_metrics(result)).items()
            if is_metric_value(value)
        }
        values = [Summary.Value(tag=_text(tag), simple_value=metrics[tag]) for tag in metrics]
        events.append(Event(step=step, summary=Summary(value=values)))
        self._append(trial, events)
        self._last_steps[trial.trial_id] = step

    def on_trial_complete(self, trial: Trial, **info: Any) -> None:
        """Append that a trial has ended."""
        self._append_end(trial, "STATUS_SUCCESS")

    def on_trial_error(self, trial: Trial, **info: Any) -> None:
        """Append that a trial has failed."""
        self._append_end(trial, "STATUS_FAILURE")

    def _append_end(self, trial: Trial, status: str) -> None:
        if trial.trial_id in self._files:
            end = SessionEndInfo(status=Status.Value(status), end_time_secs=time.time())
            self._append(trial, [_hparams(HParamsPluginData(session_end_info=end))])

    def _append(self, trial: Trial, events: list[Event]) -> None:
        path = self._files.get(trial.trial_id)
        if path is None:
            folder = self._folder / trial_name(trial)
            folder.mkdir(exist_ok=True)
            # TensorBoard reads the files of a folder in the order of their names.
            path = folder / f"{_FILE}.{len(list(folder.glob(f'{_FILE}.*'))):06}"
        for event in events:
            event.wall_time = time.time()
        data = b"".join(_record(event.SerializeToString()) for event in events)
        file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            append_bytes(file, data, path)
        finally:
            os.close(file)
        self._files[trial.trial_id] = path


def _session_start(trial: Trial) -> HParamsPluginData:
    start = SessionStartInfo(start_time_secs=time.time())
    for name, value in flatten(trial.config).items():
        entry = start.hparams[_text(name)]
        if isinstance(value, bool):
            entry.bool_value = value
        elif is_metric_value(value):
            entry.number_value = float(value)
        else:
            entry.string_value = _text(mask_secrets(str(value)))
    return HParamsPluginData(session_start_info=start)


def _hparams(data: HParamsPluginData) -> Event:
    """Return an event of TensorBoard's HParams plugin."""
    plugin = SummaryMetadata.PluginData(plugin_name="hparams", content=data.SerializeToString())
    tag = f"_hparams_/{data.WhichOneof('data')}"
    value = Summary.Value(tag=tag, metadata=SummaryMetadata(plugin_data=plugin))
    return Event(summary=Summary(value=[value]))


def _text(value: str) -> str:
    return value.encode(errors="replace").decode()


def _record(data: bytes) -> bytes:
    """Return a TFRecord."""
    length = struct.pack("<Q", len(data))
    checks = [struct.pack("<I", masked_crc32c(part)) for part in (length, data)]
    return length + checks[0] + data + checks[1]
