"""Data of trials on several nodes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


def test_trials_on_two_nodes_load_once_a_node():
    drill = Path(__file__).with_name("trials_on_two_nodes_drill.py")
    ran = subprocess.run([sys.executable, drill], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr[-3000:]
    told = json.loads(ran.stdout.splitlines()[-1])

    assert told["statuses"] == ["TERMINATED"] * 4
    assert told["processes"] == 2
    assert (told["loads"], told["nodes"]) == (2, 2)
