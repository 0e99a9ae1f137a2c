"""Four fake GPUs and trials that reserve some of them; prints what each was given.

A process of its own: the tests' process is connected to another Ray cluster.
"""

import json
import os
import sys
import tempfile
from pathlib import Path
from unittest.mock import patch

import ray
from ray import tune

from tune_tf import Mirrored, TrialResources, trainable
from tune_tf.workloads.digits import DigitsMLP

NUM_TRIALS = 3


@ray.remote(num_cpus=0)
class Gathering:
    """Lets nobody go on before all are there."""

    def __init__(self):
        import asyncio

        self._all = asyncio.Event()
        self._num = 0

    async def arrive(self):
        self._num += 1
        if self._num == NUM_TRIALS:
            self._all.set()
        await self._all.wait()


class Probe(tune.Trainable):
    """Claims its devices as a trial does, where TensorFlow sees as many GPUs as Ray says."""

    def setup(self, config):
        import tensorflow as tf

        from tune_tf.training.devices import claim_devices

        reserved = self.trial_resources.required_resources
        self._gpus = int(reserved.get("GPU", 0))
        cards = os.environ.get("CUDA_VISIBLE_DEVICES", "0,1,2,3")  # Ray leaves it unset for none
        visible = [f"gpu{card}" for card in cards.split(",")]
        with (
            patch.object(tf.config, "list_physical_devices", return_value=visible),
            patch.object(tf.config.experimental, "set_memory_growth") as grown,
            patch.object(tf.config, "set_visible_devices") as shown,
        ):
            resources = TrialResources(cpus=1, gpus=self._gpus)
            self._names = claim_devices(resources, self._gpus or 1).names
        self._grown = [call.args[0] for call in grown.call_args_list]
        self._hides_all = [call.args for call in shown.call_args_list] == [([], "GPU")]
        ray.get(config["gathering"].arrive.remote())

    def step(self):
        told = {"gpus": self._gpus, "names": self._names, "grown": self._grown}
        told["hides_all"] = self._hides_all
        Path(self.config["folder"], f"{os.getpid()}.json").write_text(json.dumps(told))
        return {"done": True}


def main():
    ray.init(
        address="local",
        num_cpus=NUM_TRIALS,
        num_gpus=4,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
    )
    folder = tempfile.mkdtemp()
    trials_of = {
        gpus: trainable(DigitsMLP, Mirrored(gpus or 1), resources=TrialResources(cpus=1, gpus=gpus))
        for gpus in (0, 2)
    }
    tune.run(
        tune.with_resources(
            Probe, lambda config: trials_of[config["gpus"]].default_resource_request(config)
        ),
        config={
            "gpus": tune.grid_search([2, 2, 0]),
            "gathering": Gathering.remote(),
            "folder": folder,
        },
        storage_path=tempfile.mkdtemp(),
        verbose=0,
    )
    told = [json.loads(path.read_text()) for path in Path(folder).iterdir()]
    ray.shutdown()
    sys.stdout.write("\n" + json.dumps(sorted(told, key=lambda each: each["grown"])) + "\n")


if __name__ == "__main__":
    main()
