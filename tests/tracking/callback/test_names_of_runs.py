"""Names that a run may have."""

from hooks import report, start
from store import Store


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
