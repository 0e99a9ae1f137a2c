"""A sweep whose ``storage_path`` is a bucket: a stand-in for S3 answers on this machine."""

import json
from urllib.parse import quote

import pytest
from pyarrow import fs
from record_and_mlflow import assert_truth
from terminal import kill, until

from tune_tf.inspection import SweepView
from tune_tf.sweep.resume import Resume
from tune_tf.sweep_folder import SweepFolder

moto_server = pytest.importorskip("moto.server")

pytestmark = [pytest.mark.cluster]

REGION = "region=us-east-1&allow_bucket_creation=true"


@pytest.fixture
def bucket(monkeypatch):
    """The URI of a bucket; what is in it goes with the server."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing1")
    server = moto_server.ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"s3://bucket/sweeps?endpoint_override={quote(f'http://{host}:{port}', safe='')}&{REGION}"
    server.stop()


def damage_a_checkpoint(path):
    """Cut the newest checkpoint short that a trial would go on from."""
    resume = Resume.read(path, SweepFolder.open(path).config)
    saved = next(each.checkpoint for each in resume.trials if each.checkpoint)
    file = resume.storage.path(saved, "trial.npz")
    with resume.storage.filesystem.open_output_stream(file) as stream:
        stream.write(b"cut short")


def checkpoints_in(bucket, sweep_id):
    """Return the paths of all checkpoints of a sweep in the bucket, in order."""
    filesystem, root = fs.FileSystem.from_uri(bucket)
    found = filesystem.get_file_info(fs.FileSelector(f"{root}/{sweep_id}", recursive=True))
    return sorted(each.path for each in found if each.base_name == "trial.npz")


@pytest.mark.slow
def test_a_sweep_in_a_bucket_is_killed_resumed_and_its_model_exported(
    bucket, command, finished, verb, sweep_file, tmp_path
):
    settings = (
        f"storage_path={bucket!r}",
        "epochs=15",
        "checkpoint_interval_s=0",
        "max_concurrent_trials=2",
        "keep_checkpoints=2",
        "budget.num_samples=6",
    )
    process = command("run", str(sweep_file), *settings, cwd=tmp_path)
    try:
        until(lambda: is_on_its_way(tmp_path), process=process)
    finally:
        kill(process)
    (path,) = (tmp_path / "sweeps").iterdir()
    before = SweepView.open(path)
    running = next(each for each in before.trials if not each.has_ended and each.checkpoints)
    assert running.checkpoints[0].startswith("s3://bucket/sweeps/")
    damage_a_checkpoint(path)

    code, _, err = finished("resume", str(path), cwd=tmp_path)

    assert code == 0, err
    assert "Traceback" not in err
    assert "the newest checkpoint, is damaged" in err, err
    assert len(assert_truth(path)) == 6
    view = SweepView.open(path)
    assert not list(path.glob("trial_*/checkpoint_[0-9]*"))
    kept = {each.split("/")[3] for each in checkpoints_in(bucket, path.name)}
    having = {each.folder.name for each in view.trials if each.checkpoints}
    assert kept == having
    assert view.best.folder.name in kept
    assert len(kept) == 2
    code, _, err = verb("export", str(path), "--output", "model.keras", cwd=tmp_path)
    assert code == 0, err
    assert (tmp_path / "model.keras").stat().st_size > 10_000
    code, out, err = verb("show", str(path), "--json", cwd=tmp_path)
    assert json.loads(out)["checkpoint"] == view.best.checkpoints[-1]


def is_on_its_way(folder):
    """Whether two trials have ended, and another goes on from a checkpoint if it is killed."""
    trials = [
        trial
        for path in folder.glob("sweeps/*/sweep.db")
        for trial in SweepView.open(path.parent).trials
    ]
    running = [trial for trial in trials if not trial.has_ended]
    return len(trials) - len(running) >= 2 and any(each.checkpoints for each in running)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("uri", "told"),
    [
        ("nothing://bucket/sweeps", "pyarrow cannot reach 'nothing://"),
        (f"s3://bucket/sweeps?endpoint_override=127.0.0.1%3A9&{REGION}", "cannot be written to"),
    ],
    ids=["an unknown scheme", "no server"],
)
@pytest.mark.usefixtures("ray_cluster")
def test_a_store_that_cannot_be_reached_is_refused(verb, sweep_file, tmp_path, uri, told):
    code, _, err = verb("run", str(sweep_file), f"storage_path={uri!r}", cwd=tmp_path)
    assert code == 2
    assert "storage_path" in err
    assert told in " ".join(err.split())
    assert "Traceback" not in err
    assert not list(tmp_path.glob("sweeps/tiny-*"))
