"""Sweep with Ray Tune as documented: a function, ``fit`` and a callback."""

from typing import Any

import ray
from digits_mlp import BATCH_SIZE, LEARNING_RATES, WEIGHT_DECAYS, WIDTHS, build_model, load_rows
from outcome import Clock, Job, SweepOutcome


def train_digits(config: dict[str, Any]) -> None:
    """Train one trial."""
    from ray.tune.integration.keras import TuneReportCheckpointCallback

    (x, y), validation = load_rows()
    model = build_model(config)
    model.fit(
        x,
        y,
        batch_size=BATCH_SIZE,
        epochs=config["max_epochs"],
        validation_data=validation,
        callbacks=[TuneReportCheckpointCallback()],
        verbose=0,
    )


def main() -> None:
    """Run the sweep and print its outcome."""
    job = Job.from_arguments()
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    clock = Clock()
    from ray import tune
    from ray.air.integrations.mlflow import MLflowLoggerCallback
    from ray.tune.schedulers import ASHAScheduler
    from ray.tune.search import ConcurrencyLimiter
    from ray.tune.search.optuna import OptunaSearch
    from sweep_watcher import SweepWatcher

    watch = SweepWatcher(clock)
    tuner = tune.Tuner(
        train_digits,
        param_space={
            "width": tune.choice(list(WIDTHS)),
            "learning_rate": tune.loguniform(*LEARNING_RATES),
            "weight_decay": tune.loguniform(*WEIGHT_DECAYS),
            "max_epochs": job.max_epochs,
        },
        tune_config=tune.TuneConfig(
            metric="val_accuracy",
            mode="max",
            # As in the documentation of OptunaSearch: two trials run, two wait for their turn.
            search_alg=ConcurrencyLimiter(OptunaSearch(seed=job.seed), max_concurrent=4),
            scheduler=ASHAScheduler(max_t=job.max_epochs, grace_period=1, reduction_factor=3),
            num_samples=job.num_samples,
        ),
        run_config=tune.RunConfig(
            name="bench",
            storage_path=str(job.folder.resolve() / "results"),
            callbacks=[
                MLflowLoggerCallback(tracking_uri=job.tracking_uri, experiment_name="bench"),
                watch,
            ],
            verbose=0,
        ),
    )
    results = tuner.fit()
    SweepOutcome(
        wall_s=clock.elapsed_s(),
        num_trials=len(results),
        num_epochs=sum(result.metrics["training_iteration"] for result in results),
        best_val_accuracy=watch.best_val_accuracy,
        num_processes=len(watch.pids),
        marks_s=clock.marks_s,
    ).print()


if __name__ == "__main__":
    main()
