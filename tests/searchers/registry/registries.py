"""A trial registry over a study of one parameter."""

import optuna

from tune_tf.objective import Objective
from tune_tf.searchers.criteria import SearchCriteria
from tune_tf.searchers.storage.study_storage import open_study
from tune_tf.searchers.trial_registry import TrialRegistry


def suggest(trial):
    return {"x": trial.suggest_float("x", 0, 1), "fixed": 3}


def open_registry(storage, state=None):
    study = open_study(storage, "s", SearchCriteria((Objective("loss", "min"),)))
    study.sampler = optuna.samplers.RandomSampler(seed=1)
    return TrialRegistry(study, storage, suggest, state)


def asked(registry, *tune_ids):
    if not registry.reconciled:
        registry.reconcile()
    return [registry.ask(tune_id) for tune_id in tune_ids]


def states(registry):
    return [trial.state.name for trial in registry.study.trials]
