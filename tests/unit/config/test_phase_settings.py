"""The phases' settings: what the engine asks of them beyond their fields."""

from dna.config.phases import SGD, Auxiliary, Distil, Joint, Policy, Value

WALK = SGD(epochs=1, minibatch=2)


def test_only_a_distillation_that_says_so_skips_the_first_iteration():
    assert Distil(sgd=WALK, first="skip").skips_first
    for kind in (Policy, Joint, Value, Distil, Auxiliary):
        assert not kind(sgd=WALK).skips_first


def test_skipping_is_derived_and_not_written():
    assert "skips_first" not in Distil(sgd=WALK).model_dump()
