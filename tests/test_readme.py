import re
import subprocess
import sys
from pathlib import Path

import pytest

from tune_tf.config import SweepConfig

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"<!-- test: (\w+).*?-->\n```\w+\n(.*?)```", re.DOTALL)
BLOCKS = BLOCK.findall((ROOT / "README.md").read_text())


def blocks(kind: str) -> list[str]:
    return [text for name, text in BLOCKS if name == kind]


def test_every_block_of_code_says_how_it_is_tested():
    assert len(BLOCKS) == len(re.findall(r"^```\w+$", (ROOT / "README.md").read_text(), re.M))


@pytest.mark.ray
@pytest.mark.tf
@pytest.mark.slow
@pytest.mark.parametrize("code", blocks("python"), ids=["tune_run", "own_model"])
def test_the_readmes_python_runs(code, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_a_sweep_by_plain_tune_run_takes_eight_lines():
    lines = [line for line in blocks("python")[0].splitlines() if line.strip()]
    assert len([line for line in lines if not line.startswith(("import", "from"))]) == 8


@pytest.mark.parametrize("text", blocks("sweep"))
def test_the_readmes_sweep_file_is_right(text, tmp_path):
    path = tmp_path / "sweep.yaml"
    path.write_text(text)
    assert SweepConfig.from_yaml(path).parallelism.num_replicas == 2


@pytest.mark.parametrize(
    "path", sorted((ROOT / "search_spaces").glob("*.yaml")), ids=lambda p: p.stem
)
def test_a_ready_sweep_file_is_right(path):
    SweepConfig.from_yaml(path)
