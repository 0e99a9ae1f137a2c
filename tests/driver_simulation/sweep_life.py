"""A whole life of a sweep from one seed: run, crashes, resumes, until it has come to its end."""

import contextlib
import gc
import hashlib
import logging
import random
import shutil
import signal
import tempfile
import traceback
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import optuna
from checks import WrongError, check
from truths import (
    assert_same_study,
    assert_truths,
    digest_of,
    digest_of_decisions,
)
from turn_threads import in_turns
from turns import Crash, Turns
from virtual_cluster import METRIC, Cluster, Faults
from virtual_disk import Disk
from virtual_parts import Heard, settings_as_json, virtual_parts
from virtual_store import Client, Store, Weather

from tune_tf.config import SweepConfig
from tune_tf.errors import UnknownSweepError
from tune_tf.outcome import Outcome
from tune_tf.record import SweepHistory, post_request
from tune_tf.results import SweepResult
from tune_tf.sweep.run import resume_sweep, run_sweep
from tune_tf.sweep.sweep_result import finished_result
from tune_tf.sweep_folder import SweepFolder, sweep_paths

MAX_CALM_SESSIONS = 3
"""How many sessions without a fault a sweep may need to come to its end."""

LIVES_A_CONFIG = 4
"""So many seeds in a row are lives of one reproducible sweep; the first of them meets no fault."""

_SITES = (
    "sweep-info",
    "log_batch",
    "log_text",
    "mlflow",
    "mlflow create_run",
    "mlflow delete",
    "mlflow set_tag",
    "mlflow set_terminated",
    "mlflow update_run",
    "npz",
    "partial",
    "replace",
    "report",
    "record",
    "record INSERT",
    "record UPDATE",
    "rmdir",
    "unlink",
)

_MANY_KINDS: dict[str, Any] = {
    "kind": {"choice": list(range(8))},
    "step": {"uniform": [0.0, 1.0, 0.1]},
    "width": {"int": [16, 64, 16]},
    "many": {"logint": [1, 1000]},
    "small": {"loguniform": [1e-5, 1e-1], "when": {"width": [16, 48]}},
}
_REPRODUCIBLE: list[dict[str, Any]] = [
    {"name": "fifo"},
    {"name": "freeze_thaw", "reduction_factor": 2, "max_paused": 2},
    {"name": "asha", "reduction_factor": 2},
    {"name": "asha", "reduction_factor": 2, "brackets": 2},
    {"name": "MedianStoppingRule"},
    {"name": "MedianStoppingRule", "hard_stop": False},
    {"name": "HyperBandScheduler", "reduction_factor": 2},
    {"name": "HyperBandForBOHB", "reduction_factor": 2},
]


@dataclass
class Life:
    """What became of a sweep.

    Args:
        seed: What it followed from.
        error: What was wrong; None for nothing.
        trace: Every point that was passed, and every choice.
        crashes: Where it died.
        points: Those that were passed, by label.
        num_sessions: How many processes drove it.
        digest: Of its trials and decisions, if it is reproducible.
    """

    seed: int
    error: BaseException | None = None
    trace: list[str] = field(default_factory=list)
    crashes: list[str] = field(default_factory=list)
    points: set[str] = field(default_factory=set)
    num_sessions: int = 0
    digest: str = ""

    @property
    def schedule(self) -> str:
        """A digest of the trace: equal for two lives in which the same happened."""
        return hashlib.sha256("\n".join(self.trace).encode()).hexdigest()

    def told(self) -> str:
        """Return what was wrong, with its traceback."""
        return "".join(traceback.format_exception(self.error)) if self.error else ""


class CrashPlan:
    """When a process dies.

    Args:
        rng: Draws it.
        life: Takes note of where.
    """

    def __init__(self, rng: random.Random, life: Life) -> None:
        self._site = "" if rng.random() < 0.35 else rng.choice(_SITES)
        mean = 4 if self._site else 120
        self._left = 1 + int(rng.expovariate(1 / mean))
        self._life = life

    def __call__(self, label: str) -> bool:
        """Return whether the process dies at a point."""
        self._life.points.add(label)
        if self._site in label:
            self._left -= 1
            if self._left == 0:
                self._life.crashes.append(label)
                return True
        return False


