"""Files as users have them, made of scikit-learn's data sets."""

import numpy as np
from PIL import Image


def wine(path):
    """Write a table of 178 wines: classes as text, numbers and a category, some missing."""
    from sklearn.datasets import load_wine

    table = load_wine(as_frame=True).frame
    rng = np.random.default_rng(0)
    names = np.array(["barolo", "grignolino", "barbera"])
    table["class"] = names[table.pop("target")]
    table["region"] = np.where(rng.random(len(table)) < 0.5, "north", "south")
    for column in ("alcohol", "region"):
        table.loc[rng.choice(len(table), 9, replace=False), column] = None
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        table.to_parquet(path)
    else:
        table.to_csv(path, index=False)
    return path


def validation_rows(workload):
    """Return the validation rows of a ``TabularMLP`` as its file has them, without the target."""
    from tune_tf.workloads.settings_workload import row_splits

    table, _ = workload._read()
    y = workload._targets(table, workload.properties.classes)
    rows = row_splits(len(table), workload.settings, y)["validation"]
    return table.iloc[rows].drop(columns=workload.settings.target)


def digits(num_rows):
    """Return the first digits as bytes of shape ``[rows, 8, 8]``, and their classes."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    return (images[:num_rows] * 15).astype(np.uint8).reshape(-1, 8, 8), labels[:num_rows]


def digit_folders(path, num_rows=300):
    """Write digits as PNG files, a folder for each class."""
    for number, (image, label) in enumerate(zip(*digits(num_rows), strict=True)):
        folder = path / str(label)
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(folder / f"{number:03}.png")
    return path


def digit_arrays(path, num_rows=300):
    """Write digits as an .npz file."""
    images, labels = digits(num_rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, x=images, y=labels)
    return path
