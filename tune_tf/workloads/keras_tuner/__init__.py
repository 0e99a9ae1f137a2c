"""KerasTuner's hypermodels as workloads."""
