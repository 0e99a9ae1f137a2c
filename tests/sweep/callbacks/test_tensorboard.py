"""TensorBoard shows each epoch of each trial once, whatever was killed and repeated."""

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest

#: Values of a space, also those that a table of hyperparameters has no type for.
CONFIG = {"width": 8, "optimizer": {"name": "sgd", "rate": 0.5}, "bias": True, "shape": [1, 2]}


@pytest.fixture
def trial():
    from ray.tune.experiment import Trial

    return Trial("scripted", stub=True, trial_id="id3", config=CONFIG, experiment_tag="4_a")


@pytest.fixture
def writer(tmp_path):
    """Return a function that makes a writer, as a driver does when it starts or resumes."""
    from tune_tf.sweep.callbacks.tensorboard import TensorBoardWriter

    return lambda: TensorBoardWriter(tmp_path)


def report(writer, trial, *epochs, attempt=0, **more):
    for epoch in epochs:
        result = {"loss": epoch + attempt, "training_iteration": epoch, "pid": 7, **more}
        writer.on_trial_result(trial=trial, result=result)


def curves(folder):
    """Return the steps and values of each curve, as TensorBoard loads them."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    return {
        tag: [(each.step, each.value) for each in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
    }


@pytest.mark.tf
def test_a_curve_has_the_metrics_of_the_trial_and_nothing_else(writer, trial, tmp_path):
    more = {"val": {"f1": 0.5}, "system/cpu": 3.0, "time_total_s": 1.0, "name": "x", "config": {}}
    report(writer(), trial, 1, 2, 3, **more)

    assert curves(tmp_path / "trial_00003") == {
        "loss": [(1, 1.0), (2, 2.0), (3, 3.0)],
        "val/f1": [(1, 0.5), (2, 0.5), (3, 0.5)],
    }


@pytest.mark.tf
@pytest.mark.parametrize(
    ("first", "again"),
    [
        pytest.param((1, 2, 3, 4, 5), (4, 5, 6), id="two epochs back"),
        pytest.param((1, 2, 3), (4, 5, 6), id="from the last epoch"),
        pytest.param((1, 2, 3), (1, 2, 3, 4, 5, 6), id="from the beginning"),
        pytest.param((), (1, 2, 3, 4, 5, 6), id="for the first time"),
    ],
)
@pytest.mark.parametrize("is_killed", [True, False], ids=["the driver", "the trial"])
def test_what_was_killed_doubles_and_loses_nothing(
    first, again, is_killed, writer, trial, tmp_path
):
    driver = writer()
    report(driver, trial, *first)
    if is_killed:
        driver = writer()
    report(driver, trial, *again, attempt=0.5)

    kept = [step for step in first if step < again[0]]
    expected = [(step, float(step)) for step in kept] + [(step, step + 0.5) for step in again]
    assert curves(tmp_path / "trial_00003") == {"loss": expected}


@pytest.mark.tf
def test_a_driver_that_was_killed_while_it_wrote_loses_one_result(writer, trial, tmp_path):
    report(writer(), trial, 1, 2)
    (file,) = (tmp_path / "trial_00003").iterdir()
    file.write_bytes(file.read_bytes()[:-3])
    for driver in (writer(), writer()):
        report(driver, trial, 2, 3, attempt=0.5)

    assert curves(tmp_path / "trial_00003") == {"loss": [(1, 1.0), (2, 2.5), (3, 3.5)]}


@pytest.mark.tf
def test_a_paused_trial_goes_on(writer, trial, tmp_path):
    driver = writer()
    report(driver, trial, 1, 2)
    trial.set_status("PAUSED")
    trial.set_status("RUNNING")
    report(driver, trial, 3)

    assert curves(tmp_path / "trial_00003") == {"loss": [(1, 1.0), (2, 2.0), (3, 3.0)]}
    assert len(list((tmp_path / "trial_00003").iterdir())) == 1


@pytest.mark.tf
@pytest.mark.parametrize(
    "name", ["loss[0]", "ü\n\x07", "a b", "\ud800", "x" * 3000, "train/loss", "%(x)s"]
)
def test_names_of_any_kind_are_shown(name, writer, trial, tmp_path):
    trial.config = {name: name}
    report(writer(), trial, 1, **{name: float("nan")})

    assert len(curves(tmp_path / "trial_00003")) == 2


def test_a_full_disk_leaves_the_file_whole(writer, trial, tmp_path, monkeypatch):
    driver = writer()
    report(driver, trial, 1)
    (file,) = (tmp_path / "trial_00003").iterdir()
    before = file.read_bytes()
    write = driver.on_trial_result.__globals__["os"].write
    monkeypatch.setattr("os.write", lambda descriptor, data: write(descriptor, data[:5]))

    with pytest.raises(OSError, match="No space left"):
        report(driver, trial, 2)
    assert file.read_bytes() == before


@pytest.fixture
def server(tmp_path):
    """Serve TensorBoard for the folder; return a function that asks it."""
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(tmp_path)]
    process = subprocess.Popen(
        [*command, "--host", "127.0.0.1", "--port", "0", "--reload_interval", "1"],
        stderr=subprocess.PIPE,
        text=True,
    )
    address = next(
        line.partition("http://")[2].split()[0] for line in process.stderr if "http://" in line
    )

    def ask(path, **body):
        data = json.dumps(body).encode() if body else None
        request = urllib.request.Request(
            f"http://{address.rstrip('/')}/data/plugin/{path}",
            data,
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request) as answer:
            return json.loads(answer.read())

    yield ask
    process.terminate()
    process.wait()


def loaded(ask):
    try:
        return ask("scalars/scalars?run=trial_00003&tag=loss")
    except urllib.error.HTTPError:  # not yet
        return []


@pytest.mark.slow
def test_the_server_shows_curves_and_the_table_of_hyperparameters(writer, trial, tmp_path, request):
    from ray.tune.experiment import Trial

    other = Trial("scripted", stub=True, trial_id="id4", experiment_tag="5_a")
    other.config, driver = {"width": 9, "momentum": None}, writer()
    report(driver, other, 1, 2)
    driver.on_trial_error(trial=other)
    report(driver, trial, 1, 2, 3, 4)
    driver = writer()
    report(driver, trial, 3, 4, 5, attempt=0.5)
    driver.on_trial_complete(trial=trial)
    ask = request.getfixturevalue("server")  # of the finished files
    deadline = time.monotonic() + 60
    while len(points := loaded(ask)) < 5 and time.monotonic() < deadline:
        time.sleep(0.2)
    about = ask("hparams/experiment", experimentName="")
    columns = [{"metric": each["name"]} for each in about["metricInfos"]]
    columns += [{"hparam": each["name"]} for each in about["hparamInfos"]]
    groups = ask(
        "hparams/session_groups",
        experimentName="",
        allowedStatuses=["STATUS_SUCCESS", "STATUS_FAILURE"],
        colParams=[{**each, "includeInResult": True} for each in columns],
        startIndex=0,
        sliceSize=9,
    )["sessionGroups"]

    assert [point[1:] for point in points] == [
        [1, 1.0], [2, 2.0], [3, 3.5], [4, 4.5], [5, 5.5],
    ]  # fmt: skip
    assert {each["name"] for each in about["hparamInfos"]} >= {"width", "optimizer/name", "bias"}
    assert [each["name"]["tag"] for each in about["metricInfos"]] == ["loss"]
    assert {each["sessions"][0]["name"]: each["sessions"][0]["status"] for each in groups} == {
        "trial_00003": "STATUS_SUCCESS",
        "trial_00004": "STATUS_FAILURE",
    }
    assert {each["hparams"]["width"] for each in groups} == {8, 9}
    assert {each["metricValues"][0]["value"] for each in groups} == {2.0, 5.5}
