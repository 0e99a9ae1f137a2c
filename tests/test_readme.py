"""The README and the guides: every block of code is run, or says why not."""

import inspect
import re
import subprocess
import sys

import pytest
import typer
from documented import BLOCK, PAGES, ROOT, blocks, shell_lines

from tune_tf.cli import app
from tune_tf.config import SweepConfig


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_block_of_code_says_how_it_is_tested(page):
    text = page.read_text()
    assert len(BLOCK.findall(text)) == len(re.findall(r"^```\w+$", text, re.M))


def pages_of_python():
    """Return the blocks of Python by what they show; those that take long are `slow`."""
    names = [
        "own_model",
        "callbacks",
        "prepared",
        "dataset",
        "per_example",
        "own_data",
        "looking",
        "stages",
        "folds",
        "measure",
        "keras_tuner",
    ]
    slow = ("folds", "measure")
    return [
        pytest.param(code, id=name, marks=[pytest.mark.slow] if name in slow else [])
        for name, code in zip(names, blocks("python")[1:], strict=True)
    ]


@pytest.mark.tf
@pytest.mark.cluster
@pytest.mark.parametrize(
    ("code", "name"),
    [
        pytest.param(code, name, id=name, marks=[] if name == "build-model" else [pytest.mark.slow])
        for code, name in zip(blocks("script"), ("build-model", "exp", "pbt_test"), strict=True)
    ],
)
def test_a_documented_search_runs_as_a_script(code, name, tmp_path):
    (tmp_path / "mine.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "mine.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert "'learning_rate': " in done.stdout
    assert list(tmp_path.glob(f"sweeps/{name}-*/report/report.html"))


@pytest.mark.tf
@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize("code", pages_of_python())
def test_the_documented_python_runs(code, tmp_path, monkeypatch, capsys):
    from tune_tf.training import devices

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ray.init", lambda **settings: None)  # a cluster is there
    monkeypatch.setattr(
        devices,
        "claim_devices",  # those of this process cannot be set again
        lambda resources, num: devices.Devices(tuple(f"CPU:{i}" for i in range(num))),
    )
    exec(compile(code, "documented", "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out.strip()


@pytest.mark.cluster
@pytest.mark.slow
def test_the_readmes_tune_run_example_runs_as_a_script(tmp_path):
    code = blocks("python")[0]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


@pytest.mark.parametrize("words", shell_lines(), ids=" ".join)
def test_a_documented_line_is_one_that_the_shell_takes(words):
    program, *arguments = words
    if program == "make":
        assert f"\n{arguments[0]}:" in (ROOT / "Makefile").read_text()
        return
    group = typer.main.get_command(app)
    with group.make_context(program, arguments) as parent:
        name, verb, rest = group.resolve_command(parent, parent._protected_args + parent.args)
        verb.make_context(name, rest, parent=parent)


def test_a_sweep_by_plain_tune_run_takes_eight_lines():
    lines = [line for line in blocks("python")[0].splitlines() if line.strip()]
    assert len([line for line in lines if not line.startswith(("import", "from"))]) == 8


@pytest.mark.parametrize("text", blocks("sweep"))
def test_a_documented_sweep_file_is_right(text, tmp_path):
    path = tmp_path / "sweep.yaml"
    path.write_text(text)
    assert SweepConfig.from_yaml(path).name.startswith("digits-")


@pytest.mark.slow
def test_the_documented_contract_of_a_scheduler_passes(ray_cluster, tmp_path):
    import ray

    cluster = f"""
import ray


@pytest.fixture(scope="session")
def ray_cluster():
    ray.init({ray.get_runtime_context().gcs_address!r}, logging_level="ERROR")
    yield
    ray.shutdown()
"""
    (code,) = blocks("contract")
    (tmp_path / "test_mine.py").write_text(code + cluster)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_mine.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout


def test_the_list_of_benchmarks_is_whole():
    bench = ROOT / "scripts" / "bench"
    listed = re.findall(r"^\| `(\w+\.py)` \|", (bench / "README.md").read_text(), re.M)
    assert sorted(listed) == sorted(path.name for path in bench.glob("*.py"))


def test_every_guide_is_found_from_the_readme():
    pages = {page.name: page.read_text() for page in PAGES}
    reached, left = set(), ["README.md"]
    while left:
        name = left.pop()
        reached.add(name)
        linked = re.findall(r"\]\((?:docs/)?([\w-]+\.md)", pages[name])
        left += [each for each in linked if each in pages and each not in reached]
    assert reached == set(pages)


@pytest.mark.parametrize(
    "path", sorted((ROOT / "search_spaces").glob("*.yaml")), ids=lambda p: p.stem
)
def test_a_ready_sweep_file_is_right(path):
    SweepConfig.from_yaml(path)


COMING_FROM = (ROOT / "docs" / "coming-from.md").read_text()
NAMED_BY_OTHERS = {"self", "kwargs", "local_dir", "failure_config", "checkpoint_config"}


def arguments_of(*callables):
    return {
        name
        for each in callables
        for name, parameter in inspect.signature(each).parameters.items()
        if not name.startswith("_") and parameter.default != "DEPRECATED"
    } - NAMED_BY_OTHERS


def test_every_setting_of_ray_tune_is_named_for_its_users():
    from ray import tune

    kinds = (tune.TuneConfig, tune.RunConfig, tune.CheckpointConfig, tune.FailureConfig)
    assert [name for name in sorted(arguments_of(*kinds)) if name not in COMING_FROM] == []


@pytest.mark.tf
def test_every_argument_of_the_tuners_of_keras_tuner_is_named_for_its_users():
    kt = pytest.importorskip("keras_tuner")
    tuners = (kt.Tuner, kt.RandomSearch, kt.Hyperband, kt.BayesianOptimization, kt.GridSearch)
    arguments = arguments_of(*(tuner.__init__ for tuner in tuners))
    assert [name for name in sorted(arguments) if name not in COMING_FROM] == []
