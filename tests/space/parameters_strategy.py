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
choices = options.map(Choice)
searched = st.one_of(floats, ints, choices)
parameters = st.one_of(searched, plain.map(Constant))
names = st.sampled_from(["a", "b", "c", "d"])


def groups(entries):
    """Return a strategy for nested groups of entries."""
    return st.dictionaries(
        names, st.one_of(entries, st.dictionaries(names, entries, min_size=1)), min_size=1
    )


spaces = groups(parameters).map(SearchSpace)


@st.composite
def conditional_spaces(draw):
    """A space of which some parameters hang on the choice of an optimizer."""
    parent = Choice(["adam", "sgd", "rmsprop"])
    entries = draw(st.dictionaries(names, searched, min_size=1))
    when = {"optimizer": draw(st.sampled_from(["sgd", ["adam", "sgd"]]))}
    hung = {name: type(it)(**{**vars(it), "when": when}) for name, it in entries.items()}
    return SearchSpace({"group": hung, "optimizer": parent, "always": draw(searched)})


@st.composite
def deep_spaces(draw):
    """A space of nested groups in which parameters of every kind hang on one another in chains."""
    paths = draw(st.lists(_deep_paths, min_size=1, max_size=8, unique=True))
    chosen = [path for path in paths if not any(other.startswith(f"{path}/") for other in paths)]
    entries = {}
    for path in chosen:
        parameter = draw(parameters)
        when = (
            {
                parent: draw(_allowed(entries[parent]))
                for parent in draw(
                    st.lists(st.sampled_from(sorted(entries)), max_size=2, unique=True)
                )
            }
            if entries
            else {}
        )
        entries[path] = type(parameter)(**{**vars(parameter), "when": when or None})
    shuffled = draw(st.permutations(list(entries)))
    return SearchSpace({path: entries[path] for path in shuffled})


_deep_paths = st.lists(names, min_size=1, max_size=3).map("/".join)


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
