"""The verb ``simulate_command``."""

import json
from pathlib import Path

import typer
from typer.testing import CliRunner

DIGITS = Path(__file__).parents[2] / "scripts/bench/tables/digits_mlp.npz"


def run(*arguments):
    from tune_tf.cli.verbs.simulate import simulate_command

    app = typer.Typer()
    app.command()(simulate_command)
    return CliRunner().invoke(
        app, [*arguments, "--seeds=2", "--max-t=9", "--budget-epochs=60", "--num-workers=2"]
    )


def test_it_compares_a_sampler_with_random_configs():
    result = run("--problem=branin", "--sampler=tpe")
    assert result.exit_code == 0
    assert "tpe + asha" in result.stdout
    assert "times the epochs of random search" in result.stdout


def test_it_searches_a_table_of_learning_curves():
    told = json.loads(run(f"--problem={DIGITS}", "--sampler=random", "--json").stdout)
    assert told["problem"] == "digits_mlp"
    assert len(told["random"]["best_values"]) == 2
    assert told["random"]["ends"] == ["out_of_budget"] * 2


def test_an_unknown_problem_is_refused():
    result = run("--problem=bran")
    assert "unknown problem 'bran'" in str(result.exception)
