"""The rules of docs/architecture.md that a linter does not know."""

import ast
import graphlib
import io
import re
import tokenize
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "tune_tf"
MODULES = sorted(PACKAGE.rglob("*.py"))

PRIVATE_ACCESS = ("tune_internals/", "training/keras_internals.py", "tracking/mlflow_internals.py")
"""Where private parts of Ray, Keras and MLflow may be used."""

PRIVATE_PACKAGES = ("keras.src", "tensorflow.python", "ray._private", "mlflow.utils")

_JARGON = """
book carried corners crew dealer desk diarist diary errand errands fault faults goals
keeper ladder ladders landscape landscapes mailbox mend mended mends outbox outturn
plainly pretended pulse pulses reckoning rehearsal rehearse rehearsed shown standing stint
stints surroundings survey surveys told verdict vouched witness
"""
JARGON = frozenset(_JARGON.split())
"""Words that only their author knew: see the glossary of docs/architecture.md for their place."""

LARGE = {
    "searchers/optuna_searcher.py:__init__",  # public, and each parameter has a default
    "trainables/factory.py:trainable",  # likewise
}


CEILINGS = {
    "cli": 1255,
    "config": 895,
    "data": 865,
    "inspection": 277,
    "measure": 594,
    "parallelism": 240,
    "record": 864,
    "report": 594,
    "scaffold": 481,
    "schedulers": 1980,
    "searchers": 1717,
    "single modules": 1612,
    "space": 907,
    "sweep": 2587,
    "testing": 300,
    "tracking": 1500,
    "trainables": 1378,
    "training": 5050,
    "tune_internals": 493,
    "workloads": 1100,
}
"""Most lines of code of each folder of the package; lowered as far as they were reached."""

LINES = {"tune_tf": 36719, "tests": 37600, "scripts": 4639}
"""Most lines of any kind."""


@cache
def tree_of(path):
    return ast.parse(path.read_text())


def name_of(path):
    return str(path.relative_to(PACKAGE))


def functions_of(path):
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    return [node for node in ast.walk(tree_of(path)) if isinstance(node, kinds)]


def public_names(path):
    for node in tree_of(path).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names = [node.name]
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [target.id for target in targets if isinstance(target, ast.Name)]
        else:
            continue
        yield from (name for name in names if not name.startswith("_"))


def is_docstring(node):
    return isinstance(node, ast.Expr) and isinstance(getattr(node.value, "value", None), str)


def words_of(identifier):
    parts = re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", identifier)
    return {part.lower() for part in parts}


def test_a_public_name_is_defined_once():
    places = defaultdict(set)
    for path in MODULES:
        for name in public_names(path):
            places[name].add(name_of(path))

    assert {name: sorted(where) for name, where in places.items() if len(where) > 1} == {}


@pytest.mark.parametrize("folder", ["tune_tf", "tests"])
def test_a_folder_holds_at_most_twenty_modules(folder):
    crowded = {
        str(path.relative_to(ROOT)): number
        for path in [ROOT / folder, *(ROOT / folder).rglob("*")]
        if path.is_dir() and (number := len(list(path.glob("[!_]*.py")))) > 20
    }

    assert crowded == {}


def test_a_test_file_has_a_name_of_its_own():
    names = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))

    assert [name for name, number in names.items() if number > 1] == []  # pytest refuses them


def test_no_name_is_jargon():
    found = defaultdict(set)
    for path in MODULES:
        if words_of(path.stem) & JARGON:
            found[name_of(path)].add(path.stem)
        for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
            if token.type == tokenize.NAME and words_of(token.string) & JARGON:
                found[name_of(path)].add(token.string)

    assert dict(found) == {}


def test_private_parts_of_other_libraries_are_used_where_they_may_be():
    found = []
    for path in MODULES:
        if name_of(path).startswith(PRIVATE_ACCESS):
            continue
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.ImportFrom | ast.Import):
                modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                names = [alias.name for alias in node.names]
                private = any(each.startswith(PRIVATE_PACKAGES) for each in [*modules, *names])
                if isinstance(node, ast.ImportFrom) and not (node.module or "").startswith(
                    "tune_tf"
                ):
                    private |= any(name.startswith("_") for name in names)
                if private:
                    found.append(f"{name_of(path)}:{node.lineno}")
            elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "getattr":
                name = getattr(node.args[1], "value", None)
                if isinstance(name, str) and re.match(r"_[a-z]", name):
                    found.append(f"{name_of(path)}:{node.lineno} {name}")

    assert found == []


def imports_of(path, modules):
    """Yield the modules of the package that a module imports as it is loaded."""
    for node in tree_of(path).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tune_tf"):
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in modules else node.module


def test_no_modules_import_each_other_in_a_circle():
    modules = {}
    for path in MODULES:
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        modules[name.removesuffix(".__init__")] = path
    graph = {
        name: {*imports_of(path, modules)} & {*modules} - {name} for name, path in modules.items()
    }

    tuple(graphlib.TopologicalSorter(graph).static_order())  # raises CycleError


def test_a_function_fits_a_screen():
    found = []
    for path in MODULES:
        for node in functions_of(path):
            first = node.body[1:2] if is_docstring(node.body[0]) else node.body[:1]
            lines = node.end_lineno - first[0].lineno + 1 if first else 0
            if lines > 60:
                found.append(f"{name_of(path)}:{node.name} has {lines} lines")

    assert found == []


def test_a_signature_has_at_most_nine_parameters():
    found = []
    for path in MODULES:
        for node in functions_of(path):
            parameters = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            named = [each for each in parameters if each.arg not in ("self", "cls")]
            if len(named) > 9:
                found.append(f"{name_of(path)}:{node.name}")

    assert sorted(found) == sorted(LARGE)


def lines_of_code(path):
    """Return the number of lines that are neither blank nor comment nor documentation."""
    documented = {
        line
        for node in ast.walk(tree_of(path))
        if is_docstring(node)
        for line in range(node.lineno, node.end_lineno + 1)
    }
    nothing = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    tokens = tokenize.generate_tokens(io.StringIO(path.read_text()).readline)
    code = {
        line
        for token in tokens
        if token.type not in {*nothing, tokenize.ENDMARKER}
        for line in range(token.start[0], token.end[0] + 1)
    }
    return len(code - documented)


def test_no_folder_grows():
    sizes = Counter()
    for path in MODULES:
        folder = path.relative_to(PACKAGE).parts[0] if path.parent != PACKAGE else "single modules"
        sizes[folder] += lines_of_code(path)

    assert {name: size for name, size in sizes.items() if size > CEILINGS.get(name, 0)} == {}
    assert sizes.keys() == CEILINGS.keys()


def test_there_are_no_more_lines_than_there_were():
    lines = {
        folder: sum(len(path.read_text().splitlines()) for path in (ROOT / folder).rglob("*.py"))
        for folder in LINES
    }

    assert {folder: number for folder, number in lines.items() if number > LINES[folder]} == {}
