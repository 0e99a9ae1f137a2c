"""What measurements say in words."""

from dataclasses import replace

import pytest
from measured_candidates import (
    asynchronous,
    batch,
    cores,
    failed,
    measured,
    part,
    replicas,
    workers,
)

from tune_tf.config import SweepConfig
from tune_tf.estimate.sample_process import EpochTimings
from tune_tf.estimate.scaling.advice import advise, settings_of
from tune_tf.estimate.scaling.benchmark_rounds import staleness_of
from tune_tf.parallelism import Mirrored, MultiWorker
from tune_tf.resources import TrialResources

ONE = measured()

CHOSEN = {
    "nothing else was measured": ([], Mirrored()),
    "what is slower": ([replicas(2, 0.4), workers(2, 0.3)], Mirrored()),
    "what is faster but wastes devices": ([replicas(2, 1.2)], Mirrored()),
    "what uses its devices": ([replicas(2, 1.9), workers(2, 1.6)], Mirrored(2)),
    "the fastest that still uses them": ([replicas(2, 1.9), replicas(4, 2.5)], Mirrored(2)),
    "more of them where that pays": ([replicas(2, 1.9), workers(4, 3.2)], MultiWorker(4)),
    "a gain that is lost in noise": ([replicas(1, 1.2, shaken=0.4)], Mirrored()),
    "what failed": ([failed(2, "no room"), workers(2, 1.8)], MultiWorker(2)),
}


@pytest.mark.parametrize(("others", "parallelism"), CHOSEN.values(), ids=CHOSEN.keys())
def test_advice_chooses_the_fastest_parallelism_with_busy_devices(others, parallelism):
    assert advise([ONE, *others], on_gpus=False).chosen.parallelism == parallelism


SAID = {
    "that more devices do not pay": (
        [replicas(2, 0.4)],
        "Mirrored: does not pay; 2 replicas train 0.40 times the rows of one core (20% of what 2 "
        "single ones would).",
    ),
    "up to where they pay": (
        [replicas(2, 1.8), replicas(4, 2.0)],
        "Mirrored: pays up to 2 replicas, which train 1.80 times the rows of one core (90% of what "
        "2 single ones would); beyond that, 4 replicas train 2.00 times the rows of one core (50%",
    ),
    "that a gain may not be worth its devices": (
        [replicas(2, 1.2)],
        "Mirrored: faster, but wastes much of the devices; 2 replicas train 1.20 times",
    ),
    "what more threads do": (
        [cores(2, 1.5)],
        "One replica, more cores: pays up to 2 cores, which train 1.50 times",
    ),
    "how to use all devices without": ([replicas(2, 0.4)], "as many concurrent trials"),
    "what is faster at a price": (
        [replicas(4, 2.0)],
        "If a single trial must finish sooner: 4 replicas (mirrored), 2.00 times as fast, at 50% "
        "of what its cores could do.",
    ),
    "that a larger batch is faster, and what it changes": (
        [batch(0.5, 0.6), batch(4, 2.1)],
        "A batch of 128 trains 2.10 times the rows a second; it also makes fewer updates",
    ),
    "that no batch is faster": ([batch(4, 1.01)], "Other batch sizes are no faster than 32."),
    "that rows take as long among more": (
        [part(0.25, 1.0)],
        "A row takes as long among 250 rows as among 1,000",
    ),
    "that few rows are slow": (
        [part(0.25, 0.5)],
        "A row takes 2.00 times the time among 250 rows that it takes among 1,000: an epoch has",
    ),
    "that cores are shared": ([replicas(2, 0.4)], "There is no GPU here"),
    "that input does not limit": (
        [],
        "Input is not the bottleneck: preparing rows takes at most 4%",
    ),
}


@pytest.mark.parametrize(("others", "sentence"), SAID.values(), ids=SAID.keys())
def test_advice_explains_its_choice(others, sentence):
    assert sentence in " ".join(advise([ONE, *others], on_gpus=False).sentences)


def test_advice_for_gpus_mentions_no_cpu_cores():
    one = measured(resources=TrialResources(cpus=1, gpus=1))
    two = measured(1.9, parallelism=Mirrored(2), resources=TrialResources(cpus=2, gpus=2))
    advice = advise([one, two], on_gpus=True)
    assert "one core" not in " ".join(advice.sentences)
    assert "There is no GPU here" not in " ".join(advice.sentences)
    assert advice.settings.endswith("resources: {cpus: 2, gpus: 2}")


@pytest.mark.parametrize(
    "parallelism",
    [Mirrored(), Mirrored(2, synchronized_batch_norm=True), MultiWorker(3, placement="spread")],
    ids=["one replica", "replicas", "workers"],
)
def test_its_lines_for_the_sweep_file_mean_what_was_measured(parallelism, tmp_path):
    num = parallelism.num_replicas
    lines = settings_of(
        measured(parallelism=parallelism, resources=TrialResources(cpus=num)).candidate
    )
    path = tmp_path / "sweep.yaml"
    path.write_text(
        "name: any\nworkload: mine:Mine\nobjective: {metric: loss, mode: min}\n"
        f"space: {{batch_size: 32}}\nbudget: {{num_samples: 1}}\n{lines}\n"
    )
    config = SweepConfig.from_yaml(path)
    assert (config.parallelism, config.resources) == (parallelism, TrialResources(cpus=num))


def test_it_says_when_others_used_the_machine():
    crowded = replace(ONE, other_cores=1.2)
    sentences = advise([crowded], on_gpus=False).sentences
    assert sentences[-1].startswith("Other processes kept 1.2 cores of this machine busy")
    assert "Other processes" not in " ".join(advise([ONE], on_gpus=False).sentences)


STALE = asynchronous(4, 3.6, (2.75, 7))


@pytest.mark.parametrize(
    ("others", "advised"),
    [
        pytest.param([replicas(2, 1.5), STALE], "Choose 4 asynchronous workers.", id="chosen"),
        pytest.param(
            [replicas(2, 1.5), asynchronous(4, 2.2, (2.75, 7))],
            "If a single trial must finish sooner: 4 asynchronous workers",
            id="sooner",
        ),
    ],
)
def test_the_price_of_asynchronous_training_is_named_before_it_is_advised(others, advised):
    text = " ".join(advise([ONE, *others], on_gpus=False).sentences)

    price, _, rest = text.partition(advised)
    assert "were 2.8 updates old on average and 7 at most, as measured here" in price
    assert "would be 3 if all were equally fast, which acts like a momentum of about 0.75" in price
    assert "numbers of one device is 2 replicas, 1.50 times as fast as one" in price
    assert "updates old" not in rest


def test_the_price_of_asynchronous_training_that_is_not_advised_is_not_named():
    text = " ".join(advise([ONE, replicas(4, 3.9), STALE], on_gpus=False).sentences)

    assert "updates old" not in text


def test_the_staleness_of_all_rounds_is_one_mean_and_one_maximum():
    rounds = [
        EpochTimings((1.0, 1.0), 1.0, 0.0, ((1.0, 3), (2.0, 5))),
        EpochTimings((1.0,), 1.0, 0),
    ]

    assert staleness_of(rounds) == (1.5, 5)
    assert staleness_of(rounds[1:]) is None
