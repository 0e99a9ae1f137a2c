"""A run that lost tests is red, whatever pytest says."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

RUNNER = Path(__file__).parents[1] / ".ci" / "tests.py"
CONFTEST = """\
import sys

sys.path.insert(0, {here!r})
from complete_run import pytest_addoption, pytest_configure


def pytest_runtest_protocol(item, nextitem):
    if item.name == "test_left_out":
        return True
    if item.name == "test_internal_error":
        raise RuntimeError("inside of pytest")
"""
pytestmark = pytest.mark.slow

PASSES = "def test_passes(): pass\n"
ALONE = "import pytest\n\n@pytest.mark.alone\ndef test_alone(): pass\n"


@pytest.fixture
def ran(tmp_path):
    """Return a function that runs the tests of some files as CI does."""

    def run(**files):
        (tmp_path / "conftest.py").write_text(CONFTEST.format(here=str(Path(__file__).parent)))
        (tmp_path / "pytest.ini").write_text(
            "[pytest]\nmarkers =\n  alone\n  slow\n  long\n  gpu\n"
        )
        for name, text in {"alone": ALONE, **files}.items():
            (tmp_path / f"test_{name}.py").write_text(text)
        plain = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}
        return subprocess.run(
            [sys.executable, str(RUNNER), "--no-skips", "fast", "alone"],
            cwd=tmp_path,
            env=plain,
            capture_output=True,
            text=True,
            timeout=300,
        )

    return run


def test_a_process_that_dies_ends_the_run_with_the_tests_name(ran):
    dies = "import os\n\ndef test_dies(): os.kill(os.getpid(), 9)\n" + PASSES
    done = ran(first=dies, **{f"n{i}": PASSES for i in range(4)})

    assert done.returncode
    assert "crashed while running 'test_first.py::test_dies'" in done.stdout


@pytest.mark.parametrize("name", ["test_left_out", "test_internal_error"])
def test_a_run_that_lost_tests_is_red(ran, name):
    done = ran(first=f"def {name}(): pass\n" + PASSES)

    assert done.returncode
    assert "came to no end: status 3" in done.stderr


@pytest.mark.parametrize(
    "skips",
    [
        "import pytest\npytest.skip('no such package', allow_module_level=True)\n",
        "import pytest\n\ndef test_skips(): pytest.skip('no such package')\n",
    ],
    ids=["a file", "a test"],
)
def test_a_run_with_a_skip_is_red_and_says_why(ran, skips):
    done = ran(first=PASSES, second=skips)

    assert done.returncode
    assert "no such package" in done.stdout
    assert "skipped tests: 1" in done.stderr


def test_a_test_that_passes_when_run_again_is_told(ran, tmp_path):
    once = (
        "from pathlib import Path\n\ndef test_once():\n"
        "    began = Path('began').exists()\n    Path('began').touch()\n    assert began\n"
    )
    done = ran(first=once)

    assert done.returncode == 0, done.stdout
    kept = (tmp_path / "build" / "retries.txt").read_text()
    assert kept == "test_first.py::test_once: passed when run again\n"
