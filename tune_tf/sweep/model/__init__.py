"""Best and final models of a sweep: export, promotion, retraining."""
