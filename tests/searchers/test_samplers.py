import pytest
from optuna.samplers import RandomSampler, TPESampler

from tune_tf.errors import InvalidSettingsError
from tune_tf.searchers.samplers import make_sampler, renewed


@pytest.mark.parametrize(("name", "kind"), [("tpe", TPESampler), ("random", RandomSampler)])
def test_a_sampler_is_optunas_of_that_name(name, kind):
    assert type(make_sampler(name, 1, categoricals=True)) is kind


def test_a_sampler_that_is_made_is_used_as_it_is():
    sampler = TPESampler()
    assert make_sampler(sampler, None, categoricals=True) is sampler


def test_an_unknown_name_is_refused_with_those_known_and_a_guess():
    with pytest.raises(
        InvalidSettingsError,
        match=r"unknown sampler 'tpes': it must be one of 'random', 'tpe' or .* 'tpe'",
    ):
        make_sampler("tpes", 1, categoricals=True)


def test_a_seed_beside_a_sampler_that_is_made_is_refused():
    with pytest.raises(InvalidSettingsError, match="seed=3 has no effect"):
        make_sampler(TPESampler(), 3, categoricals=True)


@pytest.mark.parametrize(("categoricals", "joint"), [(True, False), (False, None)])
def test_tpe_samples_parameters_one_by_one_where_there_are_categoricals(categoricals, joint):
    assert make_sampler("tpe", 1, categoricals=categoricals)._multivariate is joint


def first_draw(sampler):
    return float(sampler._rng.rng.random())


def test_a_renewed_sampler_follows_from_the_seed_and_the_number_of_trials():
    def draw(seed, num_trials):
        old = make_sampler("random", seed, categoricals=False)
        return first_draw(renewed(old, "random", seed, num_trials, categoricals=False))

    assert draw(7, 5) == draw(7, 5)
    assert (
        len(
            {
                draw(7, 5),
                draw(7, 6),
                draw(8, 5),
                first_draw(make_sampler("random", 7, categoricals=0)),
            }
        )
        == 4
    )


@pytest.mark.parametrize("sampler", ["random", RandomSampler(seed=7)], ids=["unseeded", "made"])
def test_a_sampler_without_a_seed_of_ours_is_seeded_afresh(sampler):
    old = make_sampler(sampler, None, categoricals=False)
    assert renewed(old, sampler, None, 5, categoricals=False) is old
    assert first_draw(old) != first_draw(RandomSampler(seed=7))
