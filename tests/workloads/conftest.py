"""What the tests of this folder share."""


def pytest_ignore_collect(collection_path, config):
    """Leave these files alone where no TensorFlow is wanted: reading them imports it."""
    return True if "not tf" in config.option.markexpr else None
