"""The MLflow runs of a sweep that does not run, as its store has them."""

from typing import TYPE_CHECKING

from tune_tf.tracking.entry import PARENT, SWEEP_ID, TRIAL_ID

if TYPE_CHECKING:
    from mlflow import MlflowClient

_PAGE = 1000


def run_ids_of(client: "MlflowClient", experiment_name: str, sweep_id: str) -> dict[str, str]:
    """Return MLflow's ids of a sweep's runs, by trial id; :data:`PARENT` for the sweep's own.

    Args:
        client: MLflow's client.
        experiment_name: Their experiment; there need not be one.
        sweep_id: The sweep.
    """
    experiment = client.get_experiment_by_name(experiment_name)
    found: dict[str, str] = {}
    token = None
    while experiment is not None:
        page = client.search_runs(
            [experiment.experiment_id],
            f"tags.`{SWEEP_ID}` = '{sweep_id}'",
            max_results=_PAGE,
            order_by=["attributes.start_time ASC"],
            page_token=token,
        )
        for run in page:
            found.setdefault(run.data.tags.get(TRIAL_ID, PARENT), run.info.run_id)
        token = page.token
        if not token:
            break
    return found
