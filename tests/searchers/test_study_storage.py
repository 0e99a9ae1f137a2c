import sqlite3

import optuna
import pytest
from optuna.storages import InMemoryStorage, JournalStorage, RDBStorage

from tune_tf.errors import InvalidSettingsError, SweepConflictError
from tune_tf.objective import Objective
from tune_tf.searchers.criteria import SearchCriteria
from tune_tf.searchers.study_storage import open_storage, open_study

LOSS = SearchCriteria((Objective("val_loss", "min"),))


@pytest.mark.parametrize(
    ("location", "kind"),
    [
        ("{}/study.journal", JournalStorage),
        ("{}/study.log", JournalStorage),
        ("journal:///{}/study", JournalStorage),
        (None, InMemoryStorage),
    ],
)
def test_a_location_says_what_stores_a_study(location, kind, tmp_path):
    storage = open_storage(location and location.format(tmp_path))
    assert isinstance(storage, kind)
    open_study(storage, "s", LOSS).ask()
    assert len(open_study(storage, "s", LOSS).trials) == 1


def test_a_database_is_read_through_optunas_cache(tmp_path):
    """Fails where a release of Optuna takes its internal ``get_storage`` away."""
    assert not isinstance(open_storage(f"sqlite:///{tmp_path / 'optuna.db'}"), RDBStorage)


REFUSED = [
    ("sqlite:////nowhere/at/all.db", "cannot be opened as a database: .*unable to open"),
    ("sqlite:///locked.db?timeout=0.01", r"locked\.db.* database is locked by another"),
    ("nosql://host/db", "cannot be opened as a database: .*nosql"),
    ("postgresql+psycopg://me:secret@127.0.0.1:1/db", r"me:\*\*\*@127.0.0.1:1/db.* refused"),
    ("/nowhere/study.journal", "cannot be opened as an Optuna journal: .*No such file"),
    ("server.log", r"server\.log' cannot be opened as an Optuna"),
    ("study.db", "must be a database URL such as .*journal file ending in .journal or .log"),
]


@pytest.mark.parametrize(("storage", "message"), REFUSED)
def test_a_storage_that_cannot_be_opened_is_refused(storage, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "server.log").write_text("started\nstopped\n")
    open_study(open_storage("sqlite:///locked.db"), "s", LOSS)
    other = sqlite3.connect("locked.db", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(InvalidSettingsError, match=message) as raised:
        open_storage(storage)
    assert "secret" not in str(raised.value)
    other.close()


@pytest.mark.parametrize(
    ("directions", "found"),
    [(["maximize"], "max"), (["minimize", "maximize"], "min, max")],
)
def test_a_study_of_another_direction_is_refused(directions, found):
    storage = InMemoryStorage()
    optuna.create_study(storage=storage, study_name="s", directions=directions)
    with pytest.raises(
        SweepConflictError,
        match=f"'s' already exists with the objective {found}, not min val_loss: use another",
    ):
        open_study(storage, "s", LOSS)


@pytest.mark.filterwarnings("error")
def test_a_study_names_its_metrics_for_the_dashboard():
    storage = InMemoryStorage()
    optuna.create_study(storage=storage, study_name="s")  # as of an earlier version
    assert open_study(storage, "s", LOSS).metric_names == ["val_loss"]
    both = SearchCriteria.of([Objective("val_accuracy", "max"), Objective("seconds", "min")], None)
    assert open_study(InMemoryStorage(), None, both).metric_names == ["val_accuracy", "seconds"]
