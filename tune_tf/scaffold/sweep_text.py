"""Text of a generated sweep file."""

from tune_tf.config import FIRST_LINE
from tune_tf.scaffold.draft import Draft, Line, scalar, with_comment

_OBJECTIVES = {
    "classification": (
        "{metric: val_accuracy, mode: max}",
        "or any metric the model is compiled with",
    ),
    "regression": (
        "{metric: val_mae, mode: min}",
        "mean absolute error, in the unit of the target",
    ),
}
_OPTIMIZER = (
    Line("optimizer", "{choice: [adamw, sgd]}"),
    Line("momentum", "{uniform: [0.0, 0.95], when: {optimizer: sgd}}"),
    Line("learning_rate", "{loguniform: [1.0e-4, 1.0e-1]}"),
    Line("weight_decay", "{loguniform: [1.0e-6, 1.0e-2], when: {optimizer: adamw}}"),
)
_BATCH_SIZES = ((100_000, 256), (10_000, 128), (0, 32))


def sweep_text(draft: Draft, file_name: str) -> str:
    """Return the commented text of a sweep file that is ready to run."""
    objective, said = _OBJECTIVES[draft.task]
    batch_size = next(size for rows, size in _BATCH_SIZES if draft.num_rows >= rows)
    name = scalar(file_name)
    lines = [
        FIRST_LINE,
        f"# {draft.about}",
        "#",
        f"#   tune-tf run {name} --dry-run     checks it and shows what would run",
        f"#   tune-tf run {name}               searches; after Ctrl-C, `tune-tf resume` continues",
        f"name: {scalar(draft.name)}",
        f"workload: {draft.workload}",
        *(["data:", *map(str, draft.data)] if draft.data else []),
        "",
        with_comment(f"objective: {objective}", said),
        "",
        "# The search space. Kinds: uniform, loguniform, quniform: [low, high, step], int, "
        "logint, choice;",
        "# a plain value is a constant; `when` makes a parameter depend on another.",
        "space:",
        *map(str, (*_OPTIMIZER, *draft.space)),
        str(Line("batch_size", str(batch_size), "rows per update, over all devices of a trial")),
        "",
        with_comment("seed: 7", "for weights, data order and sampler"),
        with_comment("searcher: {sampler: tpe}", "what proposes configs"),
        "# What stops trials early: one in three continues after 1, 3 and 9 epochs, to 27 at most.",
        "scheduler: {name: asha, max_t: 27, grace_period: 1, reduction_factor: 3}",
        "# Devices of a trial; by default one: a GPU if there is one, else a CPU core.",
        "# parallelism: {kind: mirrored, num_replicas: 2}",
        with_comment("budget:", "the sweep ends at whichever comes first"),
        str(Line("num_samples", "24", "trials")),
        str(Line("time_budget_s", "1800", "seconds")),
        f"mlflow: {{experiment_name: {scalar(draft.name)}}}",
    ]
    return "\n".join(line.rstrip() for line in lines) + "\n"
