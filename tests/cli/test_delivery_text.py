import pytest

from tune_tf.cli.verbs.resume import delivery_text
from tune_tf.tracking.run_writer import Delivery


@pytest.mark.parametrize(
    ("delivery", "text"),
    [
        (Delivery(0, 0, 0), "MLflow has all of the sweep; there was nothing to deliver."),
        (Delivery(7, 0, 0), "7 entries delivered to MLflow; nothing is left."),
        (
            Delivery(7, 0, 2),
            "7 entries delivered to MLflow, which rejected 2 of their values; nothing is left.",
        ),
        (Delivery(0, 3, 0, "down"), "0 entries delivered to MLflow; 3 are left: down"),
    ],
    ids=["nothing", "all", "refused", "down"],
)
def test_delivery_text_counts_delivered_refused_and_waiting_entries(delivery, text):
    assert delivery_text(delivery) == text
