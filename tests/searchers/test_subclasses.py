"""Subclasses of the searcher: pickled, copied, saved and restored."""

import copy
import threading

import pytest

from tune_tf.objective import Objective
from tune_tf.space import Float, SearchSpace

SPACE = SearchSpace({"rate": Float(0, 1)})
LOSS = Objective("loss", "min")


def plain():
    from tune_tf.searchers import OptunaSearcher

    return OptunaSearcher


def with_attributes():
    class Noting(plain()):
        """Has a signature and attributes of its own, one set before the searcher is made."""

        def __init__(self, note, *, storage=None):
            self.early = ["before"]
            super().__init__(SPACE, LOSS, "random", seed=1, storage=storage)
            self.note, self.seen, self.function = note, [], lambda value: value + 1
            self.lock = threading.Lock()

        def __getstate__(self):
            state = super().__getstate__()
            del state["lock"]
            return state

        def __setstate__(self, state):
            super().__setstate__(state)
            self.lock = threading.Lock()

        def suggest(self, trial_id):
            self.seen.append(trial_id)
            return super().suggest(trial_id)

        @property
        def metric(self):
            return "loss"

    return Noting


def saved(searcher, folder, note="other", storage=None):
    """Return a searcher made anew, with other arguments, that has taken up what one saved."""
    searcher.save(folder / "state.pkl")
    other = type(searcher)(note, storage=storage)
    other.restore(folder / "state.pkl")
    return other


def pickled(searcher, folder):
    from ray import cloudpickle

    return cloudpickle.loads(cloudpickle.dumps(searcher))


def deep(searcher, folder):
    return copy.deepcopy(searcher)


def test_the_names_of_attributes_are_all_known():
    from tune_tf.searchers.study_searcher import _SETTINGS_ATTRIBUTES

    rest = {"criteria", "_sampler", "_storage", "_study_name", "_registry", "_metric", "_mode"}
    assert set(vars(plain()(SPACE, LOSS))) == _SETTINGS_ATTRIBUTES | rest


@pytest.mark.parametrize("again", [pickled, deep, saved])
@pytest.mark.parametrize("where", [None, "s.journal"], ids=["memory", "journal"])
def test_a_subclass_keeps_what_it_has(where, again, tmp_path):
    """What cannot be pickled is left out as the standard library's classes do."""
    storage = where and tmp_path / where
    searcher = with_attributes()("mine", storage=storage)
    first = searcher.suggest("a")
    more = {"storage": storage} if again is saved else {}
    twin = again(searcher, tmp_path, **more)
    assert (twin.note, twin.early, twin.seen) == ("mine", ["before"], ["a"])
    assert twin.function(1) == 2
    assert twin.lock is not searcher.lock
    twin.seen.append("b")
    assert searcher.seen == ["a"]
    result = {"loss": 1.0, "training_iteration": 1}
    twin.on_trial_result("a", result)
    twin.on_trial_complete("a", result | {"done": True})
    [trial] = twin.study.trials
    assert (trial.state.name, trial.params) == ("COMPLETE", first)


def test_settings_are_those_that_a_restored_searcher_was_made_with(tmp_path):
    searcher = plain()(SPACE, LOSS, "random", seed=1)
    searcher.set_max_concurrency(1)
    searcher.save(tmp_path / "state.pkl")
    other = plain()(SearchSpace({"width": Float(5, 6)}), LOSS, "random", seed=1)
    other.restore(tmp_path / "state.pkl")
    assert all(set(other.suggest(name)) == {"width"} for name in "ab")
