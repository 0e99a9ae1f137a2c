"""The most memory that processes of a trial have had."""

import os

import pytest

from tune_tf.result_keys import PEAK_MEMORY
from tune_tf.training.system_metrics import peak_memory_bytes, peak_memory_result, sum_peak_memory

pytestmark = pytest.mark.tf


def test_a_process_tells_its_own_peak():
    told = peak_memory_result()[PEAK_MEMORY]
    assert told > 0
    assert peak_memory_bytes(os.getpid()) >= told


def test_a_process_that_is_gone_tells_nothing():
    assert peak_memory_bytes(2**22 + 1) is None


def test_the_peaks_of_all_processes_are_added():
    told = [{PEAK_MEMORY: 1.0, "perf/rows_per_s": 0.5}, {PEAK_MEMORY: 2.0}]
    assert sum_peak_memory(told[0], told) == {PEAK_MEMORY: 3.0, "perf/rows_per_s": 0.5}


def test_total_peak_memory_is_unknown_if_a_process_has_not_reported():
    told = {PEAK_MEMORY: 1.0, "perf/rows_per_s": 0.5}
    assert sum_peak_memory(told, [told, {}]) == {"perf/rows_per_s": 0.5}
