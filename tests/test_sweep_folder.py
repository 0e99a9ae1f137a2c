import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest

from tune_tf.config import SweepConfig
from tune_tf.errors import InvalidSettingsError
from tune_tf.inspection import list_sweeps
from tune_tf.sweep_folder import SweepFolder


@pytest.fixture
def folder_of(tmp_path):
    """Make the folder of a sweep with some settings of its searcher and its store."""

    def folder_of(mlflow=None, **searcher):
        config = SweepConfig.from_dict(
            {
                "name": "digits",
                "workload": "somewhere:Workload",
                "objective": {"metric": "loss", "mode": "min"},
                "space": {"lr": {"uniform": [0.0, 1.0]}},
                "budget": {"num_samples": 1},
                "storage_path": str(tmp_path / "sweeps"),
                "searcher": searcher,
                "mlflow": mlflow,
            }
        )
        return SweepFolder.create(config, tmp_path)

    return folder_of


REFERRING = "postgresql://ann:${OPTUNA_PASSWORD}@db.example.org/optuna"


def test_a_password_is_used_and_not_written(folder_of, monkeypatch):
    monkeypatch.setenv("OPTUNA_PASSWORD", "hunt@er2")
    folder = folder_of(storage=REFERRING)
    for each in (folder, SweepFolder.open(folder.path)):
        assert each.study_storage == "postgresql://ann:hunt%40er2@db.example.org/optuna"
    assert not re.search("hunt", "".join(path.read_text() for path in folder.path.iterdir()))


@pytest.mark.parametrize(
    ("setting", "place"),
    [
        ("study_storage", "searcher.storage"),
        ("warm_start_from", "searcher.warm_start_from"),
        ("tracking_uri", "mlflow.tracking_uri"),
    ],
)
def test_a_resume_without_it_says_what_to_set(folder_of, setting, place):
    folder = folder_of({"tracking_uri": REFERRING}, storage=REFERRING, warm_start_from=REFERRING)
    folder = SweepFolder.open(folder.path)
    with pytest.raises(InvalidSettingsError, match=rf"{place} .*OPTUNA_PASS.*not set.*export"):
        getattr(folder, setting)


@pytest.mark.parametrize(
    ("storage", "expected"),
    [
        ("sqlite:///a/o.db?timeout=1", "sqlite:///{}/a/o.db?timeout=1"),
        ("SQLite+PySQLite:///o.db", "sqlite+pysqlite:///{}/o.db"),
        ("sqlite:////abs/o.db", "sqlite:////abs/o.db"),
        ("sqlite://", "sqlite://"),
        ("sqlite:///:memory:", "sqlite:///:memory:"),
        ("journal:///o", "journal:///{}/o"),
        ("o.journal", "{}/o.journal"),
        ("postgresql://db/o", "postgresql://db/o"),
    ],
)
def test_a_file_is_relative_to_where_the_sweep_began(
    folder_of, storage, expected, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    path = folder_of(storage=storage).path
    monkeypatch.chdir("/")
    assert SweepFolder.open(path).study_storage == expected.format(tmp_path)


def test_a_reference_of_the_sweep_files_own_is_kept_and_read_when_used(folder_of, monkeypatch):
    folder = folder_of({"tracking_uri": "https://${WHERE}/mlflow"})
    monkeypatch.setenv("WHERE", "mlflow.example.org:8443")
    assert folder.tracking_uri == "https://mlflow.example.org:8443/mlflow"
    assert "https://${WHERE}/mlflow" in folder.path.joinpath("sweep.yaml").read_text()


def test_a_folder_may_be_given_as_a_uri_and_beside_a_bucket_it_is_local(tmp_path, monkeypatch):
    settings = {
        "name": "digits",
        "workload": "somewhere:Workload",
        "objective": {"metric": "loss", "mode": "min"},
        "space": {"lr": {"uniform": [0.0, 1.0]}},
        "budget": {"num_samples": 1},
    }
    config = SweepConfig.from_dict(settings | {"storage_path": f"file://{tmp_path}/sweeps"})
    assert SweepFolder.create(config, tmp_path).path.parent == tmp_path / "sweeps"
    monkeypatch.chdir(tmp_path)
    config = SweepConfig.from_dict(settings | {"storage_path": "s3://bucket/there"})
    assert SweepFolder.create(config, tmp_path).path.parent == tmp_path / "sweeps"
    assert config.remote_storage == "s3://bucket/there"


def test_keys_of_a_bucket_do_not_stand_in_a_sweep_file():
    with pytest.raises(InvalidSettingsError, match="storage_path: must not hold keys"):
        SweepConfig.from_dict({"storage_path": "s3://key:secret@bucket/sweeps"})


def test_sweeps_begun_in_one_second_are_all_kept_and_found(folder_of, tmp_path):
    now = datetime(2026, 9, 21, 10, 13, 20, tzinfo=UTC)
    config = folder_of().config
    shutil.rmtree(tmp_path / "sweeps")
    with ThreadPoolExecutor(12) as pool:
        made = [pool.submit(SweepFolder.create, config, tmp_path, now) for _ in range(12)]
    names = {each.result().path.name for each in made}
    stamp = "digits-20260921-101320"
    assert names == {stamp, *(f"{stamp}-{place:02}" for place in range(1, 12))}
    assert {SweepFolder.open(name, tmp_path / "sweeps").sweep_id for name in names} == names
    assert {sweep.sweep_id for sweep in list_sweeps(tmp_path / "sweeps")} == names
    assert SweepFolder.open("digits", tmp_path / "sweeps").sweep_id == f"{stamp}-11"


def test_options_reach_the_first_session_as_a_resume_reads_them(tmp_path):
    settings = {
        "name": "tuples",
        "workload": "somewhere:Workload",
        "objective": {"metric": "loss", "mode": "min"},
        "space": {"kernel": {"choice": [(3, 3), (5, 5)]}},
        "budget": {"num_samples": 1},
        "storage_path": str(tmp_path),
    }
    folder = SweepFolder.create(SweepConfig.from_dict(settings), tmp_path)
    for each in (folder, SweepFolder.open(folder.path)):
        assert list(each.config.space.parameters["kernel"].options) == [[3, 3], [5, 5]]


def test_a_moved_sweep_keeps_its_runs_in_mlflow_and_a_copy_gets_its_own(folder_of, tmp_path):
    original = folder_of().path
    name = original.name
    assert SweepFolder.open(original).at_home().mlflow_id == name
    copy = tmp_path / "copy" / name
    shutil.copytree(original, copy)
    of_copy = SweepFolder.open(copy).at_home()
    assert of_copy.mlflow_id.startswith(f"{name}-")
    assert SweepFolder.open(copy).at_home() == of_copy
    moved = original.rename(tmp_path / "renamed")
    assert SweepFolder.open(moved).at_home().mlflow_id == name
