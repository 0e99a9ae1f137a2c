"""Templates of custom workloads."""

from tune_tf.scaffold.draft import Draft, Line

CLASS = "MyWorkload"
"""Class name in the templates."""

_DIGITS = '''\
"""Custom workload: the data and the model of a search. Change both methods."""

import tune_tf
from tune_tf.workloads.head import make_optimizer


class MyWorkload(tune_tf.Workload):
    def load_data(self, config):
        """Return arrays with rows on the first axis; it runs once for all trials of a node."""
        from sklearn.datasets import load_digits  # your own: numpy.load, pandas.read_csv, ...

        x, y = load_digits(return_X_y=True)
        x = (x / 16).astype("float32")
        return tune_tf.Data(
            train=(x[:1200], y[:1200]),
            validation=(x[1200:1500], y[1200:1500]),  # trials are compared by these
            test=(x[1500:], y[1500:]),  # no trial sees these: they are for the final model
        )

    def build_model(self, config):
        """Return a compiled Keras model; config holds a trial's values by name."""
        import keras  # here, so that only trials load TensorFlow

        hidden = keras.layers.Dense(config["width"], activation="relu")
        dropout = keras.layers.Dropout(config["dropout"])
        outputs = keras.layers.Dense(10, activation="softmax")
        model = keras.Sequential([keras.Input((64,)), hidden, dropout, outputs])
        loss = "sparse_categorical_crossentropy"
        model.compile(make_optimizer(config), loss=loss, metrics=["accuracy"])
        return model
'''

_ON_DATA = '''\
"""Custom workload: data as {base} reads them, and a custom model."""

from {module} import {base}


class MyWorkload({base}):
    def build_model(self, config):
        """Return a compiled Keras model; config holds a trial's values by name."""
        model = super().build_model(config)  # the ready model, to start with
        # A custom model takes the same inputs:
{inputs}
        # and returns {outputs}; compile it with
        #   loss={loss},
        #   metrics=["{metric}"]. `import keras` here, so that only trials load TensorFlow.
        return model

    # Other methods to override, documented in tune_tf.Workload: load_data, per_example,
    # train_step, callbacks, shuffle, global_batch_size.
'''


def digits_draft(reference: str) -> Draft:
    """Return the draft for :func:`digits_workload`, whose sweep-file name is ``reference``."""
    return Draft(
        name="my-sweep",
        about="A search on a custom workload.",
        workload=reference,
        data=(),
        task="classification",
        space=(
            Line("width", "{choice: [32, 64, 128]}", "config['width'] in the workload"),
            Line("dropout", "{quniform: [0.0, 0.5, 0.1]}"),
        ),
    )


def digits_workload() -> str:
    """Return the text of a complete workload on scikit-learn's digits."""
    return _DIGITS


def workload_on(draft: Draft) -> str:
    """Return the text of a workload that extends the ready workload of a draft."""
    module, _, base = draft.workload.partition(":")
    is_classes = draft.task == "classification"
    return _ON_DATA.format(
        base=base,
        module=module,
        inputs="\n".join(f"        #   {each}" for each in draft.inputs),
        outputs="logits of shape [rows, classes]" if is_classes else "numbers of shape [rows, 1]",
        loss=(
            "keras.losses.SparseCategoricalCrossentropy(from_logits=True)"
            if is_classes
            else '"mse"'
        ),
        metric="accuracy" if is_classes else "mae",
    )
