import pytest

from tune_tf.sweep.state.snapshots import SnapshotWriter, read_snapshot, snapshot_paths

FILES = {
    "experiment_state-1.json": b"{}" * 400,
    "search_gen_state-1.json": b"a",
    "searcher-state-1.pkl": b"b",
    "callback-states-1.pkl": b"c",
}


def put(snapshots, **more):
    snapshots.put(FILES | {f"{name}": value for name, value in more.items()})
    snapshots.close()


def test_the_last_two_states_are_kept(tmp_path):
    snapshots = SnapshotWriter(tmp_path)
    for content in (b"1", b"2", b"3"):
        snapshots.put(FILES | {"searcher-state-1.pkl": content})
        snapshots.close()
    newest, before = (read_snapshot(path) for path in snapshot_paths(tmp_path))
    assert newest["searcher-state-1.pkl"] == b"3"
    assert before["searcher-state-1.pkl"] == b"2"


@pytest.mark.parametrize("part", [0.0, 0.01, 0.3, 0.6, 0.9, 0.999])
def test_a_state_that_is_cut_anywhere_is_damaged(tmp_path, part):
    put(SnapshotWriter(tmp_path))
    (path,) = snapshot_paths(tmp_path)
    content = path.read_bytes()
    path.write_bytes(content[: int(part * len(content))])
    with pytest.raises(ValueError, match="is damaged"):
        read_snapshot(path)
