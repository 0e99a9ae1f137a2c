"""PostgreSQL as storage: Debian's server, started on a free port."""

import os
import pwd
import shutil
import socket
import subprocess
import time
from pathlib import Path

import optuna
import pytest

from tune_tf.errors import InvalidSettingsError, SweepConflictError
from tune_tf.objective import Objective
from tune_tf.space import Choice, Float, SearchSpace

pytestmark = [pytest.mark.cluster, pytest.mark.slow]
LOSS = Objective("loss", "min")
SPACE = SearchSpace(
    {"optimizer": Choice(["adam", "sgd"]), "momentum": Float(0, 0.9, when={"optimizer": "sgd"})}
)
_DEBIAN = Path("/usr/lib/postgresql")


class Server:
    """A PostgreSQL server in a folder of its own, which it is started and stopped with."""

    def __init__(self, programs, folder, user):
        self._programs, self._folder, self._user = programs, folder, user
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        name = user or pwd.getpwuid(os.getuid()).pw_name
        self.url = f"postgresql+psycopg://{name}@127.0.0.1:{self.port}/postgres"

    def run(self, program, *arguments):
        as_user = ["runuser", "-u", self._user, "--"] if self._user else []
        subprocess.run(
            [*as_user, str(self._programs / program), *arguments],
            check=True,
            timeout=240,
            cwd=self._folder,
            stdout=subprocess.DEVNULL,
        )

    def make(self):
        self.run("initdb", "-D", str(self._folder / "data"), "-A", "trust", "--no-sync")

    def start(self):
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -k {self._folder} -c fsync=off"
        log = str(self._folder / "log")
        self.run(
            "pg_ctl", "-D", str(self._folder / "data"), "-w", "-l", log, "-o", options, "start"
        )

    def stop(self):
        """End the process that the server's own pid file names."""
        if (self._folder / "data" / "postmaster.pid").exists():
            self.run("pg_ctl", "-D", str(self._folder / "data"), "-w", "-m", "immediate", "stop")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    pytest.importorskip("psycopg", reason="no driver: pip install 'psycopg[binary]'")
    versions = sorted(_DEBIAN.glob("*/bin/initdb")) if _DEBIAN.is_dir() else []
    if not versions:
        pytest.skip("no PostgreSQL: apt-get install postgresql")
    user = "postgres" if os.getuid() == 0 else None
    if user and not shutil.which("runuser"):
        pytest.skip("PostgreSQL refuses to run as root, and there is no runuser")
    folder = Path("/tmp") / f"tune-tf-pg-{os.getpid()}"  # sockets' paths must be short
    folder.mkdir()
    if user:
        shutil.chown(folder, user)
    server = Server(versions[-1].parent, folder, user)
    try:
        server.make()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder)


@pytest.fixture
def server(cluster):
    cluster.start()
    yield cluster
    cluster.stop()


def make(server, **settings):
    from tune_tf.searchers import OptunaSearcher

    return OptunaSearcher(
        SPACE, LOSS, "random", seed=1, storage=server.url, study_name="s", **settings
    )


def begin(searcher, trial_id):
    config = searcher.suggest(trial_id)
    searcher.on_trial_result(trial_id, {"loss": 1.0, "training_iteration": 1, "size": 1})
    return config


def end(searcher, trial_id, reason="completed"):
    last = {"loss": 0.5, "training_iteration": 2, "size": 9, "time_total_s": 2.0}
    searcher.on_trial_complete(trial_id, last | {"stop_reason": reason})


def test_a_study_is_asked_told_reopened_and_resumed(server, tmp_path):
    first = make(server, constraints={"size": "<= 3"})
    configs = [begin(first, name) for name in "abcd"]
    end(first, "a")
    first.save(tmp_path / "state")
    end(first, "b", "pruned")
    del first

    second = make(server, constraints={"size": "<= 3"})
    second.restore(tmp_path / "state")
    configs.append(begin(second, "e"))
    for name in "cde":
        end(second, name)
    trials = second.study.trials
    states = ["COMPLETE", "PRUNED", "COMPLETE", "COMPLETE", "COMPLETE"]
    assert [trial.state.name for trial in trials] == states
    assert [trial.params for trial in trials] == configs
    assert all(trial.intermediate_values == {1: 1.0, 2: 0.5} for trial in trials)
    assert all(trial.constraints == {"size <= 3": 6.0} for trial in trials)
    assert all(trial.user_attrs["seconds"] == 2.0 for trial in trials)


def test_a_server_that_goes_away_is_told_and_comes_back(server):
    searcher = make(server)
    begin(searcher, "x")
    server.stop()
    with pytest.raises(
        SweepConflictError, match=r"127\.0\.0\.1.* is no longer available: .*restore access"
    ):
        searcher.suggest("y")
    with pytest.raises(InvalidSettingsError, match=r"cannot be opened as a database: .* refused"):
        make(server)
    server.start()
    end(searcher, "x")
    assert searcher.study.trials[-1].state.name == "COMPLETE"


def test_a_view_shows_the_study_after_an_outage(server, caplog):
    from tune_tf.searchers import OptunaSearcher, StudyView

    searcher = OptunaSearcher(SPACE, LOSS, "random", seed=1)
    with StudyView(searcher.study, searcher.criteria, server.url, "view", period_s=0.05) as view:
        begin(searcher, "a")
        view.on_step_end()
        time.sleep(1)
        server.stop()
        end(searcher, "a")
        begin(searcher, "b")
        view.on_step_end()
        time.sleep(1)
        server.start()
    assert "is behind, and is tried again" in caplog.text
    assert "lacks the last results" not in caplog.text
    copies = optuna.load_study(study_name="view", storage=server.url).trials
    assert [trial.state.name for trial in copies] == ["COMPLETE", "RUNNING"]
    assert [(t.params, t.values, t.intermediate_values, t.user_attrs) for t in copies] == [
        (t.params, t.values, t.intermediate_values, t.user_attrs) for t in searcher.study.trials
    ]
