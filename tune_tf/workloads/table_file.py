"""Reader of CSV and Parquet files."""

import csv
import gzip
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tune_tf.errors import WorkloadError

if TYPE_CHECKING:
    import pandas as pd

_PARQUET = (".parquet", ".pq")
_TABS = (".tsv", ".tab")


def read_table(path: Path, separator: str | None = None) -> "pd.DataFrame":
    """Return the table in a Parquet (``.parquet``, ``.pq``) or text file with a header line.

    Text is tab-separated in ``.tsv`` and ``.tab`` files, otherwise comma-separated, unless a
    separator is given; it may be gzipped (``.gz``).

    Raises:
        WorkloadError: The file cannot be read, has no rows, or a line has more or fewer values than
            the header.
    """
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if any(suffix in _PARQUET for suffix in suffixes[-1:]):
        table = _parquet(path)
    else:
        is_tabs = any(suffix in _TABS for suffix in suffixes)
        table = _text(path, separator or ("\t" if is_tabs else ","))
    if not len(table):
        raise WorkloadError(f"{path} has a header but no rows")
    return table


def _parquet(path: Path) -> "pd.DataFrame":
    import pandas as pd

    try:
        return pd.read_parquet(path)
    except Exception as error:
        raise WorkloadError(f"{path} cannot be read as Parquet: {error}") from error


def _text(path: Path, separator: str) -> "pd.DataFrame":
    import pandas as pd

    try:
        with warnings.catch_warnings():
            # If all lines are longer than the header, pandas only warns and drops their ends.
            warnings.simplefilter("error", pd.errors.ParserWarning)
            table = pd.read_csv(path, sep=separator, index_col=False, low_memory=False)
    except (pd.errors.ParserError, pd.errors.ParserWarning) as error:
        reason = _ragged(path, separator) or str(error)
        raise WorkloadError(f"{path} cannot be read as CSV: {reason}") from error
    except Exception as error:
        raise WorkloadError(f"{path} cannot be read as CSV: {error}") from error
    # pandas silently pads a short line, so that its last column is empty.
    if table.iloc[:, -1].isna().any() and (ragged := _ragged(path, separator)):
        raise WorkloadError(f"{path}: {ragged}")
    return table


def _ragged(path: Path, separator: str) -> str | None:
    """Return an error for the first line unlike the header in length; None if there is none."""
    opened: Any = gzip.open if path.suffix.lower() == ".gz" else open
    with opened(path, "rt", newline="", encoding="utf-8") as file:
        reader = csv.reader(file, delimiter=separator)
        header = next(reader, [])
        for values in reader:
            if values and len(values) != len(header):
                return (
                    f"line {reader.line_num} has {len(values)} value(s) but the header has "
                    f"{len(header)}: fix the line, or set another separator"
                )
    return None
