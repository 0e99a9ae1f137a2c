"""A checkpoint holds everything that a trial needs to go on."""

import functools
import json
import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import replace

import keras
import ml_dtypes
import numpy as np
import pytest
from guards import slow
from trials import Given, begin, bits, draw, furthest, furthest_values, run, run_fresh

import tune_tf
from tune_tf.errors import CheckpointError
from tune_tf.training.core.checkpoint import FILE_NAME, Checkpoint
from tune_tf.training.core.loop import GraphLoop
from tune_tf.training.core.seeds import epoch_order
from tune_tf.training.export import trained_model

pytestmark = pytest.mark.tf
layers = keras.layers


def build(config):
    """Build a model with slots, a penalty, statistics and, where asked for, random states."""
    model = keras.Sequential(
        [
            keras.Input((6,)),
            layers.Dense(config.get("width", 8), activation="relu", kernel_regularizer="l2"),
            layers.BatchNormalization(synchronized=True),
            layers.Dropout(config.get("dropout", 0.0)),
            layers.Dense(3),
        ]
    )
    optimizer = keras.optimizers.SGD(
        config.get("rate", 0.05),
        momentum=config.get("momentum", 0.9),
        global_clipnorm=0.5,
        use_ema=config.get("ema", False),
    )
    model.compile(
        optimizer,
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


WORKLOAD = Given(build, draw(45, 19))


def saved_after(num_epochs, replicas, folder, config=None, workload=WORKLOAD):
    """Save a trial after some epochs."""
    loop = begin(GraphLoop(workload, replicas), workload, config)
    for _ in range(num_epochs):
        loop.epoch()
    loop.state().write(folder)


def gone_on(num_epochs, replicas, folder, config=None, workload=WORKLOAD, loop=None):
    """Restore a trial in a fresh loop and train on, as ``run`` returns it."""
    loop = begin(loop or GraphLoop(workload, replicas), workload, config, seed=99)
    loop.restore(Checkpoint.read(folder))
    history = [loop.epoch() for _ in range(num_epochs)]
    model = loop.trial.program.model
    return history, [v.numpy() for v in (*model.variables, *model.optimizer.variables)]


@pytest.fixture(scope="module")
def folders(replicas_of, tmp_path_factory):
    """Return a function from a number of replicas to their checkpoint after two epochs."""

    @functools.cache
    def folder(num):
        made = tmp_path_factory.mktemp(f"replicas{num}")
        saved_after(2, replicas_of(num), made)
        return made

    return folder


@pytest.fixture(scope="module")
def loops(replicas_of):
    """Return a function from a number of replicas to a loop that keeps its programs."""
    return functools.cache(lambda num: GraphLoop(WORKLOAD, replicas_of(num)))


@pytest.fixture(scope="module")
def without_break(replicas_of):
    """Four epochs in one go."""
    return run_fresh(WORKLOAD, replicas_of(1), epochs=4)


@pytest.mark.parametrize(
    ("first", "then"), [slow(1, 2), (2, 1), slow(1, 3), slow(2, 3), slow(3, 1), slow(3, 2)]
)
def test_a_trial_goes_on_with_any_number_of_replicas(
    first, then, replicas_of, folders, loops, without_break
):
    history, values = gone_on(2, replicas_of(then), folders(first), loop=loops(then))

    assert furthest((history, values), (without_break[0][2:], without_break[1])) <= 1e-6


@pytest.mark.parametrize("num_replicas", [1, slow(2)])
def test_with_the_same_replicas_it_goes_on_bit_for_bit(num_replicas, replicas_of, tmp_path):
    config = {"dropout": 0.4}
    replicas = replicas_of(num_replicas)
    saved_after(2, replicas, tmp_path, config)
    history, values = run_fresh(WORKLOAD, replicas, config, epochs=4)

    assert bits(gone_on(2, replicas, tmp_path, config)) == bits((history[2:], values))


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"rate": 0.2}, id="learning rate"),
        pytest.param({"momentum": 0.5}, id="traced scalar"),
    ],
)
def test_the_new_config_wins(change, replicas_of, folders):
    import tensorflow as tf

    history, _ = gone_on(1, replicas_of(1), folders(1), change)

    loop = begin(GraphLoop(WORKLOAD, replicas_of(1)), WORKLOAD)
    loop.epoch(), loop.epoch()
    optimizer = loop.trial.program.model.optimizer
    variables = loop.trial.program._traced_scalars._variables
    [variables[i].assign(v) for i, v in _changed_scalars(loop, change)]
    optimizer.learning_rate = change.get("rate", 0.05)
    assert history[0] == loop.epoch()
    assert tf.executing_eagerly()


