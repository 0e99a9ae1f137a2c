"""Files as users have them, made of scikit-learn's data sets."""

import gzip

import numpy as np
from PIL import Image

FEATURES = {
    "image": {"dtype": "float32", "shape": [8, 8, 1]},
    "label": {"dtype": "int64", "shape": []},
}


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


def digit_records(path, num_rows=300):
    """Write digits as a TFRecord file, pixels from 0 to 1."""
    import tensorflow as tf

    path.parent.mkdir(parents=True, exist_ok=True)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for image, label in zip(*digits(num_rows), strict=True):
            pixels = tf.train.FloatList(value=image.reshape(-1) / 255)
            feature = {
                "image": tf.train.Feature(float_list=pixels),
                "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
            }
            example = tf.train.Example(features=tf.train.Features(feature=feature))
            writer.write(example.SerializeToString())
    return path


def fashion(keras_home, num_rows=200):
    """Write a small Fashion-MNIST into a cache of Keras'; it is the one without a hash."""
    folder = keras_home / "datasets" / "fashion-mnist"
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for part in ("train", "t10k"):
        labels = np.arange(num_rows, dtype=np.uint8) % 10
        images = rng.integers(0, 60, (num_rows, 28, 28), np.uint8) + labels[:, None, None] * 19
        for kind, offset, values in (("labels-idx1", 8, labels), ("images-idx3", 16, images)):
            with gzip.open(folder / f"{part}-{kind}-ubyte.gz", "wb") as file:
                file.write(bytes(offset) + values.astype(np.uint8).tobytes())
    return keras_home
