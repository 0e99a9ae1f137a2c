"""Files of tables: reading, and guesses of separator, decimal mark and encoding."""

import codecs
import csv
import gzip
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

from tune_tf.errors import WorkloadError
from tune_tf.formatting import counted

if TYPE_CHECKING:
    import pandas as pd

_PARQUET_SUFFIXES = (".parquet", ".pq")
_TAB_SUFFIXES = (".tsv", ".tab")
TABLE_SUFFIXES = (".csv", *_TAB_SUFFIXES, *_PARQUET_SUFFIXES)

DecimalMark = Literal[".", ","]
"""Character before the fraction of a number; the other one may group thousands."""

_SEPARATORS = (",", ";", "\t", "|")
_NUM_LINES = 1000  # from which separator and decimal mark are guessed
_BOMS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_ENCODINGS = ("utf-8", "cp1252")

_GROUPS = r"[1-9]\d{0,2}(%s\d{3})+"
_NUMBERS = {
    mark: re.compile(
        rf"\s*[+-]?(\d+{re.escape(mark)}?\d*|{re.escape(mark)}\d+"
        rf"|{_GROUPS % other}({re.escape(mark)}\d+)?)([eE][+-]?\d+)?\s*"
    )
    for mark, other in ((".", ","), (",", r"\."))
}
"""Numbers by decimal mark, with thousands in groups or not."""


@dataclass(frozen=True)
class TextFormat:
    """Format of a text file with a table; None is guessed from the file."""

    separator: str | None = None
    decimal: DecimalMark | None = None
    encoding: str | None = None

    def __str__(self) -> str:
        """Return the lines under ``data`` that set it."""
        return (
            f'separator: "{self.separator}", decimal: "{self.decimal}", encoding: {self.encoding}'
        )

    def is_usual(self, path: Path) -> bool:
        """Return whether the format is that of most files of this name."""
        return self == TextFormat("\t" if _is_tab_separated(path) else ",", ".", "utf-8")


def read_table(path: Path, text_format: TextFormat | None = None) -> "pd.DataFrame":
    """Return the table in a Parquet (``.parquet``, ``.pq``) or text file with a header line.

    A text file may be gzipped (``.gz``). What its format leaves open is guessed.

    Raises:
        WorkloadError: The file cannot be read, has no rows, or a line has more or fewer values than
            the header; or the format is ambiguous.
    """
    used = complete_format(path, text_format or TextFormat())
    table = _parquet_table(path) if used is None else _text_table(path, used)
    if not len(table):
        raise WorkloadError(f"{path} has a header but no rows")
    return table


def _is_tab_separated(path: Path) -> bool:
    return any(suffix.lower() in _TAB_SUFFIXES for suffix in path.suffixes)


def _parquet_table(path: Path) -> "pd.DataFrame":
    import pandas as pd

    try:
        table = pd.read_parquet(path)
    except Exception as error:
        raise WorkloadError(f"{path} cannot be read as Parquet: {error}") from error
    table.columns = [str(name) for name in table.columns]
    return table


def _open(path: Path, mode: str, encoding: str | None = None) -> IO[Any]:
    open_file: Any = gzip.open if path.suffix.lower() == ".gz" else open
    newline = "" if encoding else None
    file: IO[Any] = open_file(path, mode, encoding=encoding, newline=newline)
    return file


def complete_format(path: Path, given: TextFormat) -> TextFormat | None:
    """Return the format of a text file, guessed where it is not given; None for Parquet.

    Raises:
        WorkloadError: The file cannot be read, or its format is ambiguous.
    """
    if path.suffix.lower() in _PARQUET_SUFFIXES:
        return None
    try:
        used = replace(given, encoding=given.encoding or _encoding_of(path))
        used = replace(used, separator=given.separator or _separator_of(path, used))
        return replace(used, decimal=given.decimal or _decimal_of(path, used))
    except (OSError, EOFError, csv.Error, UnicodeError, LookupError) as error:
        raise WorkloadError(f"{path} cannot be read as CSV: {error}") from error


def _encoding_of(path: Path) -> str:
    """Return the encoding that a byte order mark tells, or else the first that fits all bytes."""
    with _open(path, "rb") as file:
        start = file.read(4096)
    for bom, encoding in _BOMS.items():
        if start.startswith(bom):
            return encoding
    if b"\0" not in start:
        for encoding in _ENCODINGS:
            try:
                with _open(path, "rt", encoding) as text:
                    for _ in iter(lambda: text.read(1 << 20), ""):
                        pass
            except UnicodeDecodeError:
                continue
            return encoding
    raise WorkloadError(
        f"{path} is text neither in UTF-8 nor in Windows' Western encoding: write its encoding "
        "under data (init: --encoding), such as encoding: utf-16-le"
    )


def _rows(path: Path, used: TextFormat) -> Iterator[list[str]]:
    with _open(path, "rt", used.encoding) as file:
        reader = csv.reader(file, delimiter=used.separator or ",")
        yield from (values for values in reader if values)


