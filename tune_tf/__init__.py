"""tune_tf: hyperparameter search over TensorFlow/Keras models, as a Ray Tune plugin.

Each name is imported on first use: most bring in Ray, TensorFlow, Optuna or MLflow.
"""

import lazy_loader

from tune_tf import errors as errors  # for except clauses, where a late import may fail

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
