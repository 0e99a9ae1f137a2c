"""What a sweep file says of disk space."""

import pytest
from sweep_files import MINIMAL, error_of

from tune_tf.config import SweepConfig
from tune_tf.formatting import bytes_text


def test_by_default_a_few_checkpoints_and_some_space_are_kept():
    config = SweepConfig.from_dict(MINIMAL)
    assert (config.keep_checkpoints, config.min_free_disk) == (5, 10**9)


@pytest.mark.parametrize(
    ("given", "num_bytes"),
    [
        (0, 0),
        (4096, 4096),
        ("2 GB", 2 * 10**9),
        ("1.5gb", 1_500_000_000),
        ("512 MiB", 512 * 1024**2),
        ("7 kB", 7000),
        ("12", 12),
    ],
)
def test_a_size_is_a_number_of_bytes_or_text_with_a_unit(given, num_bytes):
    assert SweepConfig.from_dict(MINIMAL | {"min_free_disk": given}).min_free_disk == num_bytes


@pytest.mark.parametrize("given", [-1, True, 1.5, "2 Gb of disk", "much", "", None])
def test_what_is_no_size_is_told(given):
    error = error_of({"min_free_disk": given})
    assert error.where == "min_free_disk"
    assert "such as 2 GB" in error.what


@pytest.mark.parametrize("given", [0, -2, True, "best", 2.0, None])
def test_what_is_no_number_of_trials_is_told(given):
    error = error_of({"keep_checkpoints": given})
    assert error.where == "keep_checkpoints"
    assert "at least 1, or all" in error.what


@pytest.mark.parametrize("keep", [3, "all"])
def test_the_settings_are_written_as_they_are_read(keep):
    config = SweepConfig.from_dict(MINIMAL | {"keep_checkpoints": keep, "min_free_disk": "3 MB"})
    again = SweepConfig.from_dict(config.to_dict())
    assert (again.keep_checkpoints, again.min_free_disk) == (keep, 3_000_000)


@pytest.mark.parametrize(
    ("num_bytes", "expected"), [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (2 * 10**9, "2 GB")]
)
def test_a_size_is_told_in_the_largest_unit(num_bytes, expected):
    assert bytes_text(num_bytes) == expected
