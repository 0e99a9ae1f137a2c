"""Hypothesis strategies for parameters and spaces."""

from hypothesis import strategies as st

from tune_tf.space import Choice, Constant, Float, Int, SearchSpace

finite = st.floats(-1e6, 1e6)
positive = st.floats(1e-6, 1e6)


def _ends(ends):
    return st.tuples(ends, ends).map(sorted)


floats = st.one_of(
    _ends(finite).map(lambda ends: Float(*ends)),
    _ends(positive).map(lambda ends: Float(*ends, log=True)),
    st.tuples(st.integers(-8, 8), st.integers(0, 20), st.sampled_from([0.25, 0.1, 2.0])).map(
        lambda it: Float(it[0] * it[2], (it[0] + it[1]) * it[2], step=it[2])
    ),
)
ints = st.one_of(
    _ends(st.integers(-1000, 1000)).map(lambda ends: Int(*ends)),
    _ends(st.integers(1, 1000)).map(lambda ends: Int(*ends, log=True)),
    st.tuples(st.integers(-8, 8), st.integers(0, 20), st.integers(2, 5)).map(
        lambda it: Int(it[0] * it[2], (it[0] + it[1]) * it[2], step=it[2])
    ),
)
plain = st.one_of(st.none(), st.booleans(), st.integers(-9, 9), finite, st.text("abc", max_size=3))
options = st.lists(st.one_of(plain, st.lists(st.integers(0, 3), max_size=2)), min_size=1).map(
    lambda values: [value for i, value in enumerate(values) if value not in values[:i]]
)
parameters = st.one_of(floats, ints, options.map(Choice), plain.map(Constant))
_paths = st.lists(st.sampled_from(["a", "b", "c", "d"]), min_size=1, max_size=3).map("/".join)


@st.composite
def spaces(draw):
    """A space of nested groups, in which parameters may hang on one another in chains."""
    paths = draw(st.lists(_paths, min_size=1, max_size=8, unique=True))
    chosen = [path for path in paths if not any(other.startswith(f"{path}/") for other in paths)]
    entries = {}
    for path in chosen:
        parameter = draw(parameters)
        when = {}
        if entries:
            parents = st.lists(st.sampled_from(sorted(entries)), max_size=2, unique=True)
            when = {parent: draw(_allowed(entries[parent])) for parent in draw(parents)}
        entries[path] = type(parameter)(**{**vars(parameter), "when": when or None})
    shuffled = draw(st.permutations(list(entries)))
    return SearchSpace({path: entries[path] for path in shuffled})


def _allowed(parent):
    """Return a strategy for the values of a parent under which another parameter is active."""
    match parent:
        case Choice(options):
            return st.lists(st.sampled_from(options), min_size=1, max_size=2)
        case Constant(value):
            return st.just([value])
        case Float(low, high, step=float(step)):
            values = [low + index * step for index in range(parent.num_steps)]
            return st.lists(st.sampled_from([*values, high]), min_size=1, max_size=3)
        case Float(low, high) | Int(low, high):
            return st.sampled_from([[low], [high], [low, high]])
