"""Which parameters a trial can change in mid-run."""

from tune_tf.space import Choice, Float, Int, SearchSpace
from tune_tf.training.build import structural_parameters
from tune_tf.workload import Data, Workload
from tune_tf.workloads.digits import DigitsMLP


def test_only_scalars_and_the_batch_size_are_mutable():
    space = SearchSpace(
        {
            "learning_rate": Float(1e-4, 1e-1, log=True),
            "momentum": Float(0.0, 0.9),
            "dropout": Float(0.0, 0.5),
            "batch_size": Choice([32, 64]),
            "width": Int(8, 16),
            "optimizer": Choice(["sgd", "adam"]),
        }
    )
    found = structural_parameters(DigitsMLP(), space, space.parameters)
    assert found.keys() == {"width", "optimizer"}
    assert found["width"] == "models with 8 and 16 have variables of different shapes"


def test_a_parameter_that_others_depend_on_cannot_change():
    space = SearchSpace({"kind": Choice([1, 2]), "width": Int(8, 9, when={"kind": 2})})
    assert structural_parameters(DigitsMLP(), space, ["kind"]) == {
        "kind": "other parameters depend on its value: width"
    }


class Unshaped(Workload):
    """A model that has no shapes before it sees rows."""

    def load_data(self, config):
        import numpy as np

        return Data((np.zeros((4, config["columns"]), "float32"), np.zeros(4, "float32")))

    def build_model(self, config):
        import keras

        model = keras.Sequential([keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(config["learning_rate"]), "mse")
        return model


def test_a_model_without_input_shapes_is_built_by_its_data():
    space = SearchSpace({"columns": Int(2, 3), "learning_rate": Float(0.1, 1.0)})
    assert structural_parameters(Unshaped(), space, space.parameters).keys() == {"columns"}
