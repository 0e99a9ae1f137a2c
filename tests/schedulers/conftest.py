import pytest


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    """PBT notes what it did in files beside the trials."""
    monkeypatch.chdir(tmp_path)
