"""Trials that run out of memory, under Ray Tune."""

from pathlib import Path

import greedy
import pytest
import stand_in_memory
from greedy import ROWS, GreedyAtFirst, GreedyWorkload, OwnStep
from guards import slow
from ray import cloudpickle, tune
from stand_in_memory import StandInTrial

from tune_tf.outcome import Outcome
from tune_tf.parallelism import Mirrored, MultiWorker
from tune_tf.record import Record
from tune_tf.trainables import trainable
from tune_tf.trainables.memory.oom_retries import OomRetries
from tune_tf.trial_observer import TrialObserver

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
        with Record(tmp_path) as record:
            endings = TrialObserver(record.begin_session())
            [trial] = tune.run(
                kind,
                config=config,
                stop={"training_iteration": NUM_EPOCHS},
                callbacks=[OomRetries(workload, parallelism, oom_retries=oom_retries), endings],
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


@pytest.mark.slow
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


@pytest.mark.parametrize(
    ("settings", "num_failures"),
    [
        pytest.param({"oom_retries": 0}, 1, id="no retries"),
        slow({"oom_retries": 1}, 2, id="all retries"),
        slow({"workload": OwnStep}, 1, id="whole batches"),
    ],
)
def test_a_trial_fails_for_want_of_memory_after_its_retries(settings, num_failures, run):
    trial, outcome = run(StandInTrial, {"pieces": 64}, **settings)

    assert (trial.status, outcome) == ("ERROR", Outcome.OOM)
    assert Path(trial.error_file).read_text().count("Failure #") == num_failures


@pytest.mark.slow
def test_another_failure_is_not_forgiven_and_not_taken_for_one_of_memory(run):
    trial, outcome = run(StandInTrial, {"pieces": 64, "raises": True})

    assert (trial.status, outcome) == ("ERROR", Outcome.ERROR)
    assert Path(trial.error_file).read_text().count("Failure #") == 2
