"""The pages of the public names, made from their docstrings."""

import re
import subprocess
import sys

import pytest

import tune_tf


@pytest.mark.cluster
@pytest.mark.tf
@pytest.mark.mlflow
@pytest.mark.slow
def test_every_public_name_is_described(tmp_path):
    command = [
        sys.executable,
        "-m",
        "pdoc",
        "--docformat",
        "google",
        "-o",
        str(tmp_path),
        "tune_tf",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "tune_tf.html").read_text()
    sections = dict(re.findall(r'<section id="(\w+)">(.*?)</section>', page, re.DOTALL))
    described = {name for name, text in sections.items() if 'class="docstring"' in text}
    assert set(tune_tf.__all__) - {"__version__"} <= described
