"""Sweeps that are killed and resumed, simulated from a seed each; see ``simulate.py``."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(1800)

SIMULATE = Path(__file__).with_name("simulate.py")


def simulated(*arguments):
    """Run the simulation in a process of its own; return its exit code and what it printed.

    It needs Python's clocks and the order of sets to be its own from the first import on.
    """
    root = SIMULATE.parents[2]
    done = subprocess.run(
        [sys.executable, str(SIMULATE), *arguments],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root), "PYTHONHASHSEED": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return done.returncode, done.stdout


# `make fuzz SEEDS=5000` runs more.
@pytest.mark.mlflow
@pytest.mark.parametrize("num_seeds", [40, pytest.param(200, marks=pytest.mark.slow)])
def test_tune_optuna_and_mlflow_agree_after_kills_and_resumes(num_seeds, capsys):
    code, told = simulated("--seeds", str(num_seeds))
    with capsys.disabled():
        print(f"\n{told.strip().splitlines()[-1]}")
    assert code == 0, told


@pytest.mark.mlflow
@pytest.mark.slow
def test_reproducible_sweeps_are_the_same_whatever_happened_on_the_way(capsys):
    code, told = simulated("--reproducible", "--first", "8", "--seeds", "56")
    with capsys.disabled():
        print(f"\n{told.strip().splitlines()[-1]}")
    assert code == 0, told


@pytest.mark.slow
def test_simulating_a_seed_twice_gives_the_same_trace():
    code, told = simulated("--seeds", "8", "--twice")
    assert code == 0, told


@pytest.mark.mlflow
@pytest.mark.slow
def test_simulation_finds_reintroduced_bugs_of_earlier_versions():
    code, told = simulated("--bugs")
    assert code == 0, told
