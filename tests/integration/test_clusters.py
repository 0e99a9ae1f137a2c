"""Sweeps on Ray clusters that others have started, and the templates that start some."""

import os
import signal
import socket
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from string import Template

import pytest
from record_and_mlflow import assert_truth
from ruamel.yaml import YAML
from typer.main import get_command

from tune_tf.cli import app

TEMPLATES = Path(__file__).parents[2] / "docs" / "clusters"
BIN = Path(sys.executable).parent
RAY_JOB = {
    "SWEEP": "digits",
    "IMAGE": "registry.internal/sweeps:1",
    "SWEEP_FILE": "digits.yaml",
    "NUM_WORKERS": "4",
    "CPUS": "8",
    "GPUS": "1",
    "MEMORY": "32Gi",
    "VOLUME_CLAIM": "sweeps",
}
MEETING = """\
import time
from pathlib import Path

import ray
from tune_tf.workloads.digits import DigitsMLP


class Meeting(DigitsMLP):
    def build_model(self, config):
        here = ray.get_runtime_context()
        if here.get_actor_id():
            met = Path({folder!r})
            (met / here.get_node_id()).touch()
            deadline = time.monotonic() + 200
            while len(list(met.iterdir())) < 2:
                assert time.monotonic() < deadline, "no trial runs on the other node"
                time.sleep(0.1)
        return super().build_model(config)
"""


@pytest.fixture
def free_port():
    """Return ports that nobody listens on."""

    def free_port():
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            return listener.getsockname()[1]

    return free_port


def test_the_job_for_kubernetes_runs_the_sweep_file_on_nodes_that_share_image_and_folder():
    text = Template((TEMPLATES / "rayjob.yaml").read_text()).substitute(RAY_JOB)
    job = YAML(typ="safe").load(text)
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    program, verb, *arguments = job["spec"]["entrypoint"].split()
    assert program == "tune-tf"
    with get_command(app).commands[verb].make_context(verb, arguments) as context:
        assert str(context.params["file"]) == "digits.yaml"
        assert list(context.params["overrides"]) == ["cluster.address=auto"]
    cluster = job["spec"]["rayClusterSpec"]
    assert cluster["rayVersion"] == version("ray")
    (workers,) = cluster["workerGroupSpecs"]
    for pod in (each["template"]["spec"] for each in (cluster["headGroupSpec"], workers)):
        (container,) = pod["containers"]
        assert container["image"] == "registry.internal/sweeps:1"
        assert container["volumeMounts"] == [{"name": "sweeps", "mountPath": "/sweeps"}]
        assert pod["volumes"][0]["persistentVolumeClaim"] == {"claimName": "sweeps"}
    assert workers["replicas"] == workers["minReplicas"] == workers["maxReplicas"] == 4


@pytest.mark.cluster
@pytest.mark.mlflow
@pytest.mark.slow
@pytest.mark.alone  # clusters that are started as an administrator does stand in each other's way
def test_the_job_for_slurm_runs_a_sweep_on_all_its_nodes(
    sweep_file, tmp_path, free_port, tmp_path_factory
):
    """Slurm's commands are played: both nodes are this machine."""
    played = tmp_path / "played"
    played.mkdir()
    for name, text in {
        "scontrol": "echo node-1; echo node-2",
        "srun": 'while [[ $1 == -* ]]; do if [ "$1" = -w ]; then shift; fi; shift; done\n'
        'if [ "$1" = hostname ]; then echo 127.0.0.1; else exec "$@"; fi',
    }.items():
        (played / name).write_text(f"#!/usr/bin/env bash\n{text}\n")
        (played / name).chmod(0o755)
    met = tmp_path / "met"
    met.mkdir()
    (tmp_path / "mine.py").write_text(MEETING.format(folder=str(met)))
    job = subprocess.Popen(
        [
            *("bash", TEMPLATES / "slurm.sh", sweep_file),
            *("workload=mine:Meeting", "budget.num_samples=4", "max_concurrent_trials=2"),
            "mlflow.log_best_model=true",
        ],
        cwd=tmp_path,
        env={
            **os.environ,
            "PATH": f"{played}:{BIN}:{os.environ['PATH']}",
            "SLURM_JOB_NODELIST": "node-[1-2]",
            "SLURM_CPUS_PER_TASK": "1",
            "RAY_PORT": str(free_port()),
            "RAY_TMPDIR": str(tmp_path_factory.mktemp("r")),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        out, _ = job.communicate(timeout=400)
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGTERM)
            job.wait(240)
    assert job.returncode == 0, out
    assert "Best trial" in out
    (sweep,) = (tmp_path / "sweeps").glob("tiny-*")
    assert len(assert_truth(sweep)) == 4
    assert len(list(met.iterdir())) == 2  # each node had a trial while the other had one


@pytest.mark.cluster
def test_a_cluster_that_does_not_answer_is_told(finished, sweep_file, tmp_path, free_port):
    address = f"127.0.0.1:{free_port()}"
    code, _, err = finished("run", str(sweep_file), f"cluster.address={address}", cwd=tmp_path)
    assert code == 2
    assert f"no Ray cluster answers at '{address}'" in err
