"""Measurements as the tests of this folder make them."""

from tune_tf.estimate.planning.measure_trials import TrialTiming
from tune_tf.estimate.planning.model_profiles import ModelProfile, ModelProfiles
from tune_tf.space import SearchSpace

SPACE = SearchSpace.from_dict(
    {
        "width": {"choice": [16, 64]},
        "dropout": {"quniform": [0.0, 0.5, 0.1]},
        "learning_rate": {"loguniform": [1e-4, 1.0]},
    }
)
EPOCHS_S = {64: 0.4, 16: 0.1}
"""Seconds of an epoch, by width."""


def profile_of(width):
    """Return a model."""
    return ModelProfile(
        config={"width": width, "dropout": 0.0, "learning_rate": 0.01},
        num_parameters=100 * width,
        state_bytes=1200 * width,
        work=100.0 * width,
        activation_bytes=4.0 * width,
        batch_size=32,
        key=str(width),
    )


PROFILES = (profile_of(64), profile_of(16))
"""The largest and the smallest one."""


def timings_of(profiles, epochs_s=None, *, first_start_s=8.0, start_s=0.2):
    """Return what came of models in two slots, each of which began with another one."""
    seconds = [(epochs_s or EPOCHS_S)[each.config["width"]] for each in profiles]
    return tuple(
        tuple(
            TrialTiming(
                first_start_s if index == place % len(profiles) else start_s,
                seconds[index] + 1.5,
                (seconds[index],) * 3,
                0.05,
                each.state_bytes + 500,
            )
            for place in range(2)
        )
        for index, each in enumerate(profiles)
    )


def profiles_of(trained=PROFILES, **how):
    """Return a space that holds no other models."""
    given = {
        "smallest": trained[-1],
        "largest": trained[0],
        "random": tuple(trained),
        "structural": {"width": "value", "dropout": "lowest"},
        "shares": True,
    }
    return ModelProfiles(**given | how)