def _separator_of(path: Path, used: TextFormat) -> str:
    """Return the separator of the header, or of all lines if there are several in the header."""
    default = "\t" if _is_tab_separated(path) else ","
    with_header = [
        separator
        for separator in _SEPARATORS
        if len(next(_rows(path, replace(used, separator=separator)), [])) > 1
    ]
    if len(with_header) < 2:
        return with_header[0] if with_header else default
    fitting = []
    for separator in with_header:
        lines = islice(_rows(path, replace(used, separator=separator)), _NUM_LINES)
        if len({len(values) for values in lines}) == 1:
            fitting.append(separator)
    if len(fitting) == 1:
        return fitting[0]
    names = " or ".join(f"'{separator}'" for separator in fitting or with_header)
    raise WorkloadError(
        f"{path}: its values may be separated by {names}: write the separator under data (init: "
        f'--separator), such as separator: "{(fitting or with_header)[0]}"'
    )


def _decimal_of(path: Path, used: TextFormat) -> DecimalMark:
    """Return the decimal mark that the numbers of some columns have, and none contradicts."""
    rows = _rows(path, used)
    header = next(rows, [])
    found: dict[str, str] = {}
    unclear = None
    for name, values in zip(
        header, zip(*_same_length(rows, len(header)), strict=False), strict=False
    ):
        texts = [value for value in values if value.strip()]
        fitting = [mark for mark, number in _NUMBERS.items() if all(map(number.fullmatch, texts))]
        example = next((text for text in texts if "," in text), None)
        if len(fitting) == 2 and example:
            unclear = f"column {name!r} holds {example!r}"
        if len(fitting) == 1 and (example or any("." in text for text in texts)):
            found.setdefault(fitting[0], name)
    if len(found) == 2:
        unclear = " and ".join(
            f"{name!r} holds '{mark}' before fractions" for mark, name in found.items()
        )
    if len(found) == 1:
        return "," if "," in found else "."
    if unclear:
        raise WorkloadError(
            f"{path}: its decimal mark is unclear: {unclear}: write it under data (init: "
            '--decimal), decimal: "," or decimal: "."'
        )
    return "."


def _same_length(rows: Iterator[list[str]], length: int) -> Iterator[list[str]]:
    return (values for values in islice(rows, _NUM_LINES) if len(values) == length)


def _text_table(path: Path, used: TextFormat) -> "pd.DataFrame":
    import pandas as pd

    try:
        with warnings.catch_warnings():
            # If all lines are longer than the header, pandas only warns and drops their ends.
            warnings.simplefilter("error", pd.errors.ParserWarning)
            table = pd.read_csv(
                path,
                sep=used.separator,
                decimal=used.decimal or ".",
                encoding=used.encoding,
                index_col=False,
                low_memory=False,
            )
    except (pd.errors.ParserError, pd.errors.ParserWarning) as error:
        text = _line_error(path, used) or str(error)
        raise WorkloadError(f"{path} cannot be read as CSV: {text}") from error
    except Exception as error:
        raise WorkloadError(f"{path} cannot be read as CSV: {error}") from error
    # pandas silently pads a short line, so that its last column is empty.
    if table.iloc[:, -1].isna().any() and (reason := _line_error(path, used)):
        raise WorkloadError(f"{path}: {reason}")
    decimal = used.decimal or "."
    thousands = "," if decimal == "." else "."
    for name in table.columns[[pd.api.types.is_string_dtype(each) for each in table.dtypes]]:
        texts = table[name].dropna()
        # pandas' own `thousands` would take the dots out of dates.
        if len(texts) and texts.map(lambda text: bool(_NUMBERS[decimal].fullmatch(text))).all():
            plain = table[name].str.replace(thousands, "").str.replace(decimal, ".")
            table[name] = pd.to_numeric(plain)
    return table


def _line_error(path: Path, used: TextFormat) -> str | None:
    """Return an error for the first line unlike the header in length; None if there is none."""
    with _open(path, "rt", used.encoding) as file:
        reader = csv.reader(file, delimiter=used.separator or ",")
        header = next(reader, [])
        for values in reader:
            if values and len(values) != len(header):
                return (
                    f"line {reader.line_num} has {len(values)} value(s) but the header has "
                    f"{len(header)}: fix the line, or set another separator"
                )
    return None


def format_notes(path: Path, used: TextFormat | None, given: TextFormat) -> list[str]:
    """Return notes on a guessed format, and on columns with the same name."""
    if used is None:
        return []
    notes = []
    if used != given and not used.is_usual(path):
        notes.append(f"is read with {used}; if that is wrong, write these under data")
    header = next(_rows(path, used))
    if repeated := sorted({name for name in header if name and header.count(name) > 1}):
        notes.append(
            f"has {counted(len(repeated), 'name')} of several columns: {', '.join(repeated)}; the "
            "further ones are called " + ", ".join(f"{name}.1" for name in repeated) + " and so on"
        )
    return notes