def _changed_scalars(loop, change):
    from tune_tf.training.core.scalars import scalars_of

    names = [s.attribute for s in scalars_of(build({}))]
    return [(names.index(name), value) for name, value in change.items() if name in names]


def switchable(config):
    """Build a model of two random layers; the second is counted by Keras after the first."""
    model = keras.Sequential(
        [
            keras.Input((6,)),
            layers.Dense(8),
            layers.Dropout(config.get("first", 0.0)),
            layers.Dense(8),
            layers.GaussianNoise(config.get("second", 0.2)),
            layers.Dense(3),
        ]
    )
    kind = keras.optimizers.RMSprop if config.get("rmsprop") else keras.optimizers.SGD
    model.compile(
        kind(0.01, momentum=config.get("momentum", 0.0)),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    return model


SWITCHED = Given(switchable, draw(45, 19))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        slow({"first": 0.4}, {"first": 0.0}),
        slow({"first": 0.0}, {"first": 0.4}),
        ({"first": 0.4, "second": 0.0}, {"first": 0.0, "second": 0.2}),
        slow({"momentum": 0.0}, {"momentum": 0.9, "first": 0.4}),
        slow({"momentum": 0.9, "first": 0.4}, {"momentum": 0.0, "first": 0.0}),
        slow({"rmsprop": 1, "momentum": 0.9}, {"rmsprop": 1}),
        slow({"rmsprop": 1}, {"rmsprop": 1, "momentum": 0.9}),
    ],
    ids=repr,
)
def test_an_exploit_may_switch_a_layer_or_the_momentum_on_or_off(
    before, after, replicas_of, tmp_path
):
    used = GraphLoop(SWITCHED, replicas_of(1))
    run(used, SWITCHED, after, seed=5, epochs=1)
    begin(used, SWITCHED, before)
    used.epoch(), used.epoch()
    saved = used.state()
    saved.write(tmp_path)
    in_used = gone_on(1, replicas_of(1), tmp_path, after, SWITCHED, used)
    loop = begin(GraphLoop(SWITCHED, replicas_of(1)), SWITCHED, after, seed=99)
    fresh, _ = values_of(loop), loop.restore(Checkpoint.read(tmp_path))
    restored = values_of(loop)
    metrics = loop.epoch()

    assert bits(in_used) == bits(([metrics], list(values_of(loop).values())))
    before_it = dict(zip(saved.names, [*saved.model, *saved.optimizer], strict=True))
    assert {name.role for name in before_it.keys() ^ fresh.keys()} <= {
        "seed_generator_state",
        "momentum of SGD",
        "momentum of RMSprop",
    }
    for name, value in restored.items():
        np.testing.assert_array_equal(value, before_it.get(name, fresh[name]), name.path)


def test_a_trainable_goes_on_after_an_exploit_as_in_a_fresh_process(tmp_path):
    kind = tune_tf.trainable(SWITCHED, seed=7)
    better, worse = {"momentum": 0.9, "first": 0.4}, {"momentum": 0.0, "first": 0.0}
    trained, other = kind(config=better), kind(config=worse)
    trained.train()
    saved = trained.save(str(tmp_path))
    other.train()
    other.reset_config(worse)
    other.restore(saved)
    fresh = kind(config=worse)
    fresh.restore(saved)

    first, second = (trial.train() for trial in (other, fresh))
    assert {name: first[name] for name in ("loss", "val_loss")} == {
        name: second[name] for name in ("loss", "val_loss")
    }
    for trial in (trained, other, fresh):
        trial.stop()


def values_of(loop):
    """Return the values of a trial's variables by what they are."""
    state = loop.state()
    return dict(zip(state.names, [*state.model, *state.optimizer], strict=True))


