"""A reproducible sweep, and what `verify` finds when its folder was changed."""

import json
from pathlib import Path

import pytest

pytestmark = [pytest.mark.cluster, pytest.mark.tf, pytest.mark.slow]


@pytest.mark.usefixtures("ray_cluster")
def test_a_sweep_is_verified_as_a_whole_and_by_trials(verb, sweep_file, tmp_path):
    settings = ("reproducible=true", "mlflow=null", "scheduler.max_t=3", "budget.num_samples=3")
    code, out, err = verb("run", str(sweep_file), "--json", "--set", *settings, cwd=tmp_path)
    assert code == 0, err
    ran = json.loads(out)
    folder, found = Path(ran["path"]), ran["fingerprint"]
    assert found["environment"]["slots"] == "1"
    assert found["reasons"] == []

    code, out, err = verb("verify", "tiny", cwd=tmp_path)
    assert code == 0, err
    identical, rerun = out.splitlines()
    number, digest = found["num_events"], found["digest"]
    assert identical == f"identical: {number} events, fingerprint {digest}"
    assert Path(rerun.removeprefix("rerun: ")).parent == folder.parent

    lines = (folder / "results.jsonl").read_text().splitlines(keepends=True)
    wrong = [line for line in lines if '"position": [2, 0, 1]' in line]
    changed = {**json.loads(wrong[0]), "metrics": {"val_accuracy": 2.0}}
    lines[lines.index(wrong[0])] = json.dumps(changed) + "\n"
    (folder / "results.jsonl").write_text("".join(lines))
    code, out, _ = verb("verify", str(folder), "--trials", "0,2", "--json", cwd=tmp_path)
    assert code == 1
    data = json.loads(out)
    assert data["difference"].startswith("in trial 2, iteration 1: val_accuracy 2.0 and 0.")
    assert any(note.startswith(f"its fingerprint was {digest}") for note in data["notes"])
    assert len(list(folder.parent.glob("tiny-*"))) == 2  # trials leave no folder
