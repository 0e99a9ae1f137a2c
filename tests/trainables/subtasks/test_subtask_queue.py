"""Which device trains which subtask next, in virtual time."""

import heapq
import itertools

import pytest

from tune_tf.trainables.subtasks.queue import LAG, SubtaskEpoch, SubtaskQueue


class Simulation:
    """Devices that train what a queue gives them, with a clock that jumps.

    Args:
        durations: Seconds of an epoch, by subtask.
        num_devices: Devices.
        last: By subtask, the epoch with which it ends by itself; None for never.
        move_s: Seconds that a move costs the device that takes a subtask over.
    """

    def __init__(self, durations, num_devices, last=None, move_s=0.0):
        self.queue = SubtaskQueue(len(durations), num_devices)
        self.durations, self.last, self.move_s = durations, last or {}, move_s
        self.now, self.idle_s = 0.0, [0.0] * num_devices
        self.lines = [[] for _ in range(num_devices)]
        self.free_at = [0.0] * num_devices
        self.reported_at, self.moves = [], []
        self._done = [0] * len(durations)
        self._events, self._number = [], itertools.count()

    def run(self, num_iterations):
        self._dispatch()
        while self.queue.reported < num_iterations:
            self.now, _, device, unit = heapq.heappop(self._events)
            self.lines[device].remove(unit)
            if unit.epoch > self.last.get(unit.subtask, unit.epoch):
                continue  # the subtask had ended meanwhile
            self._done[unit.subtask] = unit.epoch
            ended = self.last.get(unit.subtask) == unit.epoch
            self.queue.complete(unit.subtask, ended=ended)
            while (
                all(
                    done > self.queue.reported or self.last.get(i) == done
                    for i, done in enumerate(self._done)
                )
                and self.queue.reported < num_iterations
            ):
                self.queue.reported += 1
                self.reported_at.append(self.now)
            self._dispatch(device)
        return self

    def _dispatch(self, first=0):
        devices = sorted(range(len(self.lines)), key=lambda device: device != first)
        for device in devices * 2:
            unit = self.queue.assign(device)
            if unit is None:
                continue
            if unit.source is not None:
                self.moves.append(unit)
            start = max(self.now, self.free_at[device])
            self.idle_s[device] += start - self.free_at[device]
            cost = self.move_s if unit.source is not None else 0
            self.free_at[device] = start + self.durations[unit.subtask] + cost
            self.lines[device].append(unit)
            event = (self.free_at[device], next(self._number), device, unit)
            heapq.heappush(self._events, event)


def best_packing(durations, num_devices):
    return min(
        max(
            sum(d for d, at in zip(durations, places, strict=True) if at == k)
            for k in range(num_devices)
        )
        for places in itertools.product(range(num_devices), repeat=len(durations))
    )


def test_the_least_advanced_subtask_comes_first():
    queue = SubtaskQueue(2, 1)
    units = []
    for queue.reported in (0, 0, 1, 1):
        units.append(queue.assign(0))
        queue.complete(units[-1].subtask)

    assert [(unit.subtask, unit.epoch) for unit in units] == [(0, 1), (1, 1), (0, 2), (1, 2)]


def test_a_device_is_told_when_a_subtask_is_new_to_it():
    queue = SubtaskQueue(1, 1)
    first = queue.assign(0)
    queue.complete(0)
    queue.reported = 1

    assert first == SubtaskEpoch(0, 1, begins=True)
    assert queue.assign(0) == SubtaskEpoch(0, 2)


def test_devices_begin_with_what_they_had_in_an_earlier_trial():
    queue = SubtaskQueue(4, 2, preferred=(1, 1, 0, 0))

    assert [queue.assign(0).subtask, queue.assign(1).subtask] == [2, 0]