@pytest.mark.parametrize(("before", "after"), [(0.0, 0.9), slow(0.9, 0.0)])
def test_a_switched_momentum_goes_on_as_fit_from_the_same_weights(before, after, replicas_of):
    no_noise = {"second": 0.0}
    loop = begin(GraphLoop(SWITCHED, replicas_of(1)), SWITCHED, no_noise | {"momentum": before})
    loop.epoch()
    saved = loop.state()
    begin(loop, SWITCHED, no_noise | {"momentum": after}, seed=99)
    loop.restore(saved)
    metrics = loop.epoch()

    model = switchable(no_noise | {"momentum": after})
    model.optimizer.build(model.trainable_variables)
    model.set_weights(saved.model)
    model.optimizer.iterations.assign(saved.optimizer[0])
    data = SWITCHED.load_data({})
    order = epoch_order(saved.seed, 1, 45)
    by_fit = model.fit(
        *(part[order] for part in data.train),
        batch_size=8,
        shuffle=False,
        validation_data=data.validation,
        verbose=0,
    ).history
    assert metrics == pytest.approx({name: values[0] for name, values in by_fit.items()}, rel=1e-5)
    assert furthest_values(loop.trial.program.model.get_weights(), model.get_weights()) < 1e-6


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"momentum": 0.9}, {"rmsprop": 1}),
        ({"rmsprop": 1}, {"momentum": 0.9}),
        ({"rmsprop": 1, "momentum": 0.9}, {}),
    ],
    ids=repr,
)
def test_slots_of_another_optimizer_are_refused_also_where_their_shapes_fit(
    before, after, replicas_of
):
    loop = begin(GraphLoop(SWITCHED, replicas_of(1)), SWITCHED, before)
    saved = loop.state()
    begin(loop, SWITCHED, after)

    with pytest.raises(CheckpointError, match="a different structure"):
        loop.restore(saved)


def test_a_learning_rate_that_callbacks_lowered_is_kept(replicas_of, tmp_path):
    loop = begin(GraphLoop(WORKLOAD, replicas_of(1)), WORKLOAD)
    loop.epoch()
    loop.trial.program.model.optimizer.learning_rate = 0.001
    loop.state().write(tmp_path)
    begin(loop, WORKLOAD, {"momentum": 0.5, "unrelated": (1, 2)})
    loop.restore(Checkpoint.read(tmp_path))

    rate = loop.trial.program.model.optimizer.learning_rate
    assert float(rate.numpy()) == pytest.approx(0.001)


def test_a_trial_restored_in_a_reused_loop_goes_on_the_same(replicas_of, folders, without_break):
    loop = GraphLoop(WORKLOAD, replicas_of(1))
    run(loop, WORKLOAD, {"rate": 0.3}, seed=5)
    begin(loop, WORKLOAD, {}, seed=6)
    loop.restore(Checkpoint.read(folders(1)))

    assert [loop.epoch(), loop.epoch()] == without_break[0][2:]
    assert loop.num_programs == 1


def test_restoring_an_earlier_state_takes_a_trial_back(replicas_of, folders, without_break):
    loop = begin(GraphLoop(WORKLOAD, replicas_of(1)), WORKLOAD)
    for _ in range(3):
        loop.epoch()
    loop.restore(Checkpoint.read(folders(1)))

    assert [loop.epoch(), loop.epoch()] == without_break[0][2:]


@pytest.mark.parametrize("share", [0.0, 0.001, 0.1, 0.5, 0.9, 0.999])
def test_a_truncated_file_is_told(share, folders, tmp_path):
    whole = (folders(1) / FILE_NAME).read_bytes()
    (tmp_path / FILE_NAME).write_bytes(whole[: int(len(whole) * share)])

    with pytest.raises(CheckpointError, match="is not a complete checkpoint"):
        Checkpoint.read(tmp_path)


def test_a_flipped_byte_is_told(folders, tmp_path):
    damaged = bytearray((folders(1) / FILE_NAME).read_bytes())
    damaged[len(damaged) // 2] ^= 0xFF
    (tmp_path / FILE_NAME).write_bytes(damaged)

    with pytest.raises(CheckpointError, match="is not a complete checkpoint"):
        Checkpoint.read(tmp_path)


def test_a_missing_file_is_told(tmp_path):
    with pytest.raises(CheckpointError, match="there is no checkpoint at"):
        Checkpoint.read(tmp_path)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        pytest.param(
            {"width": 9}, r"has shape \(6, 9\), but the checkpoint holds \(6, 8\)", id="width"
        ),
        pytest.param({"ema": True}, r"variables.*different structure", id="optimizer"),
    ],
)
def test_a_checkpoint_of_another_structure_is_told(other, message, replicas_of, folders):
    loop = begin(GraphLoop(WORKLOAD, replicas_of(1)), WORKLOAD, other)

    with pytest.raises(CheckpointError, match=message):
        loop.restore(Checkpoint.read(folders(1)))


