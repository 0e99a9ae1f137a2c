import pytest

from tune_tf.trainables.memory import oom_retries
from tune_tf.trainables.memory.oom_retries import KernelKills, num_kernel_kills

pytestmark = pytest.mark.cluster


@pytest.fixture
def vmstat(tmp_path, monkeypatch):
    """The file in which Linux counts, in place of the real one."""
    path = tmp_path / "vmstat"
    monkeypatch.setattr(oom_retries, "_VMSTAT", path)
    return path


def test_the_kernels_count_is_read(vmstat):
    vmstat.write_text("pgfault 17\noom_kill 3\noom_kill_process 9\n")
    assert num_kernel_kills() == 3


def test_a_system_that_does_not_count_has_none(vmstat):
    assert num_kernel_kills() == 0
    vmstat.write_text("pgfault 17\n")
    assert num_kernel_kills() == 0


def test_a_count_has_risen_once(vmstat, monkeypatch):
    monkeypatch.setattr(oom_retries, "_other_nodes", set)
    vmstat.write_text("oom_kill 3\n")
    kills = KernelKills()
    assert not kills.have_risen()
    vmstat.write_text("oom_kill 4\n")
    assert kills.have_risen()
    assert not kills.have_risen()


def test_a_node_that_did_not_answer_once_has_not_killed(vmstat, monkeypatch):
    counts = iter([None, 5, None, 5, 6])
    monkeypatch.setattr(oom_retries, "_other_nodes", lambda: {"node"})
    monkeypatch.setattr(oom_retries, "_request_count", lambda node_id: node_id)
    monkeypatch.setattr(oom_retries, "_wait_for_count", lambda asked: next(counts))
    kills = KernelKills()
    kills.request_counts()
    assert not kills.have_risen()
    assert not kills.have_risen()
    assert not kills.have_risen()
    assert kills.have_risen()


def test_another_nodes_count_is_compared_with_what_it_was(vmstat, monkeypatch):
    counts = iter([5, 5, 7])
    monkeypatch.setattr(oom_retries, "_other_nodes", lambda: {"node"})
    monkeypatch.setattr(oom_retries, "_request_count", lambda node_id: node_id)
    monkeypatch.setattr(oom_retries, "_wait_for_count", lambda asked: next(counts))
    kills = KernelKills()
    kills.request_counts()
    assert not kills.have_risen()
    assert kills.have_risen()
