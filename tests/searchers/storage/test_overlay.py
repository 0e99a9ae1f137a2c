import shutil

import optuna
import pytest
from optuna.samplers import RandomSampler, TPESampler
from optuna.storages import InMemoryStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState, create_trial

from tune_tf.searchers.storage.overlay import OverlayStorage

STORAGES = {
    "memory": lambda folder: InMemoryStorage(),
    "journal": lambda folder: JournalStorage(JournalFileBackend(str(folder / "s.journal"))),
    "database": lambda folder: optuna.storages.get_storage(
        RDBStorage(f"sqlite:///{folder / 's.db'}")
    ),
}


def make_study(storage):
    study = optuna.create_study(storage=storage, study_name="s", sampler=RandomSampler(seed=0))
    for value in range(12):
        study.tell(define(study.ask()), value)
    return study


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    """A folder with a database that holds the study: making the tables takes a while."""
    folder = tmp_path_factory.mktemp("database")
    make_study(STORAGES["database"](folder))
    return folder


@pytest.fixture(params=STORAGES)
def storage(request, tmp_path, database):
    if request.param == "database":
        shutil.copy(database / "s.db", tmp_path)
    return STORAGES[request.param](tmp_path)


@pytest.fixture
def study(storage):
    if not storage.get_all_studies():
        return make_study(storage)
    return optuna.load_study(storage=storage, study_name="s", sampler=RandomSampler(seed=0))


def define(trial):
    trial.suggest_float("x", 0, 1)
    trial.suggest_categorical("c", ["a", None])
    return trial


def asked(overlay, sampler=None):
    study = optuna.load_study(study_name="s", storage=overlay, sampler=sampler)
    return define(study.ask())


def test_a_trial_that_is_asked_for_is_not_there(storage, study):
    before = study.get_trials()
    asked(OverlayStorage(storage))
    assert study.get_trials() == before


def test_overlay_proposes_what_the_study_would_draw(storage, study):
    overlay = asked(OverlayStorage(storage), TPESampler(seed=3, multivariate=True))
    study.sampler = TPESampler(seed=3, multivariate=True)
    assert overlay.params == define(study.ask()).params


def test_new_trials_stand_after_those_that_are_there(storage, study):
    overlay = OverlayStorage(storage)
    trials = [asked(overlay), asked(overlay)]
    assert [trial.number for trial in trials] == [12, 13]
    visible = overlay.get_all_trials(study._study_id)
    assert [trial.number for trial in visible] == list(range(14))
    assert [trial.params for trial in visible[12:]] == [trial.params for trial in trials]


def test_after_what_was_asked_for_is_forgotten_the_next_has_its_number(storage, study):
    overlay = OverlayStorage(storage)
    asked(overlay)
    overlay.forget()
    assert asked(overlay).number == 12


def test_trials_are_found_by_state(storage, study):
    overlay = OverlayStorage(storage)
    asked(overlay)
    [found] = overlay.get_all_trials(study._study_id, states=(TrialState.RUNNING,))
    assert found.number == 12
    assert not overlay.get_all_trials(study._study_id, states=(TrialState.WAITING,))


def test_a_new_trial_takes_all_that_a_trial_takes(storage, study):
    overlay = OverlayStorage(storage)
    trial = asked(overlay)
    trial.report(0.5, 1)
    trial.set_user_attr("why", "so")
    overlay.set_trial_system_attr(trial._trial_id, "note", 1)
    optuna.load_study(study_name="s", storage=overlay).tell(trial, 0.25)
    found = overlay.get_trial(trial._trial_id)
    assert (found.state, found.value) == (TrialState.COMPLETE, 0.25)
    assert (found.intermediate_values, found.user_attrs) == ({1: 0.5}, {"why": "so"})
    assert found.system_attrs["note"] == 1


def test_a_trial_read_from_the_overlay_is_not_changed_later(storage, study):
    overlay = OverlayStorage(storage)
    trial = asked(overlay)
    read = overlay.get_all_trials(study._study_id, deepcopy=False)[-1]
    trial.set_user_attr("why", "so")
    assert read.user_attrs == {}


def test_a_new_trial_may_come_from_another(storage, study):
    overlay = OverlayStorage(storage)
    template = create_trial(state=TrialState.WAITING, user_attrs={"why": "so"})
    trial_id = overlay.create_new_trial(study._study_id, template)
    found = overlay.get_trial(trial_id)
    assert (found.number, found.state, found.user_attrs) == (12, template.state, {"why": "so"})


def test_a_trial_that_is_there_cannot_be_changed(storage, study):
    overlay = OverlayStorage(storage)
    running = study.ask()
    with pytest.raises(KeyError, match="only new trials can be changed"):
        overlay.set_trial_user_attr(running._trial_id, "why", "so")
    assert overlay.get_trial(running._trial_id).user_attrs == {}


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_a_samplers_notes_on_the_study_are_kept(storage, study):
    sampler = optuna.samplers.QMCSampler(seed=1, warn_independent_sampling=False)
    overlay = OverlayStorage(storage)
    optuna.load_study(study_name="s", storage=overlay, sampler=sampler).ask(
        {"x": optuna.distributions.FloatDistribution(0, 1)}
    )
    notes = storage.get_study_system_attrs(study._study_id)
    assert notes
    assert notes == overlay.get_study_system_attrs(study._study_id)
