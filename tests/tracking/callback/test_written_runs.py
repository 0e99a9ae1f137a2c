"""What the MLflow callback tells of a sweep and its trials."""

import pickle
from pathlib import Path

from hooks import complete, report, start
from store import Store

from tune_tf.constraint import Constraint
from tune_tf.record import SweepFingerprint


def test_an_infeasible_trial_is_tagged_and_never_the_best(callback_of, trial_of, client):
    callback = callback_of(constraints=[Constraint("val_accuracy", "<=", 2.0)])
    callback.setup()
    small, large = trial_of("small", 1.0), trial_of("large", 3.0)
    start(callback, small, large)
    for trial in (small, large):
        report(callback, trial, 1, done=True)
        callback.on_trial_complete(1, [small, large], trial)
    state = pickle.loads(pickle.dumps(callback.get_state()))
    for trial in (small, large):
        trial.set_status("TERMINATED")
    callback.on_experiment_end([small, large])

    store = Store(client)
    assert store.child(rate=3.0).data.tags["tune_tf.feasible"] == "false"
    assert store.child(rate=1.0).data.tags["tune_tf.feasible"] == "true"
    assert store.parent.data.metrics["best/val_accuracy"] == 1.0
    assert [each[-1] for each in state["summary"]["candidates"]] == [True, False]


def test_a_child_tells_its_node_code_rung_and_end(callback_of, trial_of, client):
    from tune_tf.tracking import SweepDetails

    callback = callback_of(details=SweepDetails(rungs=lambda: (1, 3)))
    callback.setup()
    trial = trial_of("t1")
    start(callback, trial)
    for step in (1, 2):
        report(callback, trial, step, hostname="gpu-1", node_ip="10.0.0.7")
    callback.on_trial_complete(1, [trial], trial)
    trial.set_status("TERMINATED")
    callback.on_experiment_end([trial])
    tags = Store(client).children[0].data.tags
    assert tags["tune_tf.node"] == "gpu-1 10.0.0.7"
    assert tags["tune_tf.rung"] == "1"


def test_files_are_attached_to_the_parent_of_a_sweep_that_has_ended(
    callback_of, trial_of, client, tmp_path
):
    callback = callback_of()
    callback.setup()
    trial = trial_of("t1")
    complete(callback, trial)
    callback.on_experiment_end([trial])
    page = tmp_path / "page.html"
    page.write_text("<p>all of it</p>")
    ended = Store(client).parent.info

    callback.attach({"report/report.html": page}, fingerprint=SweepFingerprint("7144", 104))

    parent = Store(client).parent
    assert parent.data.tags["tune_tf.fingerprint"] == "7144"
    assert (parent.info.status, parent.info.end_time) == ("FINISHED", ended.end_time)
    path = client.download_artifacts(parent.info.run_id, "report/report.html", str(tmp_path))
    assert Path(path).read_text() == "<p>all of it</p>"
    assert len(Store(client).children) == 1


def test_any_name_of_a_sweep_gives_a_run_and_its_files(callback_of, trial_of, client):
    names = [
        "x" * 500,
        "../../a/b\\c",
        "🦒 größe\u202e",
        'it\'s "so" `odd` %s {0} ;--',
        ".h",
        "a\nb\tc",
    ]
    callback = callback_of(sweep_name="\n".join(names))
    callback.setup()
    trial = trial_of("t1")
    trial.config.update(dict.fromkeys(names, "v" * 7000))
    start(callback, trial)
    report(callback, trial, 1, **dict.fromkeys(names, 1.0))
    callback.on_experiment_end([trial])
    store = Store(client)
    assert store.parent.info.run_name.isprintable()
    assert 0 < len(store.parent.info.run_name) <= 250
    (child,) = store.children
    assert len(child.data.params) == 1 + len(names)
    assert len(child.data.metrics) == 2 + len(names)