class SimulatedSweep:
    """One sweep.

    Args:
        seed: Everything follows from it.
        root: An empty folder.
        reproducible: Whether the sweep is, so that it follows from ``seed // LIVES_A_CONFIG``.
    """

    def __init__(self, seed: int, root: Path, *, reproducible: bool = False) -> None:
        self.life = Life(seed)
        self._rng = rng = random.Random(seed)
        self._root = root
        self.turns = Turns(rng)
        self.turns.trace = self.life.trace
        self.store = Store(self.turns)
        self._disk = Disk(root, self.turns)
        self.config = self._drawn_config()
        self._num_asked = rng.choice([0, 0, 0, 1, 2])
        kinds = frozenset
        self.faults = Faults(
            self.turns,
            dies=rng.choice([0, 0, 0.03, 0.1]),
            fails=kinds(rng.sample(range(8), rng.choice([0, 1, 2]))),
            diverges=kinds(rng.sample(range(8), rng.choice([0, 0, 1]))),
            saves=rng.choice([0, 0.3, 1]),
            step_s=rng.choice([0.1, 1.0, 4.0]),
            num_slots=rng.choice([1, 2, 3]),
        )
        self.faults.on_train = self._check_may_train
        self._wrong: list[str] = []
        self._crashes_left = rng.choice([1, 1, 1, 2, 2, 3, 4])
        self.store.weather = self._drawn_weather()
        if reproducible:
            self._make_reproducible(random.Random(seed // LIVES_A_CONFIG))
        self.result: SweepResult | None = None
        self.heard = Heard()

    def live(self) -> Life:
        """Live it to its end, and check what is left of it."""
        with _repeatable(self._rng):
            try:
                self._live()
            except Exception as error:
                self.life.error = error
        return self.life

    def _live(self) -> None:
        calm = 0
        while True:
            disturbed = self._crashes_left > 0
            if not disturbed:
                if calm or self._rng.random() < 0.5:
                    self.store.weather = Weather()
                    self._num_asked = 0
                calm += 1
            if calm > MAX_CALM_SESSIONS + 1:
                raise WrongError(
                    f"it has not come to its end after {calm} sessions without a crash"
                )
            plan = CrashPlan(self._rng, self.life) if disturbed else None
            done = self._session(plan)
            self._crashes_left -= disturbed
            if done and self._settled() is not None:
                break
        self.store.weather = Weather()
        result = self._settled()
        assert result is not None
        check(not self._wrong, str(self._wrong))
        assert_truths(self, result)
        if self.config.reproducible:
            self.life.digest = digest_of_decisions(self, result)
        before = digest_of(self._folder, self.store)
        self._session(None)
        if digest_of(self._folder, self.store) != before:
            raise WrongError("a resume of a sweep that has come to its end changed something")

    @property
    def _folder(self) -> Path:
        (folder,) = sweep_paths(self._root / "sweeps")
        return folder

    @property
    def folder(self) -> SweepFolder:
        """The sweep's folder."""
        return SweepFolder.open(self._folder)

    @property
    def client(self) -> Client:
        """Reads what MLflow has."""
        return Client(self.store, self.turns)

    def _settled(self) -> SweepResult | None:
        try:
            return finished_result(self.folder)
        except UnknownSweepError:
            return None

    def _session(self, plan: CrashPlan | None) -> bool:
        """Run or resume the sweep in a process of its own; return whether that came to its end."""
        life, turns = self.life, self.turns
        life.num_sessions += 1
        life.trace.append(f"session {life.num_sessions}")
        cluster = Cluster(turns, self.faults)
        cluster.on_wait = self._maybe_ask
        sigint, usr1 = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGUSR1)
        turns.begin_process()
        turns.at_point = plan or (lambda label: False)
        session = self._root / "ray" / f"session_{life.num_sessions}"
        with (
            in_turns(turns),
            self._disk.noticing(),
            virtual_parts(cluster, self.store, session, self.heard),
        ):
            try:
                self._drive()
            except (Crash, KeyboardInterrupt):  # or it was interrupted twice
                return False
            finally:
                turns.at_point = lambda label: False
                turns.end_process()
                self.heard.forget()
                self._disk.end_process()
                signal.signal(signal.SIGINT, sigint)
                signal.signal(signal.SIGUSR1, usr1)
                turns.dead = False
        if turns.errors:
            raise turns.errors.pop()
        if cluster.searcher is not None:
            assert_same_study(self, cluster.searcher.study)
        return True

    def _drive(self) -> None:
        paths = sweep_paths(self._root / "sweeps")
        if not paths:
            self.result = run_sweep(self.config, base_dir=self._root)
        else:
            self.result = resume_sweep(paths[0])

    def _maybe_ask(self) -> None:
        """Now and then ask the running sweep to stop, or a trial of it."""
        if self._num_asked <= 0 or self._rng.random() > 0.03:
            return
        self._num_asked -= 1
        asked = ["signal", "interrupt", "end", "trial", "trial"]
        # Who ends it or one of its trials decides: it does not follow from its settings then.
        what = self._rng.choice(asked[:2] if self.config.reproducible else asked)
        self.life.trace.append(f"asked: {what}")
        if what == "signal":
            if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
                signal.raise_signal(signal.SIGINT)
            return
        running = sorted(SweepHistory.read(self._folder).trials)
        request: dict[str, Any] = {"stop": what}
        if what == "trial":
            request = {"trial_ids": [self._rng.choice(running)]} if running else {}
        post_request(self._folder, request)

    def _check_may_train(self, trial_id: str) -> None:
        """Note a trial that trains though an earlier session has ended it, or the sweep."""
        history = SweepHistory.read(self._folder)
        begun_s = history.sessions[-1].begun_s
        for each in history.trials.values():
            has_ended = each.outcome not in (None, Outcome.INTERRUPTED)
            # Of a reproducible sweep, those before it in the order of results train on.
            ends_all = not self.config.reproducible and "reached its target" in (each.cause or "")
            is_earlier = each.ended_s is not None and each.ended_s < begun_s
            if has_ended and is_earlier and (ends_all or each.trial_id == trial_id):
                self._wrong.append(f"{trial_id} trains, though an earlier session ended {each}")

    def _drawn_config(self) -> SweepConfig:
        rng = self._rng
        epochs = rng.choice([1, 2, 3, 3, 4])
        scheduler: dict[str, Any] = rng.choice(
            [
                {"name": "fifo"},
                {"name": "freeze_thaw", "reduction_factor": 2, "max_paused": 2},
                {"name": "asha", "grace_period": 1, "reduction_factor": 2},
                {"name": "MedianStoppingRule", "grace_period": 1},
                {"name": "HyperBandScheduler", "reduction_factor": 2},
                {"name": "pbt", "perturbation_interval": 1, "quantile_fraction": 0.5},
            ]
        )
        changes_configs = scheduler["name"] == "pbt"
        budget: dict[str, Any] = {"num_samples": rng.choice([1, 2, 3, 4, 5])}
        limit = rng.choice([None, None, None, "epochs", "target", "patience", "time_budget_s"])
        if limit is not None:
            drawn = {"epochs": 5, "target": 0.55, "patience": 2, "time_budget_s": 6.0}
            budget[limit] = drawn[limit]
        settings = {
            "name": "sim",
            "workload": "tune_tf.workloads.digits:DigitsMLP",
            "objective": {"metric": METRIC, "mode": "max"},
            "space": {"rate": {"uniform": [0.0, 0.5]}, "kind": {"choice": list(range(8))}},
            "seed": rng.randrange(1000),
            "searcher": {
                "sampler": rng.choice(["random", "random", "random" if changes_configs else "auto"])
            },
            "epochs": epochs * 2 if changes_configs else epochs,
            "scheduler": scheduler,
            "resources": {"cpus": 1},
            "budget": budget,
            "max_failures": rng.choice([0, 0, 1, 2]),
            "reuse_actors": rng.random() < 0.6,
            "keep": "best" if self.life.seed % 4 == 3 and not changes_configs else "last",
            "keep_checkpoints": rng.choice([1, 5, "all"]),
            "mlflow": {
                "tracking_uri": "http://virtual.invalid",
                "experiment_name": "sim",
                "log_best_model": False,
            },
            "storage_path": str(self._root / "sweeps"),
        }
        return SweepConfig.from_dict(settings)

    def _make_reproducible(self, rng: random.Random) -> None:
        """Replace the sweep by a reproducible one; have it meet no fault in its first life."""
        scheduler: dict[str, Any] = rng.choice(_REPRODUCIBLE)
        budget: dict[str, Any] = {"num_samples": rng.choice([3, 5, 8])}
        budget |= rng.choice([{}, {}, {"epochs": 7}, {"target": 0.5}, {"patience": 2}])
        samplers = ["random", "tpe"] + ["auto"] * (scheduler["name"] == "freeze_thaw")
        settings = self.config.to_dict() | {
            "reproducible": True,
            "space": _MANY_KINDS | {"rate": {"uniform": [0.0, 0.5]}},
            "scheduler": scheduler,
            "epochs": rng.choice([2, 3, 4]),
            "seed": rng.randrange(1000),
            "searcher": {"sampler": rng.choice(samplers)},
            "budget": budget,
            "slots": rng.choice([1, 2, 3, 5]),
            "max_failures": 20,
            "keep": rng.choice(["best", "last"]),
        }
        self.config = SweepConfig.from_dict(settings)
        self.faults.fails = frozenset(rng.sample(range(8), rng.choice([0, 1, 2])))
        self.faults.diverges = frozenset(rng.sample(range(8), rng.choice([0, 0, 1])))
        self.faults.num_lost = self._rng.choice([0, 0, 1])
        self.faults.dies_saving = self._rng.choice([0, 0.1, 0.3])
        if self.life.seed % LIVES_A_CONFIG == 0:
            self.faults.dies, self.faults.dies_saving = 0, 0
            self.faults.num_slots, self.faults.num_lost = 1, 0
            self._crashes_left = self._num_asked = 0
            self.store.weather = Weather()

    def _drawn_weather(self) -> Weather:
        rng = self._rng
        kind = rng.choice(["fine", "fine", "gusty", "stormy", "down"])
        if kind == "fine":
            return Weather()
        if kind == "down":
            begin = self.turns.now + rng.uniform(0, 5)
            return Weather(down=(begin, begin + rng.choice([5.0, 60.0, 1000.0])))
        rate = 0.03 if kind == "gusty" else 0.2
        return Weather(
            rng.uniform(0, rate),
            rng.uniform(0, rate),
            rng.uniform(0, rate),
            slow_s=rng.choice([0.1, 30.0]),
        )


@contextlib.contextmanager
def _repeatable(rng: random.Random) -> Any:
    """Have all other generators follow from a seed, too."""
    random.seed(rng.randrange(2**32))
    np.random.seed(rng.randrange(2**32))  # noqa: NPY002 - Ray's schedulers use it
    ids = random.Random(rng.randrange(2**32))

    def uuid4() -> uuid.UUID:
        return uuid.UUID(int=ids.getrandbits(128), version=4)

    with mock.patch.multiple(uuid, uuid1=uuid4, uuid4=uuid4):
        yield


def simulate(seed: int, *, reproducible: bool = False) -> Life:
    """Live the life that follows from a seed, in a folder that is removed."""
    settings_as_json()
    memory = Path("/dev/shm")
    root = Path(tempfile.mkdtemp(prefix="sim-", dir=memory if memory.is_dir() else None))
    try:
        return SimulatedSweep(seed, root, reproducible=reproducible).live()
    finally:
        shutil.rmtree(root, ignore_errors=True)


def quiet() -> None:
    """Keep the parts from telling what they always tell of crashes and faults."""
    logging.disable(logging.CRITICAL)
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    gc.collect()
    gc.freeze()
