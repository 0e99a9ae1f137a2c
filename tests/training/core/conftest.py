"""Keys of the programs that models get."""

import pytest


@pytest.fixture(scope="module")
def key_of(replicas_of):
    """Return a function from a builder to the key of what it builds."""
    import numpy as np
    from trials import Given
    from tune_tf.training.core.program_cache import program_fingerprint

    from tune_tf.training.core.build import build_model
    from tune_tf.training.core.scalars import scalars_of

    def key(build, vouched=None, batch=()):
        workload = Given(build, None, structure=lambda config: vouched)
        model = build_model(workload, {}, replicas_of(1), 1, np.zeros((2, 6), "float32"))
        return program_fingerprint(workload, model, scalars_of(model), {}, batch).key

    return key
