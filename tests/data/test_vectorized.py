import numpy as np
import pytest

from tune_tf.data import vectorized
from tune_tf.errors import WorkloadError

pytestmark = pytest.mark.tf

RNG = np.random.default_rng(0)
IMAGES = RNG.random((5, 6, 6, 3)).astype("float32")
KERNELS = RNG.random((5, 3, 3, 3, 2)).astype("float32")
SEEDS = RNG.integers(0, 99, (5, 2)).astype("int32")


def _resized(image):
    import tensorflow as tf

    return tf.image.resize(image, (3, 3))


def _flipped(image, seed):
    import tensorflow as tf

    return tf.image.stateless_random_flip_left_right(image, seed)


def _convolved(image, kernel):
    import tensorflow as tf

    return tf.nn.conv2d(image[None], kernel, 1, "SAME")[0]


def _described(image):
    import tensorflow as tf

    bright = tf.cond(image[0, 0, 0] > 0.5, lambda: image, lambda: 1 - image)
    return {"mean": tf.reduce_mean(image), "rest": (tf.cast(bright * 9, tf.int32), tf.shape(image))}


CASES = {
    "an operation that TensorFlow loops over": (_resized, (IMAGES,)),
    "one that it loops over without a word": (_convolved, (IMAGES, KERNELS)),
    "numbers drawn by seeds": (_flipped, (IMAGES, SEEDS)),
    "other shapes, types and nesting": (_described, (IMAGES,)),
}


@pytest.mark.parametrize(("fn", "rows"), CASES.values(), ids=CASES.keys())
def test_vectorized_function_equals_a_loop(fn, rows):
    import tensorflow as tf

    mapped = vectorized(fn)
    both = [mapped(*rows), tf.function(mapped, autograph=False)(*rows)]

    by_row = [fn(*(tf.constant(part[i]) for part in rows)) for i in range(5)]
    stacked = tf.nest.map_structure(lambda *each: tf.stack(each), *by_row)
    for found in both:
        tf.nest.assert_same_structure(found, stacked)
        for one, other in zip(tf.nest.flatten(found), tf.nest.flatten(stacked), strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_allclose(one, other, rtol=1e-6)


def test_gradients_flow_through_also_where_it_loops():
    import tensorflow as tf

    rows = tf.constant(IMAGES)
    gradients = []
    for shrunk in (vectorized(lambda row: _resized(row**2)), lambda x: _resized(x**2)):
        with tf.GradientTape() as tape:
            tape.watch(rows)
            total = tf.reduce_sum(shrunk(rows) ** 2)
        gradients.append(tape.gradient(total, rows))
    np.testing.assert_allclose(*gradients, rtol=1e-6)


def test_the_number_of_rows_may_be_known_at_run_time_only():
    import tensorflow as tf

    spec = tf.TensorSpec((None, 6, 6, 3))
    resized = tf.function(vectorized(_resized), input_signature=[spec], autograph=False)
    assert resized(IMAGES).shape == (5, 3, 3, 3)
    assert resized(IMAGES[:1]).shape == (1, 3, 3, 3)


def test_arrays_of_different_lengths_are_refused_and_not_repeated():
    with pytest.raises(WorkloadError, match="the same number of rows, not 1, 5"):
        vectorized(lambda image, seed: image)(IMAGES, SEEDS[:1])
    with pytest.raises(WorkloadError, match="a single number"):
        vectorized(lambda number: number)(1.0)
