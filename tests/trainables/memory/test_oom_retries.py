"""Trials that run out of memory, under Ray Tune."""

import json
import subprocess
import sys
from pathlib import Path

import greedy
import pytest
import stand_in_memory
from greedy import ROWS, GreedyAtFirst, GreedyWorkload, OwnStep
from ray import cloudpickle, tune
from stand_in_memory import StandInTrial

from tune_tf.outcome import Outcome
from tune_tf.parallelism import Mirrored, MultiWorker
from tune_tf.tracking.outcome_tracker import OutcomeTracker
from tune_tf.trainables import trainable
from tune_tf.trainables.memory.oom_retries import OomRetries

for each in (greedy, stand_in_memory):
    cloudpickle.register_pickle_by_value(each)  # this folder is not on the path of Ray's workers

NUM_EPOCHS = 3
ONE = Mirrored()
ENOUGH = {"most": ROWS, "values": 0, "batch_size": ROWS}
TOO_MUCH = ENOUGH | {"most": ROWS // 4, "values": 10**13}  # numbers a row: no machine has the room


@pytest.fixture
def run(ray_cluster, tmp_path):
    """Return a function that runs one trial and returns it with how it ended."""

    def run(kind, config, *, oom_retries=2, workload=GreedyWorkload, parallelism=ONE):
        endings = OutcomeTracker()
        [trial] = tune.run(
            kind,
            config=config,
            stop={"training_iteration": NUM_EPOCHS},
            callbacks=[endings, OomRetries(workload, parallelism, oom_retries=oom_retries)],
            checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=1),
            storage_path=str(tmp_path),
            raise_on_failed_trial=False,
            verbose=0,
        ).trials
        return trial, endings.outcomes[trial.trial_id]

    return run


def losses(result):
    return result["loss"], result["val_loss"]


@pytest.mark.tf
@pytest.mark.slow
def test_an_oom_retry_of_two_workers_gives_the_same_numbers(run):
    alone = trainable(GreedyWorkload, seed=3)(config=ENOUGH)
    *_, enough = [alone.train() for _ in range(NUM_EPOCHS)]
    alone.stop()
    spread = MultiWorker(2)
    trial, outcome = run(trainable(GreedyWorkload, spread, seed=3), TOO_MUCH, parallelism=spread)

    assert outcome is Outcome.COMPLETED
    assert (trial.last_result["micro_batches"], trial.last_result["num_workers"]) == (2, 2)
    assert losses(trial.last_result) == pytest.approx(losses(enough), rel=1e-5)


def test_each_retry_takes_twice_as_many_pieces_from_the_last_checkpoint(run, caplog):
    trial, outcome = run(StandInTrial, {"pieces": 4})

    assert outcome is Outcome.COMPLETED
    assert trial.last_result["training_iteration"] == NUM_EPOCHS
    assert trial.last_result["micro_batches"] == 4
    told = [record.getMessage() for record in caplog.records if "memory" in record.getMessage()]
    assert [text.partition("restarting with ")[2] for text in told] == [
        "2 micro-batches at an equal global batch",
        "4 micro-batches at an equal global batch",
    ]


@pytest.mark.tf
@pytest.mark.slow
def test_a_trial_without_memory_for_its_weights_is_retried_too(run, tmp_path):
    spread = MultiWorker(2)  # one process is tried with fake GPUs
    config = ENOUGH | {"file": str(tmp_path / "tried")}
    trial, outcome = run(trainable(GreedyAtFirst, spread, seed=3), config, parallelism=spread)

    assert outcome is Outcome.COMPLETED
    assert trial.last_result["micro_batches"] == 2
    assert Path(trial.error_file).read_text().count("Failure #") == 1


@pytest.mark.slow
def test_a_trial_that_has_had_its_retries_fails_for_want_of_memory(run):
    trial, outcome = run(StandInTrial, {"pieces": 64}, oom_retries=1)

    assert (trial.status, outcome) == ("ERROR", Outcome.OOM)
    assert trial.placement_group_factory.micro_batches == 2


def test_without_retries_it_fails_at_once(run):
    trial, outcome = run(StandInTrial, {"pieces": 64}, oom_retries=0)

    assert (trial.status, outcome) == ("ERROR", Outcome.OOM)
    assert Path(trial.error_file).read_text().count("Failure #") == 1


@pytest.mark.slow
def test_another_failure_is_not_forgiven_and_not_taken_for_one_of_memory(run):
    trial, outcome = run(StandInTrial, {"pieces": 64, "raises": True})

    assert (trial.status, outcome) == ("ERROR", Outcome.ERROR)
    assert Path(trial.error_file).read_text().count("Failure #") == 2


def test_a_train_step_that_takes_whole_batches_is_not_tried_again(run):
    trial, outcome = run(StandInTrial, {"pieces": 64}, workload=OwnStep)

    assert (trial.status, outcome) == ("ERROR", Outcome.OOM)
    assert Path(trial.error_file).read_text().count("Failure #") == 1


@pytest.mark.alone
def test_a_trial_and_its_sweep_survive_rays_memory_monitor():
    drill = Path(__file__).with_name("memory_monitor_drill.py")
    done = subprocess.run(
        [sys.executable, str(drill)], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    seen = json.loads(done.stdout.splitlines()[-1])

    assert seen["outcome"] == "completed"
    assert seen["micro_batches"] in (2, 4)
    assert "ran out of memory" in seen["told"][0]
