"""Best and final models of a sweep: logging in MLflow, registration, retraining."""
