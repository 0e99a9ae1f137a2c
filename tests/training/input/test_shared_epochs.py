"""Rows that the trials on a node share: made once for all of them."""

import os
import signal
import sys

import numpy as np
import pytest
import ray

from tune_tf.data import Pipeline
from tune_tf.errors import WorkloadError

pytestmark = [pytest.mark.tf, pytest.mark.cluster]

NUM_ROWS = 100


@pytest.fixture(scope="module")
def by_value():
    """Send what is defined here to other processes as it is: they cannot import a test."""
    module = sys.modules[__name__]
    ray.cloudpickle.register_pickle_by_value(module)
    yield
    ray.cloudpickle.unregister_pickle_by_value(module)


def noted_in(folder):
    """Return what makes another row of one, and leaves a file each time."""

    def noted(row, seed):
        import tensorflow as tf

        x, y = row
        moment = tf.strings.as_string(tf.timestamp(), precision=9)
        name = tf.strings.join([folder, "/", tf.strings.as_string(x[0]), "-", moment])
        with tf.control_dependencies([tf.io.write_file(name, "")]):
            return x + tf.random.stateless_normal([6], seed), y

    return noted


def pipeline(folder="", **settings):
    """Return rows whose first value is their number."""
    x = np.random.default_rng(0).normal(size=(NUM_ROWS, 6)).astype("float32")
    x[:, 0] = np.arange(NUM_ROWS)
    augment = noted_in(str(folder)) if folder else None
    return Pipeline((x, np.arange(NUM_ROWS)), augment=augment, **settings)


class Trial:
    """A process that reads a pipeline, as a trial does."""

    def take(self, pipeline):
        from tune_tf.training.input.stream import Stream

        self._stream = Stream(pipeline, "train")

    def epoch(self, number, size, shuffled=True, seed=5):
        """Return the numbers of the rows, by batch, and all rows."""
        read = [
            (numbers.numpy(), rows[0].numpy())
            for numbers, rows in self._stream.batches(
                size, seed=seed, epoch=number, shuffled=shuffled
            )
        ]
        return [numbers.tolist() for numbers, _ in read], np.concatenate([rows for _, rows in read])

    def begin(self, number):
        """Read the first batch of an epoch."""
        self._reading = self._stream.batches(1, seed=0, epoch=number, shuffled=True)
        next(self._reading)

    def go_on(self):
        """Read the others."""
        return len(list(self._reading))


@pytest.fixture(scope="module")
def actors(ray_cluster, by_value):
    """Two processes, which read one pipeline after another."""
    actors = [ray.remote(num_cpus=1)(Trial).remote() for _ in range(2)]
    yield actors
    for actor in actors:
        ray.kill(actor)
    ray.kill(service())


@pytest.fixture
def started(actors):
    """Return a function that lets trials take a pipeline."""

    def started(pipeline, count=1):
        ray.get([actor.take.remote(pipeline) for actor in actors[:count]])
        return actors[:count]

    return started


def service():
    """Return the handle of the process that serves, None if there is none."""
    from tune_tf.data.leased_actor import NAMESPACE

    names = [a["name"] for a in ray.util.list_named_actors(all_namespaces=True)]
    found = [name for name in names if name.startswith("epochs-")]
    return ray.get_actor(found[0], namespace=NAMESPACE) if found else None


