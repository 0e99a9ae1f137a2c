import logging

import optuna
import pytest
from optuna.storages import InMemoryStorage, JournalStorage, RDBStorage

from tune_tf.errors import InvalidSettingsError, SweepConflictError
from tune_tf.objective import Objective
from tune_tf.searchers.criteria import SearchCriteria
from tune_tf.searchers.storage.study_storage import open_storage, open_study, storage_label

LOSS = SearchCriteria((Objective("val_loss", "min"),))


@pytest.mark.parametrize("name", ["study.journal", "study.log"])
def test_a_path_with_a_journals_suffix_is_a_journal(name, tmp_path):
    assert isinstance(open_storage(tmp_path / name), JournalStorage)
    assert (tmp_path / name).exists()


def test_a_journal_url_may_have_any_name(tmp_path):
    assert isinstance(open_storage(f"journal:///{tmp_path / 'study'}"), JournalStorage)
    assert (tmp_path / "study").exists()


def test_a_url_is_a_database(tmp_path):
    storage = open_storage(f"sqlite:///{tmp_path / 'optuna.db'}")
    assert optuna.create_study(storage=storage).ask().number == 0
    assert (tmp_path / "optuna.db").stat().st_size


def test_a_database_is_read_through_optunas_cache(tmp_path):
    """Fails where a release of Optuna takes its internal ``get_storage`` away."""
    assert not isinstance(open_storage(f"sqlite:///{tmp_path / 'optuna.db'}"), RDBStorage)


def test_a_bare_database_is_cached(tmp_path):
    storage = open_storage(RDBStorage(f"sqlite:///{tmp_path}/study.db"))
    study = optuna.create_study(storage=storage)
    study.add_trial(optuna.trial.create_trial(value=0.5))
    one, other = (storage.get_all_trials(study._study_id, deepcopy=False) for _ in "12")
    assert one[0] is other[0]


def test_a_trial_that_an_earlier_process_asked_for_takes_its_parameters(tmp_path):
    def open_again():
        return open_storage(RDBStorage(f"sqlite:///{tmp_path}/study.db"))

    trial_id = open_study(open_again(), "s", LOSS).ask()._trial_id
    study = open_study(open_again(), "s", LOSS)
    assert len(study.get_trials(deepcopy=False)) == 1
    value = optuna.Trial(study, trial_id).suggest_float("x", 0, 1)
    assert study.trials[0].params == {"x": value}


def test_a_database_that_another_process_holds_is_named_with_what_to_do(tmp_path):
    import sqlite3

    path = tmp_path / "optuna.db"
    open_study(open_storage(f"sqlite:///{path}?timeout=0.01"), "s", LOSS)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(InvalidSettingsError, match=r"optuna\.db.* database is locked by another"):
        open_storage(f"sqlite:///{path}?timeout=0.01")
    other.close()


def test_a_password_is_not_shown():
    assert (
        storage_label("postgresql+psycopg://me:secret@host/db")
        == "'postgresql+psycopg://me:***@host/db'"
    )


def test_error_of_a_refusing_server_has_its_reason_but_no_password():
    with pytest.raises(InvalidSettingsError, match=r"me:\*\*\*@127.0.0.1:1/db.* refused"):
        open_storage("postgresql+psycopg://me:secret@127.0.0.1:1/db")


def test_open_storage_without_a_location_is_in_memory():
    assert isinstance(open_storage(None), InMemoryStorage)


def test_a_storage_that_is_open_is_used_as_it_is():
    storage = InMemoryStorage()
    assert open_storage(storage) is storage


@pytest.mark.parametrize(
    ("storage", "message"),
    [
        ("sqlite:////nowhere/at/all.db", "cannot be opened as a database: .*unable to open"),
        ("nosql://host/db", "cannot be opened as a database: .*nosql"),
        ("/nowhere/study.journal", "cannot be opened as an Optuna journal: .*No such file"),
        ("study.db", "must be a database URL such as .*journal file ending in .journal or .log"),
    ],
)
def test_a_storage_that_cannot_be_opened_is_refused_with_the_reason(storage, message):
    with pytest.raises(InvalidSettingsError, match=message):
        open_storage(storage)


def test_a_file_that_is_no_journal_is_refused(tmp_path):
    (tmp_path / "server.log").write_text("started\nstopped\n")
    with pytest.raises(InvalidSettingsError, match=r"server\.log' cannot be opened as an Optuna"):
        open_storage(tmp_path / "server.log")


@pytest.mark.parametrize(
    ("directions", "found"),
    [(["maximize"], "maximize"), (["minimize", "maximize"], "minimize and maximize")],
)
def test_a_study_of_another_direction_is_refused(directions, found):
    storage = InMemoryStorage()
    optuna.create_study(storage=storage, study_name="s", directions=directions)
    with pytest.raises(
        SweepConflictError,
        match=f"'s' already exists with the directions {found}, .* needs minimize",
    ):
        open_study(storage, "s", LOSS)


def test_a_study_of_the_same_direction_is_gone_on_with():
    storage = InMemoryStorage()
    open_study(storage, "s", LOSS).ask()
    assert len(open_study(storage, "s", LOSS).trials) == 1


@pytest.mark.filterwarnings("error")
def test_a_study_names_its_metrics_for_the_dashboard():
    storage = InMemoryStorage()
    optuna.create_study(storage=storage, study_name="s")  # as of an earlier version
    assert open_study(storage, "s", LOSS).metric_names == ["val_loss"]
    both = SearchCriteria.of([Objective("val_accuracy", "max"), Objective("seconds", "min")], None)
    assert open_study(InMemoryStorage(), None, both).metric_names == ["val_accuracy", "seconds"]


def test_opening_a_study_is_not_announced_and_leaves_optunas_log_level(caplog):
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.INFO)
    optuna.logging.enable_propagation()
    try:
        with caplog.at_level(logging.DEBUG):
            open_study(InMemoryStorage(), None, LOSS)
        assert not caplog.records
        assert optuna.logging.get_verbosity() == optuna.logging.INFO
    finally:
        optuna.logging.disable_propagation()
        optuna.logging.set_verbosity(verbosity)


def test_a_journal_on_a_full_disk_keeps_whole_lines(tmp_path, monkeypatch):
    import io

    from tune_tf.searchers.storage.journal import JournalFile

    journal = JournalFile(tmp_path / "study.journal")
    journal.append_logs([{"first": 1}])
    write = io.FileIO.write

    class Full(io.FileIO):
        def write(self, text):
            return write(self, text[: len(text) // 2])

    path_open = type(tmp_path).open
    monkeypatch.setattr(
        type(tmp_path),
        "open",
        lambda self, mode="r", **more: Full(self, "ab") if mode == "ab" else path_open(self, mode),
    )
    with pytest.raises(OSError, match="No space left"):
        journal.append_logs([{"second": 2}])
    monkeypatch.undo()
    journal.append_logs([{"third": 3}])

    assert list(journal.read_logs(0)) == [{"first": 1}, {"third": 3}]
