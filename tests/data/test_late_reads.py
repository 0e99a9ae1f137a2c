"""Data and attributes that a trial reads after ``load_data`` has returned."""

from setting_workloads import A, B, Process, Sets, setting

from tune_tf.data.node_cache.workload_copies import WorkloadCopies
from tune_tf.workload import Data


def test_methods_run_later_see_what_load_data_set():
    workload = Sets(setting)
    process = Process(workload)
    for config in (A, B):
        process.start(config)
        workload.mean = -1
        workload.other = 5
        copies = WorkloadCopies.of(workload)
        found, changes = copies.run("per_example", lambda copy: (copy.mean, hasattr(copy, "other")))
        assert found == (config["a"] * 10, False)
        assert not changes.values


def test_versions_tell_what_load_data_set():
    process = Process(Sets(setting))
    versions = []
    for config in (A, {**A, "lr": 3}, B, A):
        process.start(config)
        versions.append(WorkloadCopies.of(process.workload).loaded_version)
    assert versions[0] == versions[1] == versions[3] != versions[2]
    process = Process(Sets())
    process.start(A)
    assert WorkloadCopies.of(process.workload).loaded_version == b""


def test_data_that_are_read_later_are_read_of_the_trial_that_uses_them():
    """A generator that closes over config, which a later trial takes up."""

    class Lazy(Sets):
        def load_data(self, config):
            size = config["size"]
            return Data(lambda: [config["late"]] * size)

    process = Process(Lazy())
    rows = {}
    for late in (1, 2, 1, 3):
        config = {"size": 2, "late": late, "lr": late}
        rows[late] = process.cache.get(config).train
        assert rows[late]() == [late, late]
    assert rows[1]() == [1, 1]
    process.cache.get({"size": 2, "late": 3, "lr": 9})
    assert process.num_loads == 3


def test_lazy_data_read_the_config_of_the_trial_that_reads_first():
    class Lazy(Sets):
        def load_data(self, config):
            return Data(lambda: config["late"])

    process = Process(Lazy())
    first = process.cache.get({"late": 1}).train
    second = process.cache.get({"late": 2}).train
    assert second is first
    assert second() == 2
    assert process.cache.get({"late": 1}).train() == 1
