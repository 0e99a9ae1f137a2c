"""Sweeps of Ray Tune whose trials are paused and taken up, with what each of them did."""

import json
from pathlib import Path

from tune_tf.space import Float, SearchSpace

NUM_SAMPLES, NUM_CONCURRENT, MAX_T = 12, 2, 9
STATES = {"completed": "COMPLETE", "pruned": "PRUNED"}
SPACE = SearchSpace({"x": Float(0.0, 1.0)})


def counting(folder):
    """Return a trainable that writes down each iteration, and goes on from its checkpoint only."""
    from ray import tune

    class Counting(tune.Trainable):
        def setup(self, config):
            self.count, self.x = 0, config["x"]

        def step(self):
            self.count += 1
            with Path(folder, "iterations.jsonl").open("a") as file:
                file.write(json.dumps([self.trial_id, self.count]) + "\n")
            return {"loss": self.x + 1 / self.count}

        def save_checkpoint(self, checkpoint_dir):
            return {"count": self.count, "x": self.x}

        def load_checkpoint(self, checkpoint):
            if checkpoint["x"] != self.x or checkpoint["count"] != self.iteration:
                raise ValueError(f"{checkpoint} is not of iteration {self.iteration}, x {self.x}")
            self.count = checkpoint["count"]
            with Path(folder, "taken_up.txt").open("a") as file:
                file.write(f"{self.trial_id} at {self.count}\n")

        def reset_config(self, new_config):
            self.setup(new_config)
            return True

    return Counting


def sweep(folder, scheduler, **options):
    """Run a sweep; return Tune's trials, Optuna's trials by Tune's id and the iterations done."""
    from optuna.samplers import RandomSampler
    from ray import tune
    from slots import LOSS

    from tune_tf.searchers import OptunaSearcher

    class Watch(tune.Callback):
        most_at_a_time = 0

        def on_step_end(self, iteration, trials, **info):
            active = sum(trial.status == "RUNNING" and not trial.is_saving for trial in trials)
            self.most_at_a_time = max(self.most_at_a_time, active)

    watch = Watch()
    searcher = OptunaSearcher(SPACE, LOSS, RandomSampler(9))  # the best trial is the first
    given = {
        "reuse_actors": True,
        "max_concurrent_trials": NUM_CONCURRENT,
        "num_samples": NUM_SAMPLES,
    }
    analysis = tune.run(
        counting(folder),
        search_alg=searcher,
        scheduler=scheduler,
        storage_path=str(folder),
        checkpoint_config=tune.CheckpointConfig(num_to_keep=2),
        callbacks=[watch],
        raise_on_failed_trial=False,
        verbose=0,
        **(given | options),
    )
    told = {trial.user_attrs["tune_trial_id"]: trial for trial in searcher.study.trials}
    lines = Path(folder, "iterations.jsonl").read_text().splitlines()
    return analysis.trials, told, [tuple(json.loads(line)) for line in lines], watch
