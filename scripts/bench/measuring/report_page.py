"""Duration of writing and opening the report of a large sweep."""

import json
import tempfile
import time
from pathlib import Path

import numpy as np

from tune_tf.config import SweepConfig
from tune_tf.outcome import Outcome
from tune_tf.report import write_report
from tune_tf.results import SweepResult, TrialResult

_CHROMIUM = Path("/usr/bin/chromium")
_DRIVER = Path("/usr/bin/chromedriver")
_FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync")
_STARTED_S = 1_700_000_000.0


def measure_report(folder: Path, num_trials: int, num_epochs: int) -> dict[str, float]:
    """Write the report of a synthetic sweep and open it.

    Args:
        folder: Where to; left as it is afterwards.
        num_trials: Trials of the sweep.
        num_epochs: Reports of each trial.
    """
    result = _sweep(folder / "large", num_trials, num_epochs)
    started = time.perf_counter()
    files = write_report(result, folder / "report")
    values = {"report_s": time.perf_counter() - started}
    size_mb = sum(path.stat().st_size for path in files.values()) / 1e6
    print(
        f"report of {num_trials} trials x {num_epochs} epochs: {values['report_s']:.1f} s, "
        f"{len(files)} files, {size_mb:.1f} MB"
    )
    if opened_s := _open(files["report.html"]):
        print(f"opened and drawn by Chromium in {opened_s:.1f} s")
        values["report_opens_s"] = opened_s
    else:
        print("not opened: Chromium and ChromeDriver, or selenium, are not installed")
    return values


def _sweep(folder: Path, num_trials: int, num_epochs: int) -> SweepResult:
    random = np.random.default_rng(1)
    config = SweepConfig(
        name="large",
        workload="tune_tf.workloads.digits:DigitsMLP",
        objective={"metric": "val_accuracy", "mode": "max"},
        space={
            "learning_rate": {"loguniform": [1e-5, 1e-1]},
            "dropout": {"uniform": [0.0, 0.5]},
            "width": {"int": [16, 256]},
            "optimizer": {"choice": ["adamw", "sgd"]},
            "momentum": {"uniform": [0.0, 0.99], "when": {"optimizer": "sgd"}},
        },
        epochs=num_epochs,
        scheduler={"name": "asha"},
        budget={"num_samples": num_trials},
    )
    trials = []
    for number in range(num_trials):
        curve = 1 - np.exp(-np.arange(1, num_epochs + 1) * random.uniform(0.05, 0.5))
        curve = curve * random.uniform(0.5, 1.0) + random.normal(0, 0.01, num_epochs)
        start_s = _STARTED_S + number // 16 * num_epochs
        lines = [
            {
                "val_accuracy": float(value),
                "training_iteration": epoch,
                "timestamp": int(start_s + epoch),
                "time_this_iter_s": 1.0,
                "time_total_s": float(epoch),
                "pid": number % 16,
                "hostname": "node",
            }
            for epoch, value in enumerate(curve, 1)
        ]
        path = folder / f"trial_{number:05d}"
        path.mkdir(parents=True)
        path.joinpath("result.json").write_text("\n".join(map(json.dumps, lines)) + "\n")
        optimizer = str(random.choice(["adamw", "sgd"]))
        values = {
            "learning_rate": float(10 ** random.uniform(-5, -1)),
            "dropout": float(random.uniform(0, 0.5)),
            "width": int(random.integers(16, 257)),
            "optimizer": optimizer,
        }
        if optimizer == "sgd":
            values["momentum"] = float(random.uniform(0, 0.99))
        trials.append(
            TrialResult(
                trial_id=f"{number:08x}",
                number=number,
                config=values,
                outcome=Outcome.COMPLETED if number % 3 == 0 else Outcome.PRUNED,
                iterations=num_epochs,
                metrics={"val_accuracy": float(curve[-1])},
            )
        )
    return SweepResult("large", folder, config, folder, tuple(trials))


def _open(page: Path) -> float | None:
    """Return the seconds until a browser has loaded and drawn a page; None without a browser."""
    try:
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service
    except ImportError:
        return None
    if not (_CHROMIUM.exists() and _DRIVER.exists()):
        return None
    with tempfile.TemporaryDirectory() as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = str(_CHROMIUM)
        for flag in (*_FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        driver = webdriver.Chrome(options=options, service=Service(str(_DRIVER)))
        try:
            driver.get("about:blank")
            started = time.perf_counter()
            driver.get(page.absolute().as_uri())
            while not driver.find_elements("css selector", ".main-svg"):
                time.sleep(0.02)
            driver.execute_async_script("requestAnimationFrame(() => arguments[0]())")
            return time.perf_counter() - started
        finally:
            driver.quit()
