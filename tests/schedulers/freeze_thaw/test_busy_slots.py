"""How many trials Tune's controller runs at once under ``freeze_thaw``, once all have begun."""

import os
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
from ray.tune.experiment import Trial
from slots import LOSS
from test_freeze_thaw import SPACE, make

NUM_SAMPLES, MAX_T = 24, 9
START_CALLS = 40


def training(folder):
    """Return a trainable class that writes down each process that starts, which takes long."""
    from ray import tune

    class Training(tune.Trainable):
        is_new = True

        def setup(self, config):
            if self.is_new:
                with Path(folder, "processes.txt").open("a") as file:
                    file.write(f"{os.getpid()}\n")
            self.is_new, self.x = False, config["x"]

        def step(self):
            return {"loss": self.x + 1 / (self.iteration + 1)}

        def save_checkpoint(self, checkpoint_dir):
            return {"x": self.x}

        def load_checkpoint(self, checkpoint):
            self.x = checkpoint["x"]

        def reset_config(self, new_config):
            self.setup(new_config)
            return True

    return Training


def sweep(folder, num_slots):
    """Run a sweep of trials that all have a chance to the end.

    Returns:
        For how many results so many trials ran while no new one was left and as many unfinished
        ones as slots; and the number of processes.
    """
    from optuna.samplers import RandomSampler
    from ray import tune

    from tune_tf.searchers import OptunaSearcher

    running = Counter()

    class Watch(tune.Callback):
        def on_trial_result(self, iteration, trials, trial, result, **info):
            left = [trial for trial in trials if not trial.is_finished()]
            if len(trials) == NUM_SAMPLES and len(left) >= num_slots:
                running[sum(trial.status == "RUNNING" for trial in left)] += 1

    analysis = tune.run(
        training(folder),
        search_alg=OptunaSearcher(SPACE, LOSS, RandomSampler(9)),
        scheduler=make(epochs=MAX_T, min_chance=0.0),
        num_samples=NUM_SAMPLES,
        max_concurrent_trials=num_slots,
        storage_path=str(folder),
        callbacks=[Watch()],
        reuse_actors=True,
        verbose=0,
    )
    assert {trial.last_result["training_iteration"] for trial in analysis.trials} == {MAX_T}
    return running, len(Path(folder, "processes.txt").read_text().split())


@pytest.mark.usefixtures("inline")
@pytest.mark.parametrize("num_slots", [2, 4])
def test_every_slot_is_busy_once_all_trials_have_begun(tmp_path, num_slots, monkeypatch):
    from inline_actors import InlineActorManager

    monkeypatch.setattr(InlineActorManager, "slots", num_slots)
    monkeypatch.setattr(InlineActorManager, "start_calls", START_CALLS)
    running, num_processes = sweep(tmp_path, num_slots)
    assert num_processes == num_slots, "processes were ended while they were needed"
    assert running[num_slots] >= 0.6 * running.total(), running


def test_without_the_private_parts_of_tune_no_process_is_known_or_kept():
    from tune_tf.tune_internals.trial_processes import has_process, keep_process

    keep_process(SimpleNamespace())
    assert not has_process(SimpleNamespace(), Trial("trainable", stub=True))
