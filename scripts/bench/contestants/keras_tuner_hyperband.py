"""Sweep with KerasTuner's Hyperband, in one process, without tracking.

It plans its own trials: ``--num-samples`` has no effect.
"""

from typing import Any

from digits_mlp import BATCH_SIZE, LEARNING_RATES, WEIGHT_DECAYS, WIDTHS, build_model, load_rows
from outcome import Clock, Job, SweepOutcome


def build(hp: Any) -> Any:
    """Return the model of a trial."""
    low, high = LEARNING_RATES
    least, most = WEIGHT_DECAYS
    return build_model(
        {
            "width": hp.Choice("width", list(WIDTHS)),
            "learning_rate": hp.Float("learning_rate", low, high, sampling="log"),
            "weight_decay": hp.Float("weight_decay", least, most, sampling="log"),
        }
    )


def main() -> None:
    """Run the sweep and print its outcome."""
    job = Job.from_arguments()
    clock = Clock()
    import keras_tuner

    tuner = keras_tuner.Hyperband(
        build,
        objective="val_accuracy",
        max_epochs=job.max_epochs,
        factor=3,
        seed=job.seed,
        directory=str(job.folder),
        project_name="bench",
    )
    (x, y), validation = load_rows()
    tuner.search(x, y, batch_size=BATCH_SIZE, validation_data=validation, verbose=0)
    wall_s = clock.elapsed_s()
    values = [trial.hyperparameters.values for trial in tuner.oracle.trials.values()]
    SweepOutcome(
        wall_s=wall_s,
        num_trials=len(values),
        num_epochs=sum(each["tuner/epochs"] - each["tuner/initial_epoch"] for each in values),
        best_val_accuracy=tuner.oracle.get_best_trials(1)[0].score,
    ).print()


if __name__ == "__main__":
    main()
