"""What the tests of this folder share."""

import pytest


@pytest.fixture
def sweep(tmp_path):
    """Return a function that writes a sweep file."""

    def write(text):
        path = tmp_path / "sweep.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write
