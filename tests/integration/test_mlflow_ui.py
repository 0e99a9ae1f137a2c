"""A finished sweep in MLflow's own pages, as a person sees it in a browser."""

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest
from browser import chromium

from tune_tf.tracking.names import TIME_TOTAL

pytestmark = [pytest.mark.tf, pytest.mark.cluster, pytest.mark.slow]

_NUM_TRIALS = 4


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture(scope="module")
def folder(browser, ray_cluster, verb, write_sweep, tmp_path_factory):
    """The folder that a sweep was started in; none is run where there is no browser."""
    folder = tmp_path_factory.mktemp("sweep")
    write_sweep(folder)
    code, out, err = verb("run", "tiny.yaml", cwd=folder)
    assert code == 0, out + err
    return folder


@pytest.fixture(scope="module")
def pages(folder):
    """The address of MLflow's pages, below which its experiments are."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    with (folder / "server.log").open("w") as log:
        server = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "mlflow",
                "server",
                "--workers",
                "1",
                "--port",
                str(port),
                "--host",
                "127.0.0.1",
                "--backend-store-uri",
                "sqlite:///mlflow.db",
            ],
            cwd=folder,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true"},
        )
    try:
        deadline = time.monotonic() + 240
        while not _answers(f"{address}/health"):
            assert server.poll() is None, (folder / "server.log").read_text()
            assert time.monotonic() < deadline, "the server did not start"
            time.sleep(0.2)
        yield f"{address}/#/experiments"
    finally:
        server.terminate()
        server.wait(240)


def _answers(url):
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status == 200
    except (urllib.error.URLError, OSError):
        return False


@pytest.fixture(scope="module")
def runs(folder):
    """MLflow's runs of the sweep: the parent, and its children by name."""
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
    (experiment,) = (each for each in client.search_experiments() if each.name == "tiny")
    found = client.search_runs([experiment.experiment_id])
    (parent,) = (run for run in found if "mlflow.parentRunId" not in run.data.tags)
    return parent, {run.info.run_name: run for run in found if run is not parent}


def test_the_trials_are_nested_below_the_sweep(browser, pages, runs):
    parent, children = runs
    assert len(children) == _NUM_TRIALS
    browser.open(f"{pages}/{parent.info.experiment_id}/runs")
    text = browser.wait_for(parent.info.run_name)
    assert "trial_" not in text
    browser.click(f"//*[text()='{parent.info.run_name}']/ancestor::*[@role='gridcell']//button")
    browser.wait_for(*children)


def test_the_sweeps_page_says_what_came_of_it(browser, pages, runs):
    parent, _ = runs
    browser.open(f"{pages}/{parent.info.experiment_id}/runs/{parent.info.run_id}")
    text = browser.wait_for("Description", "Parameters", "Child runs")
    assert "val_accuracy" in text
    assert "best_learning_rate" in text


def test_a_trials_page_draws_its_curves(browser, pages, runs):
    _, children = runs
    longest = max(children.values(), key=lambda run: run.data.metrics[TIME_TOTAL])
    name = longest.info.run_name
    path = f"{longest.info.experiment_id}/runs/{longest.info.run_id}/model-metrics"
    browser.open(f"{pages}/{path}")
    text = browser.wait_for(f"{name} (val_accuracy)", f"{name} (loss)")
    assert "rows_per_s" not in text
    browser.wait_for_element("//*[local-name()='path' and contains(@class, 'js-line')]")
    browser.open(f"{pages}/{path.replace('model-metrics', 'system-metrics')}")
    browser.wait_for(f"{name} (system/rows_per_s)")


def test_the_report_is_shown_among_the_sweeps_artifacts(browser, pages, runs):
    parent, _ = runs
    browser.open(f"{pages}/{parent.info.experiment_id}/runs/{parent.info.run_id}/artifacts")
    browser.wait_for("sweep.yaml", "report.html")
    browser.click("//*[text()='report.html']")
    frame = browser.wait_for_element("//iframe")
    browser.driver.switch_to.frame(frame)
    try:
        browser.wait_for("val_accuracy", "trials")
    finally:
        browser.driver.switch_to.default_content()