def test_nothing_in_the_file_is_pickled(folders):
    with np.load(folders(1) / FILE_NAME, allow_pickle=False) as archive:
        assert all(archive[name].dtype != object for name in archive.files)
        assert json.loads(str(archive["head"]))["epoch"] == 2


@pytest.mark.slow
def test_half_precision_variables_come_back(replicas_of, tmp_path):
    def half(config):
        model = keras.Sequential([keras.Input((6,)), layers.Dense(3, dtype="bfloat16")])
        model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        return model

    workload = Given(half, draw(20))
    saved_after(1, replicas_of(1), tmp_path, workload=workload)
    history, values = run_fresh(workload, replicas_of(1), epochs=2)

    assert values[0].dtype == "bfloat16"
    assert bits(gone_on(1, replicas_of(1), tmp_path, workload=workload)) == bits(
        (history[1:], values)
    )


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_arrays_of_types_that_numpy_lacks_come_back(dtype, folders, tmp_path):
    checkpoint = Checkpoint.read(folders(1))
    array = np.arange(4).astype(getattr(ml_dtypes, dtype))
    replace(checkpoint, model=[array, *checkpoint.model[1:]]).write(tmp_path)

    again = Checkpoint.read(tmp_path).model[0]
    assert again.dtype == array.dtype
    assert again.tobytes() == array.tobytes()


def test_an_error_while_writing_leaves_the_old_file(folders, tmp_path, monkeypatch):
    old = Checkpoint.read(folders(1))
    old.write(tmp_path)
    before = (tmp_path / FILE_NAME).read_bytes()

    def half(file, **arrays):
        file.write(b"half of it")
        raise OSError("disk full")

    monkeypatch.setattr(np, "savez", half)
    with pytest.raises(OSError, match="disk full"):
        old.write(tmp_path)

    assert (tmp_path / FILE_NAME).read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]


def test_a_model_comes_out_of_a_checkpoint(folders, without_break, replicas_of):
    model = trained_model(WORKLOAD, {}, folders(1))
    loop = begin(GraphLoop(WORKLOAD, replicas_of(1)), WORKLOAD)
    loop.epoch()
    metrics = loop.epoch()

    evaluated = model.evaluate(*WORKLOAD.load_data({}).validation, verbose=0, return_dict=True)

    assert evaluated["loss"] == pytest.approx(metrics["val_loss"], rel=1e-6)


PROCESS = """
    import sys, json
    from pathlib import Path
    from test_trial_checkpoint import WORKLOAD
    from trials import begin
    from tune_tf.training.core.checkpoint import Checkpoint
    from tune_tf.training.devices import Devices
    from tune_tf.training.core.loop import GraphLoop
    from tune_tf.training.core.replicas import Replicas

    config = {"dropout": 0.4}
    loop = begin(GraphLoop(WORKLOAD, Replicas(Devices(("CPU:0",)))), WORKLOAD, config)
    folder = Path(sys.argv[1])
    if list(folder.iterdir()):
        loop.restore(Checkpoint.read(folder))
    while True:
        print(json.dumps(loop.epoch()), flush=True)
        loop.state().write(folder)
"""


def _killed_after(num_epochs, folder):
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PROCESS), str(folder)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    lines = [process.stdout.readline() for _ in range(num_epochs)]
    # The file of the last epoch may be there, half there or not yet: all of them must do.
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    return [json.loads(line) for line in lines]


@pytest.mark.slow
def test_a_trial_whose_process_is_killed_goes_on_from_its_last_file(replicas_of, tmp_path):
    _killed_after(2, tmp_path)
    epoch = Checkpoint.read(tmp_path).epoch
    after = _killed_after(2, tmp_path)

    expected, _ = run_fresh(WORKLOAD, replicas_of(1), {"dropout": 0.4}, epochs=epoch + 2)
    for one, other in zip(after, expected[epoch:], strict=True):
        assert one == pytest.approx(other, rel=1e-6)
