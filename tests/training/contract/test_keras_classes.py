"""Every number of every class of Keras is that of the trial, also where graphs are shared.

Configs whose structures differ never share a graph, so only those are trained that would.
"""

from collections import defaultdict

import keras
import pytest
from fit_reference import FIT_TOLERANCE, distance, train_by_fit
from guards import slow
from keras_classes import NUM_ROWS, subjects
from keras_values import NOT_BUILT, NOT_BY_FIT
from trials import begin

from tune_tf.testing.reuse_contract import assert_reuse_is_exact, run_apart, train
from tune_tf.training.graph import GraphCache
from tune_tf.training.loop import GraphLoop

pytestmark = pytest.mark.tf

GUARDS = ("losses.Huber", "optimizers.SGD")


def sharing(workload, configs, replicas):
    """Return the configs that would share a graph, and those that cannot begin; none is traced."""
    loop = GraphLoop(replicas, graphs=GraphCache())
    groups, refused = defaultdict(list), []
    for label, config in configs.items():
        try:
            begin(loop, workload, config)
            loop._prepare(loop.trial)
            program = loop.trial.program
            graph = program.graph
            loop.finish()
        except Exception:  # values that exclude one another
            refused.append(label)
            continue
        groups[label if program.own_code else graph].append(label)
    shared = [label for group in groups.values() if len(group) > 1 for label in group]
    return {label: configs[label] for label in shared}, refused


@pytest.mark.parametrize(
    "subject",
    [s if s.name in GUARDS else slow(s) for s in subjects()],
    ids=lambda subject: subject.name,
)
def test_every_number_of_a_class_is_that_of_the_trial(subject, replicas_of):
    replicas = replicas_of(1)
    configs = {subject.label(config): config for config in subject.configs()}
    shared, refused = sharing(subject.workload, configs, replicas)

    assert "default" not in refused
    assert_reuse_is_exact(subject.workload, [{}, *shared.values()], replicas=replicas)
    if subject.name not in NOT_BY_FIT:
        run = run_apart(lambda: train(GraphLoop(replicas), subject.workload, {}))
        by_fit = run_apart(lambda: train_by_fit(subject.workload, {}))
        assert distance(run, by_fit) <= FIT_TOLERANCE


def test_classes_that_are_left_out_are_there():
    names = {name for name in NOT_BUILT if not hasattr(keras, name.split(".")[0])}

    assert names <= {"schedules.LearningRateSchedule"}
    assert len(subjects()) > 200
    assert NUM_ROWS % 8, "the last batch is smaller"
