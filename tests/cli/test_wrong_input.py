"""Wrong input to the command line: each is refused at once, with what, where and what to do."""

import os
import re
import sys

import pytest
import ray

from tune_tf.cli import main

GOOD = """\
name: small
workload: tune_tf.workloads.digits:DigitsMLP
objective: {metric: val_accuracy, mode: max}
space: {learning_rate: {loguniform: [1.0e-4, 1.0e-1]}}
epochs: 3
budget: {num_samples: 2}
mlflow: null
"""


@pytest.fixture
def verb(tmp_path, monkeypatch, capsys):
    """Call the command line where no cluster may start; return its exit code and output."""

    def no_cluster(*arguments, **options):
        raise AssertionError("a cluster starts")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ray, "init", no_cluster)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)  # an earlier test's cluster
    for name in ("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "TF_CPP_MIN_LOG_LEVEL"):
        monkeypatch.setenv(name, os.environ.get(name, "0"))  # the command line sets them
    monkeypatch.setenv("COLUMNS", "200")

    def verb(*arguments):
        monkeypatch.setattr(sys, "argv", ["tune-tf", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code, "".join(capsys.readouterr())

    return verb


def changed(key, value):
    """Return a sweep file with another value of one of its settings."""
    kept = [line for line in GOOD.splitlines() if line.partition(":")[0] != key]
    return "\n".join([*kept, f"{key}: {value}", ""])


FILES = {
    "empty": ("", "is empty: it must hold a mapping of settings"),
    "comments": ("# later\n", "is empty"),
    "tab": ("space:\n\tlr: 1\n", "line 2: is not YAML: .*: indent with spaces, not tabs"),
    "unclosed": ("name: [a\n", "line 2: .*expected ',' or ']'.*: close the list by ]"),
    "colon": ("name: b: c\n", "line 1: .*: put text that holds a colon in quotes"),
    "two-documents": (f"{GOOD}---\na: 1\n", "line 8: .*: remove the line `---`"),
    "twice": (f"{GOOD}epochs: 4\n", "line 8: epochs: is given twice, first on line 5: keep"),
    "twice-crlf": (f"{GOOD}epochs: 4\n".replace("\n", "\r\n"), "line 8: epochs: is given"),
    "bom": (f"\ufeff{GOOD}epoch: 4\n", r"epoch: unknown key; did you mean 'epochs'\?"),
    "latin-1": (GOOD.encode() + b"# \xe9\n", r"is not text in UTF-8 .*: save it in this"),
    "utf-16": (GOOD.encode("utf-16"), "is not text in UTF-8"),
    "picture": (b"\x89PNG\r\n\x1a\n", "is not text in UTF-8"),
    "zero-byte": (f"{GOOD}\0", r"line 8: holds the character '\\x00': remove it"),
    "bell": (f"{GOOD}a: \x07\n", r"line 8: holds the character '\\x07': remove it"),
    "alias": ("name: *a\n", "line 1: .* undefined alias 'a': put text that begins with"),
    "python": ("import os\n", "line 1: must be a mapping like `name: value`, not 'import os'"),
    "bomb": (
        f"{GOOD}a0: &a0 [x]\n"
        + "".join(f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12)),
        "is not YAML: it holds more than 50,000 values, each use of an alias counted",
    ),
    "digits": (changed("epochs", "9" * 10_000), "line 7: is not YAML: 9+… is too large a number"),
    "deep": (changed("data", "[" * 10_000), "is not YAML: mappings and lists are nested more"),
    "large": (GOOD + "# more\n" * 1_500_000, "is larger than 500 kB: settings are short"),
    "no-workload": (changed("workload", "models:Mine"), "there is no module 'models'; looked"),
    "no-file": (changed("workload", "mine.py:Mine"), "there is no file .*/mine.py"),
    "no-class": (
        changed("workload", "tune_tf.workloads.digits:DigitsCN"),
        r"has no 'DigitsCN'; did you mean 'DigitsCNN'\?",
    ),
    "not-a-workload": (changed("workload", "os:path"), "which is not a tune_tf.Workload"),
    "no-data": (
        changed("workload", "tune_tf.workloads.tabular:TabularMLP")
        + "data: {path: wine.csv, target: class}\n",
        "data.path: .*/wine.csv cannot be read: No such file",
    ),
    "long-name": (changed("name", "x" * 201), "line 7: name: .* at most 200"),
    "null": (changed("seed", "null"), "line 8: seed: must be an integer, not nothing .*leave"),
    "mlflow-true": (changed("mlflow", "true"), "line 7: mlflow: .*: leave it out for the default"),
    "mlflow-number": (
        changed("mlflow", "3"),
        "mlflow: must be a mapping of settings, not 3; they are",
    ),
    "parallelism": (
        changed("parallelism", "null"),
        "parallelism: .*nothing .null.; they .*: leave it out for the default",
    ),
    "cpus": (changed("resources", "{cpus: 9999}"), "a trial asks for 9999 CPUs, .*ask for less"),
    "replicas": (changed("parallelism", "{num_replicas: 999}"), "a trial asks for 999 CPUs"),
    "sampler": (changed("searcher", "{sampler: QMSampler}"), "line 8: searcher: unknown sampler"),
    "argument": (
        changed("searcher", "{sampler: nsga2, arguments: {population: 3}}"),
        "line 8: searcher: sampler 'nsga2' has no argument 'population'; did you mean",
    ),
    "unsupported": (
        changed("searcher", "{sampler: grid}"),
        "line 4: space.learning_rate: .*sampler 'grid'",
    ),
    "point": (
        changed("searcher", "{points_to_evaluate: [{lr: 1}]}"),
        "points_to_evaluate.0.lr: is not a parameter; the parameters are learning_rate",
    ),
    "warm-start": (
        changed("searcher", "{warm_start_from: a.journal}"),
        "warm_start_from 'a.journal': must be a sweep's folder, .*; there is none",
    ),
    "warm-start-kind": (
        changed("searcher", "{warm_start_from: 'foo://x'}"),
        "'foo://x' cannot be opened as a database: Can't load plugin",
    ),
    "uri-bracket": (
        changed("mlflow", "{tracking_uri: 'http://[bad'}"),
        r"tracking_uri 'http://\[bad' is no valid URI \(Invalid IPv6 URL\): correct it",
    ),
    "uri-host": (changed("mlflow", "{tracking_uri: 'http://'}"), "has no host: write it as"),
    "uri-port": (changed("mlflow", "{tracking_uri: 'http://a:99999'}"), "correct the number"),
    "uri-scheme": (changed("mlflow", "{tracking_uri: 'foo://x'}"), "has the scheme 'foo'"),
    "uri-folder": (changed("mlflow", "{tracking_uri: ./runs}"), "is a directory, which MLflow"),
    "uri-variable": (
        changed("mlflow", "{tracking_uri: '${NOT_SET_URI}'}"),
        r"refers to the environment variable NOT_SET_URI, .*: set it \(export NOT_SET_URI=",
    ),
    "storage-empty": (changed("storage_path", "''"), "storage_path: is empty: write a folder"),
    "storage-file": (changed("storage_path", "file.txt/a"), "file.txt is not a folder; name"),
    "storage-bracket": (changed("storage_path", "'file://[x'"), "storage_path: Invalid IPv6 URL"),
    "storage-scheme": (changed("storage_path", "foo://x"), "write a folder, or a URI such as"),
    "cluster-gone": (
        changed("cluster", "{address: '127.0.0.1:1'}"),
        "no Ray cluster answers at '127.0.0.1:1'.*start one with `ray start --head`",
    ),
    "client": (
        changed("cluster", "{address: 'ray://127.0.0.1:1'}"),
        r"line \d+.*cluster.address: must be auto or host:port .*use `ray job submit`.*, not",
    ),
    "variable": (
        changed("cluster", "{runtime_env: {env_vars: {A: '${NOT_SET_A}'}}}"),
        r"error: cluster.runtime_env.env_vars.A refers to .*NOT_SET_A",
    ),
}
"""Content of a sweep file, and what is told of it."""


@pytest.mark.parametrize(("content", "told"), FILES.values(), ids=FILES)
def test_a_sweep_file_is_refused_before_a_cluster_starts(content, told, verb, tmp_path):
    (tmp_path / "file.txt").touch()
    data = content if isinstance(content, bytes) else content.encode()
    (tmp_path / "sweep.yaml").write_bytes(data)
    code, text = verb("run", "sweep.yaml")
    assert code == 2
    assert re.search(told, text, re.DOTALL), text
    assert not (tmp_path / "sweeps").exists()  # nothing is left behind


def test_an_address_of_the_environment_is_refused_without_a_line(verb, tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "ray://head:10001")
    (tmp_path / "sweep.yaml").write_text(GOOD)
    code, text = verb("run", "sweep.yaml", "--dry-run")
    assert code == 2
    assert text.startswith("error: RAY_ADDRESS must be auto or host:port (from outside of a")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("run missing.yaml", "cannot be read: No such file or directory; looked for /"),
        ("run .", "cannot be read: Is a directory; looked for /"),
        ("plan .", "cannot be read: Is a directory; looked for /"),
        ("rnu", r"No such command 'rnu'. Did you mean 'run'\?"),
        ("run sweep.yaml --dryrun", "No such option: --dryrun"),
        ("run", "Missing argument 'file'"),
        ("status --storage-path file.txt", "file.txt is not a folder: name the folder that holds"),
        ("status file.txt", "there is no sweep 'file.txt'; there are none in sweeps: name the"),
        ("status --follow", "--follow: needs the name of a sweep"),
        ("init no.csv", "there is no file or folder no.csv"),
        ("init no.csv --read-csv decimal", "must be NAME=VALUE, not decimal"),
        ("init file.txt", "no ready workload takes file.txt: name a file ending in .csv"),
        ("retrain x --on test", "'test' is not one of 'train\\+validation'"),
    ],
)
def test_wrong_arguments_are_refused(arguments, told, verb, tmp_path):
    (tmp_path / "file.txt").touch()
    code, text = verb(*arguments.split())
    assert code == 2
    assert re.search(told, text, re.DOTALL), text


