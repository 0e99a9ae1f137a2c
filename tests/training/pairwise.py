"""A small table in which any two values of any two factors meet."""

from itertools import combinations, product


def pairwise(factors, allowed=lambda row: True):
    """Return rows, one value a factor each, that hold every allowed pair of values of two factors.

    Each next row is the one with the most pairs that no row had before, so the table is the same
    every time.

    Args:
        factors: Values by name of the factor.
        allowed: Whether a row makes sense.
    """
    names = list(factors)
    every = (dict(zip(names, values, strict=True)) for values in product(*factors.values()))
    rows = [row for row in every if allowed(row)]
    missing = {pair for row in rows for pair in _pairs(row)}
    table = []
    while missing:
        best = max(rows, key=lambda row: len(_pairs(row) & missing))
        table.append(best)
        missing -= _pairs(best)
    return table


def _pairs(row):
    return set(combinations(row.items(), 2))
