"""Search spaces: parameters, conditions, and their YAML, Ray and Optuna forms."""

from tune_tf.space.parameter import Choice, Constant, Float, Int, Parameter
from tune_tf.space.paths import flatten, nest
from tune_tf.space.search_space import SearchSpace

__all__ = [
    "Choice",
    "Constant",
    "Float",
    "Int",
    "Parameter",
    "SearchSpace",
    "flatten",
    "nest",
]
