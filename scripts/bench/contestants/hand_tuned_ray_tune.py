"""Sweep with hand-tuned Ray Tune: reused actors, one thread each, one ``fit`` per epoch.

``--variant pipeline`` feeds ``fit`` from a cached ``tf.data`` pipeline with the whole epoch in one
execution, instead of from arrays.
"""

import os
from pathlib import Path
from typing import Any

import ray
from digits_mlp import BATCH_SIZE, LEARNING_RATES, WEIGHT_DECAYS, WIDTHS, build_model, load_rows
from outcome import Clock, Job, SweepOutcome


def _digits_trainable() -> Any:
    from ray import tune

    class DigitsTrainable(tune.Trainable):
        def setup(self, config: dict[str, Any]) -> None:
            import tensorflow as tf

            tf.config.threading.set_intra_op_parallelism_threads(1)
            tf.config.threading.set_inter_op_parallelism_threads(1)
            (self.x, self.y), self.validation = load_rows()
            self.pipeline = config["variant"] == "pipeline"
            num_batches = -(-len(self.x) // BATCH_SIZE)
            self.steps_per_execution = num_batches if self.pipeline else 1
            if self.pipeline:
                rows = tf.data.Dataset.from_tensor_slices((self.x, self.y)).cache()
                self.train_set = rows.shuffle(len(self.x)).batch(BATCH_SIZE).prefetch(2)
                held_out = tf.data.Dataset.from_tensor_slices(self.validation)
                self.validation_set = held_out.batch(BATCH_SIZE).cache().prefetch(2)
            self.reset_config(config)

        def step(self) -> dict[str, float]:
            if self.pipeline:
                history = self.model.fit(
                    self.train_set, validation_data=self.validation_set, verbose=0
                )
            else:
                history = self.model.fit(
                    self.x,
                    self.y,
                    batch_size=BATCH_SIZE,
                    validation_data=self.validation,
                    verbose=0,
                )
            return {name: values[-1] for name, values in history.history.items()}

        def save_checkpoint(self, checkpoint_dir: str) -> None:
            self.model.save(Path(checkpoint_dir, "model.keras"))

        def load_checkpoint(self, checkpoint_dir: str) -> None:
            import keras

            self.model = keras.saving.load_model(Path(checkpoint_dir, "model.keras"))

        def reset_config(self, new_config: dict[str, Any]) -> bool:
            self.model = build_model(new_config, steps_per_execution=self.steps_per_execution)
            return True

    return DigitsTrainable


def main() -> None:
    """Run the sweep and print its outcome."""
    job = Job.from_arguments()
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    clock = Clock()
    os.environ["TUNE_DISABLE_AUTO_CALLBACK_LOGGERS"] = "1"  # MLflow has it all
    from ray import tune
    from ray.air.integrations.mlflow import MLflowLoggerCallback
    from ray.tune.schedulers import ASHAScheduler
    from ray.tune.search.optuna import OptunaSearch
    from sweep_watcher import SweepWatcher

    watch = SweepWatcher(clock)
    tuner = tune.Tuner(
        _digits_trainable(),
        param_space={
            "width": tune.choice(list(WIDTHS)),
            "learning_rate": tune.loguniform(*LEARNING_RATES),
            "weight_decay": tune.loguniform(*WEIGHT_DECAYS),
            "variant": job.variant,
        },
        tune_config=tune.TuneConfig(
            metric="val_accuracy",
            mode="max",
            search_alg=OptunaSearch(seed=job.seed),
            scheduler=ASHAScheduler(max_t=job.max_epochs, grace_period=1, reduction_factor=3),
            num_samples=job.num_samples,
            max_concurrent_trials=2,
            reuse_actors=True,
        ),
        run_config=tune.RunConfig(
            name="bench",
            storage_path=str(job.folder.resolve() / "results"),
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=True),
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
