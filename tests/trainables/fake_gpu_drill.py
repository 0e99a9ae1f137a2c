"""Four fake GPUs and trials that reserve some of them; prints what each was given.

A process of its own: the tests' process is connected to another Ray cluster.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

import ray

sys.path.insert(0, str(Path(__file__).parents[1]))
from fake_gpus import FakeGpus
from ray import cloudpickle, tune

from tune_tf import Mirrored, TrialResources, Workload, trainable

CARDS_MIB = (4096, 4104, 4112, 4120)


@ray.remote(num_cpus=0)
class Gathering:
    """Lets nobody go on before all are there."""

    def __init__(self, num):
        import asyncio

        self._all = asyncio.Event()
        self._missing = num

    async def arrive(self):
        self._missing -= 1
        if not self._missing:
            self._all.set()
        await self._all.wait()


class Nothing(Workload):
    """A workload that is never run."""

    load_data = build_model = None


class Probe(tune.Trainable):
    """Claims its devices as a trial does."""

    def setup(self, config):
        import tensorflow as tf

        from tune_tf.training.devices import claim_devices

        reserved = TrialResources.of_bundle(self.trial_resources.required_resources)
        devices = claim_devices(reserved, max(1, int(reserved.gpus)))
        visible = tf.config.get_visible_devices("GPU")
        limits = [tf.config.get_logical_device_configuration(gpu) for gpu in visible]
        self._told = {
            "gpus": reserved.gpus,
            "type": reserved.accelerator_type,
            "cards": os.environ.get("CUDA_VISIBLE_DEVICES", ""),  # Ray leaves it unset for none
            "names": devices.names,
            "num_visible": len(visible),
            "limits": [logical[0].memory_limit for logical in limits if logical],
            "logical": [each.name for each in tf.config.list_logical_devices()],
        }
        ray.get(config["gathering"].arrive.remote())

    def step(self):
        Path(self.config["folder"], f"{os.getpid()}.json").write_text(json.dumps(self._told))
        return {"done": True}


def claimed(*gpus):
    """Return what trials that run at the same time are given, by the numbers of their GPUs."""
    folder = tempfile.mkdtemp()
    trials_of = {
        num: trainable(
            Nothing,
            Mirrored(int(num) or 1),
            resources=TrialResources(1, num, "H100" if num == 2 else None, {"fast_disk": 0.25}),
        )
        for num in gpus
    }
    tune.run(
        tune.with_resources(
            Probe, lambda config: trials_of[config["gpus"]].default_resource_request(config)
        ),
        config={
            "gpus": tune.grid_search(list(gpus)),
            "gathering": Gathering.remote(len(gpus)),
            "folder": folder,
        },
        storage_path=tempfile.mkdtemp(),
        verbose=0,
    )
    return [json.loads(path.read_text()) for path in Path(folder).iterdir()]


def main():
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    with FakeGpus(*CARDS_MIB) as gpus:
        ray.init(
            address="local",
            num_cpus=4,
            num_gpus=len(CARDS_MIB),
            resources={"accelerator_type:H100": 1, "fast_disk": 1},
            include_dashboard=False,
            log_to_driver=False,
            logging_level="ERROR",
            runtime_env=gpus.runtime_env,
        )
        told = claimed(2, 0, 0.75, 0.75)
        ray.shutdown()
    sys.stdout.write("\n" + json.dumps(told) + "\n")


if __name__ == "__main__":
    main()