@pytest.mark.parametrize(
    "arguments",
    [
        *("stop {}", "resume {}", "extend {} epochs=9", "status {}", "trials {}", "show {}"),
        *("logs {}", "report {}", "sync {}", "export {}", "retrain {}", "verify {}"),
    ],
)
def test_each_verb_refuses_a_sweep_that_does_not_exist(arguments, verb):
    told = "error: there is no sweep 'smal'; there are none in sweeps: name the sweep's folder"
    code, text = verb(*arguments.format("smal").split())
    assert code == 2
    assert told in text


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("extend {} num_samples=8", "budget: is unchanged: name what to increase"),
        ("extend {} num_sample=9", r"must be .* not 'num_sample'; did you mean 'num_samples'"),
        ("extend {} 9", "must be LIMIT=VALUE, such as num_samples=\\+20, not 9"),
        ("extend {} num_samples=x", "must be a number, '\\+' and a number to add, or none"),
        ("extend {} num_samples=3", "must be at least 4, the number of trials so far, not 3"),
        ("extend {} num_samples=none", "num_samples: must be an integer, not nothing"),
        ("extend {} epochs=nan", "epochs: must be an integer, not nan"),
        ("extend {} gpu_hours=+1", "has no limit that '\\+1' could be added to: give a number"),
        ("show {} 9", "has no trial '9'; there are 4, numbered from 0"),
        ("export {} --trial 9", "has no trial '9'"),
        ("export {}", "has no checkpoint to export"),
        ("trials {} --top 0", "Invalid value for '--top'"),
        ("stop {}", "is not running, it is ended"),
        ("report {} --output /proc/no/x", "the report cannot be written to /proc/no/x"),
    ],
)
def test_a_sweep_refuses_what_its_folder_rules_out(arguments, told, ended, verb):
    before = (ended.path / "sweep-info").read_text()
    code, text = verb(*(each.format(ended.path) for each in arguments.split()))
    assert code == 2
    assert re.search(told, text, re.DOTALL), text
    assert (ended.path / "sweep-info").read_text() == before


@pytest.mark.parametrize("arguments", ["resume {}", "extend {} num_samples=+2"])
@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"workload": "models:Mine"}, "there is no module 'models'"),
        ({"searcher": {"warm_start_from": "a.journal"}}, "'a.journal': must be a sweep's folder"),
        ({"mlflow": {"tracking_uri": "${NOT_SET_URI}"}}, "NOT_SET_URI, which is not set"),
        ({"resources": {"cpus": 9999}}, "a trial asks for 9999 CPUs"),
    ],
)
def test_resume_and_extend_refuse_before_a_cluster_starts(settings, told, arguments, sweeps, verb):
    workload = {"workload": "tune_tf.workloads.digits:DigitsMLP"}
    interrupted = sweeps(**(workload | settings))
    interrupted.leave()
    before = (interrupted.path / "sweep.yaml").read_text()
    code, text = verb(*(each.format(interrupted.path) for each in arguments.split()))
    assert code == 2
    assert re.search(told, text), text
    assert (interrupted.path / "sweep.yaml").read_text() == before
