"""What a reader of an MLflow store sees of the only sweep in it."""


class Store:
    """What a reader of the MLflow store sees of its only sweep."""

    def __init__(self, client):
        self.client = client
        experiment = client.get_experiment_by_name("digits")
        runs = client.search_runs([experiment.experiment_id])
        self.parents = [run for run in runs if "tune_tf.trial_id" not in run.data.tags]
        self.children = [run for run in runs if "tune_tf.trial_id" in run.data.tags]

    @property
    def parent(self):
        (parent,) = self.parents
        return parent

    def child(self, **params):
        wanted = {key: str(value) for key, value in params.items()}.items()
        (child,) = [run for run in self.children if wanted <= run.data.params.items()]
        return child

    def states(self, param):
        return {
            run.data.params[param]: (run.info.status, run.data.tags.get("tune_tf.stop_reason"))
            for run in self.children
        }

    def points(self, run, key):
        history = self.client.get_metric_history(run.info.run_id, key)
        return sorted((metric.step, metric.value) for metric in history)
