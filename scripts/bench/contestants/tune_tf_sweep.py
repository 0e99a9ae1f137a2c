"""Sweep with tune_tf."""

import ray
from outcome import Clock, Job, SweepOutcome

_WORKLOAD = "tune_tf.workloads.digits:DigitsMLP"


def main() -> None:
    """Run the sweep and print its outcome."""
    job = Job.from_arguments()
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    clock = Clock()
    import tune_tf
    from tune_tf import SweepConfig, run_sweep

    clock.mark("tune_tf imported")
    config = SweepConfig(
        name="bench",
        workload=_WORKLOAD,
        objective={"metric": "val_accuracy", "mode": "max"},
        space={
            "width": {"choice": [32, 64, 128]},
            "learning_rate": {"loguniform": [1e-4, 1e-1]},
            "weight_decay": {"loguniform": [1e-6, 1e-2]},
            "optimizer": "adamw",
            "batch_size": 32,
        },
        seed=job.seed,
        epochs=job.max_epochs,
        scheduler={"name": "asha", "grace_period": 1, "reduction_factor": 3},
        resources=tune_tf.TrialResources(cpus=1),
        budget={"num_samples": job.num_samples},
        mlflow={"tracking_uri": job.tracking_uri, "experiment_name": "bench"},
        storage_path=str(job.folder / "sweeps"),
        max_concurrent_trials=2,
    )
    from sweep_watcher import SweepWatcher

    watch = SweepWatcher(clock)
    result = run_sweep(config, callbacks=[watch])
    SweepOutcome(
        wall_s=clock.elapsed_s(),
        num_trials=len(result.trials),
        num_epochs=sum(trial.iterations for trial in result.trials),
        best_val_accuracy=watch.best_val_accuracy,
        num_processes=len(watch.pids),
        marks_s=clock.marks_s,
    ).print()


if __name__ == "__main__":
    main()
