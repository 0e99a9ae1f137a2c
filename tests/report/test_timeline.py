"""Who occupied which slot."""

from itertools import pairwise

from sweeps_on_disk import many_trials, sweep_on_disk

from tune_tf.report.plots.timeline import plot_timeline, slot_bars
from tune_tf.report.report_data import CurveSegment, ReportData


def segment(start, end, pid=1, host="a"):
    return CurveSegment(f"{host}:{pid}", host, start, end)


def test_trials_of_one_process_share_a_slot():
    bars, slots = slot_bars([[segment(0, 5)], [segment(5, 9)]])
    assert [bar.slot for bar in bars] == [0, 0]
    assert slots == ["a slot 1"]


def test_processes_at_a_time_have_slots_of_their_own():
    bars, slots = slot_bars([[segment(0, 5, pid=1)], [segment(0, 9, pid=2)]])
    assert {bar.trial: bar.slot for bar in bars} == {0: 0, 1: 1}
    assert slots == ["a slot 1", "a slot 2"]


def test_a_new_process_takes_the_slot_of_one_that_is_gone():
    bars, slots = slot_bars([[segment(0, 5, pid=1)], [segment(20, 25, pid=2)]])
    assert [bar.slot for bar in bars] == [0, 0]
    assert len(slots) == 1


def test_slots_are_listed_by_node():
    segments = [[segment(0, 5, 1, "b")], [segment(0, 5, 2, "a")], [segment(1, 5, 3, "b")]]
    bars, slots = slot_bars(segments)
    assert slots == ["a slot 1", "b slot 1", "b slot 2"]
    assert {bar.trial: slots[bar.slot] for bar in bars} == {
        0: "b slot 1",
        1: "a slot 1",
        2: "b slot 2",
    }


def test_a_trial_that_was_paused_has_a_bar_for_each_segment():
    bars, _ = slot_bars([[segment(0, 5), segment(10, 12)], [segment(5, 10)]])
    assert [(bar.trial, bar.segment.start_s) for bar in bars] == [(0, 0), (1, 5), (0, 10)]


def test_times_rounded_to_seconds_leave_no_overlap_in_a_slot(tmp_path):
    told = many_trials(200)
    for trial in told:
        trial.iteration_s = 0.13
    result = sweep_on_disk(tmp_path, told, scheduler={"name": "asha", "max_t": 27})
    bars, slots = slot_bars([curve.segments for curve in ReportData.of(result).curves])
    assert len(slots) == 8
    by_slot = [
        sorted((bar.segment.start_s, bar.segment.end_s) for bar in bars if bar.slot == slot)
        for slot in range(8)
    ]
    assert all(first[1] <= second[0] for slot in by_slot for first, second in pairwise(slot))


class CountedIndices(list):
    """Indices of trials that count how often they are read from the start."""

    num_reads = 0

    def __iter__(self):
        self.num_reads += 1
        return super().__iter__()


def test_plotting_reads_the_indices_of_an_outcome_once_not_once_per_bar(tmp_path, monkeypatch):
    record = ReportData.of(sweep_on_disk(tmp_path, many_trials(200)))
    groups = [(outcome, CountedIndices(indices)) for outcome, indices in record.groups]
    monkeypatch.setattr(ReportData, "groups", groups)
    plot_timeline(record)

    assert {indices.num_reads for _, indices in groups} == {1}
