"""Search spaces for tests of samplers."""

from tune_tf.space import Choice, Float, Int, SearchSpace

NUMBERS = SearchSpace({"rate": Float(1e-4, 1e-1, log=True), "units": Int(1, 9)})
MIXED = SearchSpace({"rate": Float(0, 1), "units": Int(1, 9), "act": Choice(["relu", None, [1]])})
FINITE = SearchSpace({"rate": Float(0, 1, step=0.25), "units": Int(1, 9), "act": Choice([1, "a"])})
CONDITIONAL = SearchSpace(
    {
        "depth": Int(1, 3),
        "width": Int(8, 64, when={"depth": [2, 3]}),
        "skip": Float(0, 1, step=0.5, when={"width": 8, "depth": 3}),
    }
)
