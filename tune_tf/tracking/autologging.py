"""MLflow's autologging, which would make a second run of a trial that has one already."""

import sys

# The integrations that start a run of their own when a model is fitted.
_FLAVORS = (
    "keras",
    "tensorflow",
    "sklearn",
    "xgboost",
    "lightgbm",
    "statsmodels",
    "pytorch",
    "spark",
)


def stop_autologging() -> None:
    """Switch MLflow's autologging off in this process; does nothing where MLflow is not loaded.

    Whatever the user's code has switched on goes off, for all libraries at once or for one, and
    also for libraries that are still to be loaded.
    """
    if "mlflow" not in sys.modules:
        return
    import mlflow

    mlflow.autolog(disable=True, silent=True)
    # What was switched on for one library alone does not heed the call above.
    for flavor in _FLAVORS:
        module = sys.modules.get(f"mlflow.{flavor}")
        autolog = getattr(module, "autolog", None)
        if autolog is not None:
            autolog(disable=True, silent=True)