@pytest.mark.slow
def test_trials_share_an_epoch_in_batches_of_their_own(started, tmp_path):
    from tune_tf.training.input.stream import Stream

    trials = started(pipeline(tmp_path, shared=True), 2)
    ray.get([trial.epoch.remote(0, 1, seed=number) for number, trial in enumerate(trials)])
    made = len([*tmp_path.iterdir()])
    alone = Stream(pipeline(tmp_path), "train")

    assert made == NUM_ROWS + 2 * 2  # each trial has looked at two rows
    for epoch in (0, 1):
        asked = [
            trial.epoch.remote(epoch, size) for trial, size in zip(trials, (8, 32), strict=True)
        ]
        expected = list(alone.batches(8, seed=0, epoch=epoch, shuffled=True))
        for (numbers, rows), size in zip(ray.get(asked), (8, 32), strict=True):
            assert [len(some) for some in numbers][:-1] == [size] * (-(-NUM_ROWS // size) - 1)
            np.testing.assert_array_equal(
                np.concatenate(numbers), np.concatenate([some for some, _ in expected])
            )
            np.testing.assert_array_equal(rows, np.concatenate([r[0] for _, r in expected]))


@pytest.mark.slow
def test_an_epoch_is_made_once_for_trials_that_come_one_after_another(started, tmp_path):
    first, second = started(pipeline(tmp_path, shared=True), 2)
    numbers, rows = ray.get(first.epoch.remote(0, 16))
    made = len([*tmp_path.iterdir()])
    numbers_too, rows_too = ray.get(second.epoch.remote(0, 16))
    again = ray.get(first.epoch.remote(0, 16))

    assert len([*tmp_path.iterdir()]) == made
    assert numbers == numbers_too == again[0]
    np.testing.assert_array_equal(rows, rows_too)


@pytest.mark.slow
def test_epochs_differ_and_each_has_every_row_once(started, tmp_path):
    (trial,) = started(pipeline(tmp_path, shared=True))
    orders, rows = zip(*ray.get([trial.epoch.remote(epoch, 100) for epoch in (0, 1)]), strict=True)

    assert orders[0] != orders[1]
    assert [sorted(order[0]) for order in orders] == [[*range(NUM_ROWS)]] * 2
    assert np.abs(rows[0][np.argsort(orders[0][0])] - rows[1][np.argsort(orders[1][0])]).min() > 0


@pytest.mark.slow
def test_rows_that_are_not_mixed_are_shared_over_epochs(started):
    (trial,) = started(pipeline(shared=True))
    orders = [ray.get(trial.epoch.remote(epoch, 100, False))[0] for epoch in (0, 1)]

    assert orders == [[[*range(NUM_ROWS)]]] * 2


def test_a_process_that_is_no_trial_makes_its_own_rows(tmp_path):
    driver = Trial()
    driver.take(pipeline(tmp_path, shared=True))
    looked_at = len([*tmp_path.iterdir()])
    orders = [sorted(driver.epoch(0, 100)[0][0]) for _ in range(2)]

    assert orders == [[*range(NUM_ROWS)]] * 2
    assert len([*tmp_path.iterdir()]) == looked_at + 2 * NUM_ROWS


@pytest.mark.slow
def test_a_dead_service_is_reported_and_the_next_epoch_works(started, tmp_path):
    def slow(x, y):
        import tensorflow as tf

        matrix = tf.random.stateless_uniform([900, 900], tf.stack([1, tf.cast(y, tf.int32)]))
        return x + 0 * tf.reduce_sum(tf.linalg.inv(matrix)), y

    (trial,) = started(pipeline(shared=True, map=slow))
    ray.get(trial.begin.remote(0), timeout=240)
    os.kill(ray.get(service().__ray_call__.remote(lambda self: os.getpid())), signal.SIGKILL)

    with pytest.raises(ray.exceptions.RayTaskError, match=r"dispatcher|NotFound"):
        ray.get(trial.go_on.remote(), timeout=240)
    assert len(ray.get(trial.epoch.remote(1, 100), timeout=240)[0][0]) == NUM_ROWS


def test_what_cannot_be_shared_is_refused(monkeypatch):
    from tune_tf.training.input import shared_epochs
    from tune_tf.training.input.stream import Stream

    monkeypatch.setattr(shared_epochs, "_MAX_EPOCH_BYTES", 1000)
    with pytest.raises(
        WorkloadError, match=r"rows of an epoch of Data\.train take .* leave shared"
    ):
        Stream(pipeline(shared=True), "train")
    monkeypatch.undo()
    monkeypatch.setattr(shared_epochs, "_MAX_SOURCE_BYTES", 1000)
    with pytest.raises(WorkloadError, match=r"arrays in rows of Data\.train .* name files"):
        Stream(pipeline(shared=True), "train")
