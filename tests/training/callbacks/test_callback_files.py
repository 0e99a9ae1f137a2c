"""Where files of Keras' callbacks are."""

import inspect
import weakref

import keras
import pytest
from guards import slow
from trials import Given, begin, dense_model, draw

from tune_tf.training.callbacks import CallbackContext
from tune_tf.training.fit_loop import FitLoop
from tune_tf.training.loop import GraphLoop

pytestmark = pytest.mark.tf
callbacks = keras.callbacks


def trial(loop, make, context):
    """Begin a trial."""
    workload = Given(dense_model, draw(20, 8), callbacks=lambda config: make())
    loop.callback_context = context
    if isinstance(loop, FitLoop):
        loop.start(workload, {}, workload.load_data({}), 1234)
    else:
        begin(loop, workload)


@pytest.fixture(params=[GraphLoop, slow(FitLoop)], ids=["graph", "fit"])
def loop(request, replicas_of):
    return request.param(replicas_of(1))


def writers():
    """Return callbacks with relative paths, as people write them."""
    return [
        callbacks.ModelCheckpoint("best/{epoch}.weights.h5", save_weights_only=True),
        callbacks.CSVLogger("logs/training.log"),
        callbacks.TensorBoard("board"),
    ]


def files_in(folder):
    names = (path.relative_to(folder).parts for path in folder.rglob("*") if path.is_file())
    return sorted("/".join(part for part in parts if "events" not in part) for parts in names)


def test_relative_paths_are_in_the_folder_of_the_trial_and_params_hold_its_epochs(
    loop, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "{epoch} {").mkdir()
    folder = tmp_path / "{epoch} {" / "trial_00003"
    seen = []

    class Asking(callbacks.Callback):
        def on_train_begin(self, logs=None):
            seen.append(dict(self.params))

    trial(loop, lambda: [*writers(), Asking()], CallbackContext(folder=folder, epochs=7))
    loop.epoch()
    loop.finish()

    assert seen == [{"verbose": 0, "epochs": 7, "steps": 3}]
    assert files_in(folder) == [
        "best/1.weights.h5",
        "board/train",
        "board/validation",
        "logs/training.log",
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["{epoch} {"]


@pytest.mark.parametrize("path", ["/elsewhere/all.csv", "gs://bucket/all.csv"])
def test_absolute_paths_and_uris_stay(path, tmp_path):
    log = callbacks.CSVLogger(path)
    CallbackContext(folder=tmp_path).place_files([log])

    assert log.filename == path


def test_another_worker_writes_to_a_temporary_folder_that_is_removed(tmp_path):
    made = [
        callbacks.ModelCheckpoint(str(tmp_path / "{epoch}.keras")),
        callbacks.CSVLogger("a/b.csv"),
        callbacks.TensorBoard(str(tmp_path)),
    ]
    CallbackContext(folder=tmp_path, discards_files=True).place_files(made)
    paths = [made[0].filepath, made[1].filename, made[2].log_dir]

    assert not [path for path in paths if path.startswith(str(tmp_path))]
    assert paths[0].endswith("/{epoch}.keras")
    folders = [type(tmp_path)(path).parent for path in paths]
    assert [folder.is_dir() for folder in folders] == [True] * 3
    gone = [weakref.ref(each) for each in made]
    made.clear()
    assert [(each(), folder.exists()) for each, folder in zip(gone, folders, strict=True)] == [
        (None, False)
    ] * 3


def test_every_path_of_a_callback_of_keras_is_known():
    words = ("path", "filename", "dir", "directory")
    found = {
        name: [each for each in inspect.signature(kind).parameters if each.endswith(words)]
        for name, kind in vars(callbacks).items()
        if isinstance(kind, type)
    }
    assert {name: paths for name, paths in found.items() if paths} == {
        "BackupAndRestore": ["backup_dir"],  # refused
        "CSVLogger": ["filename"],
        "ModelCheckpoint": ["filepath"],
        "OrbaxCheckpoint": ["directory"],
        "RemoteMonitor": ["path"],  # of a URL
        "TensorBoard": ["log_dir"],
    }