def test_a_subtask_is_taken_over_only_when_far_behind():
    queue = SubtaskQueue(3, 2)
    assert [queue.assign(device).subtask for device in (0, 1)] == [0, 1]
    queue.complete(0)
    assert queue.assign(0).subtask == 2  # which it trains for long
    epochs = []
    for _ in range(3):
        queue.complete(1)
        unit = queue.assign(1)
        epochs.append((unit.subtask, unit.epoch, unit.source))

    assert epochs == [(1, 2, None), (1, 3, None), (0, 2, 0)]
    assert epochs[-1][1] - 1 + LAG == epochs[-2][1]


def test_a_subtask_in_training_is_not_taken_over():
    queue = SubtaskQueue(1, 2)
    queue.assign(0)

    assert queue.assign(1) is None


def test_a_device_with_nothing_left_takes_what_there_is():
    queue = SubtaskQueue(3, 2)
    queue.assign(0)
    queue.assign(1)
    queue.complete(0)
    queue.assign(0)
    queue.complete(1, ended=True)

    assert queue.assign(1) == SubtaskEpoch(0, 2, begins=True, source=0)


@pytest.mark.parametrize(("num_devices", "ahead"), [(1, 1), (2, LAG + 1)])
def test_no_subtask_runs_far_ahead_of_what_was_reported(num_devices, ahead):
    queue = SubtaskQueue(1, num_devices)
    for _ in range(ahead):
        queue.assign(0)
        queue.complete(0)

    assert queue.assign(0) is None
    queue.reported = 1
    assert queue.assign(0) == SubtaskEpoch(0, ahead + 1)


def test_an_epoch_that_waits_for_a_device_leaves_one_for_the_other():
    queue = SubtaskQueue(2, 2)
    assert queue.assign(0) == SubtaskEpoch(0, 1, begins=True)

    assert queue.assign(0) is None
    assert queue.assign(1) == SubtaskEpoch(1, 1, begins=True)


def test_a_device_is_given_two_epochs_at_most():
    queue = SubtaskQueue(5, 1)

    assert [queue.assign(0).subtask, queue.assign(0).subtask, queue.assign(0)] == [0, 1, None]


def test_what_a_lost_device_had_goes_on_elsewhere_from_where_it_is_known():
    queue = SubtaskQueue(1, 2)
    queue.assign(0)
    queue.complete(0)
    queue.assign(0)
    queue.begin_at(0, 1)

    assert queue.assign(1) == SubtaskEpoch(0, 2, begins=True)


def test_a_subtask_that_ended_is_not_trained_again():
    queue = SubtaskQueue(1, 1)
    queue.begin_at(0, 3, ended=True)

    assert queue.assign(0) is None


@pytest.mark.parametrize("num_devices", [1, 2, 3])
@pytest.mark.parametrize(
    "durations",
    [
        pytest.param((1, 1, 1, 1, 1), id="equal"),
        pytest.param((0.6, 0.65, 0.77, 0.99, 0.99), id="a perfect packing"),
        pytest.param((0.4, 0.9, 0.9, 0.9, 0.9), id="one short"),
        pytest.param((3, 1, 1, 1, 1), id="one long"),
    ],
)
def test_queue_takes_at_most_a_tenth_longer_than_the_best_packing(durations, num_devices):
    run = Simulation(durations, num_devices).run(20)

    assert run.now <= 1.10 * 20 * best_packing(durations, num_devices)


def test_a_subtask_that_ends_early_makes_room():
    run = Simulation((1, 1, 1), 2, last={0: 2}).run(10)

    assert run.now <= (2 + 10 + 10) / 2 + 2


def test_subtasks_seldom_move():
    run = Simulation((0.6, 0.65, 0.77, 0.99, 0.99), 2).run(40)

    assert len(run.moves) <= 10


def test_iterations_are_reported_steadily():
    run = Simulation((1, 1, 1, 1, 1), 2).run(20)
    gaps = [b - a for a, b in itertools.pairwise(run.reported_at)]

    assert max(gaps) <= 5
